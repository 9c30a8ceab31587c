package main

import (
	"bytes"
	"log"
	"strings"
	"testing"

	"leasehold.dev/test/inprocess"
)

// TestDHCP runs the example. Hosts must keep their addresses when a server dies, and the address of
// a silent host must become free.
func TestDHCP(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cluster := inprocess.ClientConfig(t, inprocess.Run(t, 1)...)
		var out bytes.Buffer
		if err := run(t.Context(), cluster, log.New(&out, "", 0)); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		if !strings.HasSuffix(out.String(), "is free again\n") {
			t.Errorf("it printed %q", out.String())
		}
	})
}
