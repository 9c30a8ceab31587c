package e2e

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestDemo checks that the programs of a demonstration use elections, locks, groups, pools and
// queues in their cluster, and that they end with it.
func TestDemo(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), server.Path(t), "dev", "--demo", "--port", "0")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "LEASEHOLD_CLUSTER_ID=1",
		"LEASEHOLD_ENDPOINTS=127.0.0.1:1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t}
	for lines := bufio.NewScanner(said); m.url == "" && lines.Scan(); {
		_, m.url, _ = strings.Cut(lines.Text(), "export LEASEHOLD_ENDPOINTS=")
	}
	for _, x := range []struct{ command, want string }{
		{"group list demo/workers", "worker-3"},
		{"pool list demo/ports", "3 of 10 held"},
		{"queue list demo/jobs", "claimed"},
		{"get demo/primary/ --prefix --print-value-only", "node-"},
		{"get demo/report/ --prefix --keys-only", "demo/report/"},
	} {
		harness.Eventually(t, x.command, func() error {
			if out, err := m.command(strings.Fields(x.command)...); err != nil ||
				!strings.Contains(out, x.want) {
				return errors.Join(err, errors.New(out))
			}
			return nil
		})
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("programs are left: %v", err)
	}
}
