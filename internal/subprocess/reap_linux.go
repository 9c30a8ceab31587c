package subprocess

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// started contains the programs that Start has started and for which Wait has not returned.
var started struct {
	sync.Mutex
	once sync.Once
	pids map[int]bool
}

// Start calls cmd.Start. If this process is process 1 of its PID namespace, as in a container, it
// also reaps orphans of its programs from then on, because no other process does.
func Start(cmd *exec.Cmd) error {
	started.Lock() // so that the program is not reaped before it is in pids
	defer started.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if started.pids == nil {
		started.pids = make(map[int]bool)
	}
	started.pids[cmd.Process.Pid] = true
	if os.Getpid() == 1 {
		started.once.Do(func() {
			ended := make(chan os.Signal, 1)
			signal.Notify(ended, unix.SIGCHLD)
			go func() {
				for range ended {
					reap(func(pid int) bool { return !started.pids[pid] })
				}
			}()
		})
	}
	return nil
}

// Wait calls cmd.Wait for a program started by Start.
func Wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	started.Lock()
	defer started.Unlock()
	delete(started.pids, cmd.Process.Pid)
	return err
}

// reap waits for children of this process that have ended and are orphans.
func reap(orphan func(pid int) bool) {
	started.Lock()
	defer started.Unlock()
	for _, pid := range Children(os.Getpid()) {
		if orphan(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// Children returns the child processes of a process, including those that have ended but have not
// been waited for. It returns nil if /proc cannot be read or is that of another PID namespace.
func Children(parent int) (pids []int) {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parentOf(pid) == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf returns the parent of a process, or 0 if it is unknown.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, which ends at the last parenthesis, can contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
