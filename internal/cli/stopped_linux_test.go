package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestStoppedRun checks what happens when leasehold run is stopped with SIGSTOP: its command is
// killed before another client can acquire the lock, and run exits with 124 once it is resumed.
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
	// the file reaches its end once all processes started by the command are dead
	if _, err := io.ReadAll(f); err != nil {
		t.Error(err)
	}
	if err := run.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); run.ProcessState.ExitCode() != app.ExitLost {
		t.Errorf("exit code %d, %v", run.ProcessState.ExitCode(), err)
	}
}
