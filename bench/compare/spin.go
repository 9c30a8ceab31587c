package compare

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"leasehold.dev/internal/load"
	"leasehold.dev/test/process"
)

// putsBesideSpinners puts 1,000 times a second, as draining does, while another process keeps so
// many cores busy and no lease ends: what a machine that is so busy takes from a put by itself.
func putsBesideSpinners(cores int) Workload {
	return Workload{
		Name: fmt.Sprintf("puts-beside-spinners/%d", cores),
		Doc:  fmt.Sprintf("1,000 puts a second while another process keeps %d cores busy", cores),
		run: func(ctx context.Context, e *Env) (Result, error) {
			if cores > 0 {
				p, err := startSpinners(cores, filepath.Join(e.Server.dir, "spin.log"))
				if err != nil {
					return Result{}, err
				}
				defer stopSpinners(p)
			}
			var m measure
			err := m.during(e.Server, func() error {
				return e.putSteadily(ctx, int(e.Duration/putEvery), &m.hist)
			})
			return m.result(), err
		},
	}
}

// startSpinners starts a process that keeps so many cores busy.
func startSpinners(cores int, log string) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.Start(exec.Command(self, "-spin", strconv.Itoa(cores)), log, "")
}

func stopSpinners(p *process.Process) {
	_ = p.Signal(syscall.SIGKILL) // it may be gone
	<-p.Done()
}

// Spin keeps so many cores busy until the context ends.
func Spin(ctx context.Context, cores int) error {
	return load.Spread(ctx, cores, cores, func(ctx context.Context, _, _ int) error {
		for ctx.Err() == nil {
			_ = cores
		}
		return nil
	})
}
