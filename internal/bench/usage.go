package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used since it began.
type Usage struct {
	// CPU is user and system time, in steps of 10 ms.
	CPU time.Duration
	// RSS is resident memory, in bytes.
	RSS int64
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every
// Linux platform that Go runs on.
const clockTick = 10 * time.Millisecond

func readUsage(pid int) (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	return parseStat(text)
}

// parseStat reads a line of /proc/PID/stat. The name of the program may hold
// spaces and parentheses, so fields are counted from the last parenthesis.
func parseStat(text []byte) (Usage, error) {
	_, rest, ok := cutLast(text, ") ")
	fields := strings.Fields(string(rest))
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3 // numbers in proc(5), less those before
	if !ok || len(fields) <= rss {
		return Usage{}, fmt.Errorf("bench: not a stat line: %q", text)
	}
	var n [3]int64
	for i, f := range []int{utime, stime, rss} {
		v, err := strconv.ParseInt(fields[f], 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("bench: not a stat line: %w", err)
		}
		n[i] = v
	}
	return Usage{
		CPU: time.Duration(n[0]+n[1]) * clockTick,
		RSS: n[2] * int64(os.Getpagesize()),
	}, nil
}

func cutLast(text []byte, sep string) (before, after []byte, ok bool) {
	i := bytes.LastIndex(text, []byte(sep))
	if i < 0 {
		return text, nil, false
	}
	return text[:i], text[i+len(sep):], true
}
