package server

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold.dev/lease"
)

// TestBootTime checks that leases are timed by CLOCK_BOOTTIME, which keeps running during suspend,
// and not by the monotonic clock. The test reruns itself in a time namespace whose boot time is a
// day ahead.
func TestBootTime(t *testing.T) {
	const (
		inside = "LEASEHOLD_TEST_BOOTTIME"
		marker = "boot time is ahead: "
		day    = 24 * 3600
	)
	if os.Getenv(inside) != "" {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		mono := lease.Instant(ts.Nano() / 1e6)
		c, err := newClock(nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(marker, c.read().Boot-mono > day*1000/2)
		return
	}
	args := []string{"--user", "--map-root-user", "--time", "--boottime", fmt.Sprint(day)}
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Skipf("no time namespace can be made here: %v: %s", err, out)
	}
	cmd := exec.Command("unshare", append(args, os.Args[0], "-test.run=^TestBootTime$")...)
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), marker+" true") {
		t.Errorf("after a sleep of a day:\n%s", out)
	}
}
