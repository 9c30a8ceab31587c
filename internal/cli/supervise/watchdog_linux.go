package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/subprocess"
)

// watchdog is a process that kills programs at their deadlines, so that no program outlives its
// lock while this process is stopped. A nil watchdog does nothing.
type watchdog struct{ to io.Writer }

// startWatchdog starts this program as a watchdog. The watchdog runs in its own process group, so
// that stopping this process's group does not stop it. When this process ends, the watchdog kills
// the process groups that it watches, and exits.
func startWatchdog(program string) (*watchdog, error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	args := []string{"leasehold", WatchdogCommand, strconv.Itoa(os.Getpid())}
	for _, pid := range subprocess.Children(os.Getpid()) {
		args = append(args, strconv.Itoa(pid)) // a shell started it, and then executed this program
	}
	cmd := &exec.Cmd{
		Path: program, Args: args, Stdin: from,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := subprocess.Start(cmd); err != nil {
		return nil, fault.Join(err, to.Close())
	}
	go func() { _ = subprocess.Wait(cmd) }()
	return &watchdog{to}, nil
}

// send sends a line. It has a short timeout, because a stopped watchdog must not block this
// process.
func (w *watchdog) send(group int, at int64) {
	if to, ok := w.to.(*os.File); ok {
		_ = to.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	}
	_, _ = fmt.Fprintf(w.to, "%d %d\n", group, at)
}

// arm sets the deadline of a process group, or of all children of this process if the group is
// anyChild. The deadline is on a clock that keeps running while the machine is suspended.
func (w *watchdog) arm(group int, deadline time.Time) {
	if w == nil {
		return
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return
	}
	// The clock is read before the remaining time is computed, so that a pause in between makes the
	// deadline earlier.
	w.send(group, max(now.Nano()+int64(time.Until(deadline)), 1))
}

// disarm removes a deadline.
func (w *watchdog) disarm(group int) {
	if w != nil {
		w.send(group, 0)
	}
}

// Watchdog kills process groups with SIGKILL at their deadlines. Each line of the input contains a
// group and its new deadline, in nanoseconds of CLOCK_BOOTTIME. A deadline of 0 removes the group.
// When the input ends, Watchdog kills all remaining groups and returns.
//
// At the deadline of anyChild, all children of this process's parent are killed, and so is any that
// appears later, until a group gets a deadline, the deadline is removed, or the input ends. The
// arguments are the process IDs of the parent and of its children that are not killed.
func Watchdog(from io.Reader, args []string) {
	signal.Ignore(passedOn...)
	var pids []int
	for _, arg := range args {
		pid, _ := strconv.Atoi(arg)
		pids = append(pids, pid)
	}
	watchGroups(from, func(group int) {
		if group > 0 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		} else if len(pids) > 0 {
			killChildren(pids[0], pids[1:])
		}
	})
}

// killChildren kills the children of the parent process, except this process and some others, and
// their process groups.
func killChildren(parent int, spared []int) {
	pids := subprocess.Children(parent)
	if os.Getppid() != parent {
		return // it has ended, and another process might have its number
	}
	for _, pid := range pids {
		if pid != os.Getpid() && !slices.Contains(spared, pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it might not have its own group yet
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
}

func watchGroups(from io.Reader, kill func(group int)) {
	var waiting sync.WaitGroup
	timers := make(map[int]*os.File)
	remove := func(group int) {
		if timer := timers[group]; timer != nil {
			_ = timer.Close() // ends its Read
			delete(timers, group)
		}
	}
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var group int
		var at int64
		_, err := fmt.Sscanf(lines.Text(), "%d %d", &group, &at)
		if err != nil || group < 0 || group == 1 {
			continue
		}
		if at == 0 {
			remove(group)
			continue
		}
		if group != anyChild {
			remove(anyChild) // the program that was being started has a group now
		}
		timer := timers[group]
		if timer == nil {
			fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
			if err != nil {
				kill(group) // otherwise nothing would kill it
				continue
			}
			timer = os.NewFile(uintptr(fd), "timer")
			timers[group] = timer
			waiting.Go(func() {
				for again := true; again; again = group == anyChild {
					if _, err := timer.Read(make([]byte, 8)); err != nil {
						return
					}
					kill(group)
				}
			})
		}
		setTimer(timer, at)
	}
	remove(anyChild) // the kernel kills the children when their parent ends
	for _, timer := range timers {
		setTimer(timer, 1)
	}
	waiting.Wait()
}

// setTimer makes a timer fire at an instant of CLOCK_BOOTTIME, or immediately if that instant has
// passed, and every 100 ms from then on.
func setTimer(timer *os.File, at int64) {
	raw, err := timer.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		spec := unix.ItimerSpec{
			Value: unix.NsecToTimespec(at), Interval: unix.NsecToTimespec(1e8),
		}
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}
