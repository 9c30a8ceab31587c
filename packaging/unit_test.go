package main

import (
	"os"
	"strings"
	"testing"
)

// systemd restarts a crashed member, and a member can see how many connections may wait for it: the
// unit does not exempt Go's exit code for crashes, and does not hide the file in /proc that Go
// reads before it listens (it would allow 128 pending connections, where the kernel allows
// thousands; those of a dead member arrive at the others all at once).
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("files/leasehold.service")
	if err != nil {
		t.Fatal(err)
	}
	const crash = "2" // of a panic, and of what the runtime calls a fatal error
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
