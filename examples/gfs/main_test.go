package main

import (
	"bytes"
	"log"
	"strings"
	"testing"

	"leasehold.dev/test/inprocess"
)

// TestGFS runs the example. No acknowledged record may be lost when a primary fails. No other
// server may lead while the old lease is valid. A request from the old primary must be rejected.
func TestGFS(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cluster := inprocess.ClientConfig(t, inprocess.Run(t, 1)...)
		var out bytes.Buffer
		if err := run(t.Context(), cluster, log.New(&out, "", 0)); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		if !strings.HasSuffix(out.String(), "is rejected\n") {
			t.Errorf("it printed %q", out.String())
		}
	})
}
