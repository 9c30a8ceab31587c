package subprocess

import (
	"bufio"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReap checks that orphans that have ended are reaped, and that programs that this process
// waits for are not.
func TestReap(t *testing.T) {
	// Orphans left by this process's programs become its children, as they would if it were process
	// 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("sh", "-c", "sh -c 'echo $$; exit 3' &")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitZombie(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := awaitZombie(pid); err != nil {
		t.Fatal(err)
	}
	reap(func(pid int) bool { return !started.pids[pid] })
	if err := awaitZombie(pid); !errors.Is(err, unix.ECHILD) {
		t.Errorf("the orphan is still there: %v", err)
	}
	if err := Wait(cmd); err != nil {
		t.Errorf("the program: %v", err)
	}
	if started.pids[cmd.Process.Pid] {
		t.Error("the program is still listed after Wait")
	}
}

// awaitZombie waits until a child has ended, and leaves it as a zombie.
func awaitZombie(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
