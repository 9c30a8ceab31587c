package process

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/test/tier"
)

// child is the environment variable that turns this binary into the process started by a test.
const child = "LEASEHOLD_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "stay":
		_, _ = os.Stdout.WriteString("here\n")
		select {}
	case "fail":
		_, _ = os.Stderr.WriteString("cannot\n")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// command returns a command that runs this binary as the given child.
func command(t *testing.T, what string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), child+"="+what)
	return cmd
}

// TestProcess checks that a process's output is appended to its log, and that the end of the
// process is reported together with its cause.
func TestProcess(t *testing.T) {
	tier.RealTime(t)
	log := filepath.Join(t.TempDir(), "log")
	var none *Process
	if !none.Ended() {
		t.Error("a process that was never started runs")
	}
	failed, err := Start(command(t, "fail"), log, "")
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := failed.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 || !failed.Ended() {
		t.Errorf("it ended with %v", err)
	}
	stays, err := Start(command(t, "stay"), log, "once more")
	if err != nil {
		t.Fatal(err)
	}
	if stays.Ended() || stays.PID() == failed.PID() {
		t.Error("it has ended")
	}
	if err := stays.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-stays.Done()
	if err := stays.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("a signal to one that has ended: %v", err)
	}
	if got := stays.Tail(); !strings.HasPrefix(got, "cannot\nonce more\n") {
		t.Errorf("the log is %q", got)
	}
	if _, err := Start(exec.Command("/no/such"), log, ""); err == nil {
		t.Error("what is not there was started")
	}
	if _, err := Start(command(t, "fail"), filepath.Join(log, "x"), ""); err == nil {
		t.Error("it runs without its log")
	}
}

// TestTail checks that only the end of a long log is returned, and that a missing log is reported.
func TestTail(t *testing.T) {
	tier.RealTime(t)
	log := filepath.Join(t.TempDir(), "log")
	if got := Tail(log); !strings.Contains(got, log) {
		t.Errorf("no log: %q", got)
	}
	if err := os.WriteFile(log, []byte(strings.Repeat("x", 2*tail)+"end"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Tail(log); len(got) != tail || !strings.HasSuffix(got, "xend") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestMustFreeAddr checks that no address is returned twice, and that each can be listened on.
func TestMustFreeAddr(t *testing.T) {
	tier.RealTime(t)
	seen := map[string]bool{}
	for range 2 * blockSize {
		addr := MustFreeAddr()
		if seen[addr] {
			t.Fatalf("%s twice", addr)
		}
		seen[addr] = true
	}
	l, err := net.Listen("tcp", MustFreeAddr())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if l, err := net.Listen("tcp", address(blocks.end-blockSize)); err == nil {
		_ = l.Close()
		t.Error("another process could claim the block")
	}
}

// TestDependOnSources checks that DependOnSources, called from a package's directory, finds the
// source files that go test must track.
func TestDependOnSources(t *testing.T) {
	tier.RealTime(t)
	if err := DependOnSources(); err != nil {
		t.Error(err)
	}
}
