package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestWatchdog: a group is killed at its deadline, or when the input ends, unless it was
// forgotten before. Deadlines of the past and of the far future stand for those in between.
func TestWatchdog(t *testing.T) {
	from, to := io.Pipe()
	killed := make(chan int, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watchGroups(from, func(group int) { killed <- group })
	}()
	w := &watchdog{to}
	far := time.Now().Add(time.Hour)
	w.arm(11, far)
	w.arm(12, far)
	w.arm(13, far)
	w.disarm(12)
	w.arm(11, time.Now()) // it was extended, and passes now
	if g := <-killed; g != 11 {
		t.Errorf("group %d is killed, want 11", g)
	}
	w.disarm(11)
	w.arm(14, time.Now().Add(-time.Hour))
	if g := <-killed; g != 14 {
		t.Errorf("group %d is killed, want 14", g)
	}
	w.arm(15, far)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	close(killed)
	rest := slices.Sorted(func(yield func(int) bool) {
		for g := range killed {
			if !yield(g) {
				return
			}
		}
	})
	if want := []int{13, 15}; !slices.Equal(rest, want) {
		t.Errorf("groups %v are killed at the end, want %v", rest, want)
	}
}

// TestStoppedRun: the command of a leasehold run that is stopped with SIGSTOP is killed before
// the lock can go to another, and run exits with 124 when it continues.
func TestStoppedRun(t *testing.T) {
	tier.Campaign(t)
	program, err := process.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	alive := filepath.Join(t.TempDir(), "alive")
	if err := unix.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	m := inprocess.Run(t, 1)[0]
	run := exec.Command(program, "run", "--endpoints", m.Endpoint(), "--lock", "l", "--ttl", "1s",
		"--", "sh", "-c", `exec 3>"$0"; echo >&3; sleep 1000 & wait`, alive)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := run.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(f); err != nil { // it ends when all that the command started is dead
		t.Error(err)
	}
	if err := run.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); run.ProcessState.ExitCode() != exitLost {
		t.Errorf("exit code %d, %v", run.ProcessState.ExitCode(), err)
	}
}
