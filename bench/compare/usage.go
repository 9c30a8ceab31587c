package compare

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/internal/load"
)

// clockTick is the unit of times in /proc/PID/stat. USER_HZ is 100 on every Linux platform that Go
// supports.
const clockTick = 10 * time.Millisecond

// readUsage reads a process's resource usage since it started.
func readUsage(pid int) (load.Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return load.Usage{}, err
	}
	return parseStat(text)
}

// parseStat parses a line of /proc/PID/stat. The program's name may contain spaces and parentheses,
// so fields are counted from the last parenthesis.
func parseStat(text []byte) (load.Usage, error) {
	_, rest, ok := cutLast(text, ") ")
	fields := strings.Fields(string(rest))
	// Field numbers from proc(5), minus the skipped fields.
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3
	if !ok || len(fields) <= rss {
		return load.Usage{}, fmt.Errorf("bench: not a stat line: %q", text)
	}
	var n [3]int64
	for i, f := range []int{utime, stime, rss} {
		v, err := strconv.ParseInt(fields[f], 10, 64)
		if err != nil {
			return load.Usage{}, fmt.Errorf("bench: not a stat line: %w", err)
		}
		n[i] = v
	}
	return load.Usage{
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
