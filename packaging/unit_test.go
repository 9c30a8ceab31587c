package main

import (
	"os"
	"strings"
	"testing"
)

// TestUnit checks that systemd restarts a crashed member, and that a member can read the kernel's
// limit on pending connections. The unit must not prevent restarts after Go's exit code for
// crashes. Nor may it hide the /proc file that Go reads before it listens. Go would then allow only
// 128 pending connections, although the kernel allows thousands. That is too few when a member dies
// and all its clients connect to the others at the same time.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("files/leasehold.service")
	if err != nil {
		t.Fatal(err)
	}
	const crash = "2" // Go's exit code for a panic or a fatal runtime error
	has := false
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case name == "Restart" && value == "on-failure":
			has = true
		case name == "RestartPreventExitStatus":
			for _, code := range strings.Fields(value) {
				if code == crash {
					t.Errorf("%s=%s: a member that has crashed stays down", name, value)
				}
			}
		case name == "ProcSubset" && value != "all":
			t.Errorf("%s=%s hides /proc/sys/net/core/somaxconn", name, value)
		}
	}
	if !has {
		t.Error("no Restart=on-failure: a member that has failed stays down")
	}
}
