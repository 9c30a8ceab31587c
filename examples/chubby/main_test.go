package main

import (
	"bytes"
	"log"
	"strings"
	"testing"

	"leasehold.dev/test/inprocess"
)

// TestChubby runs the example. A lock must pass to the next client when its holder falls silent,
// but not before the holder knows that it has lost the lock. The old holder's sequencer must be
// rejected, and the proxy's cache must not return the old holder's name.
func TestChubby(t *testing.T) {
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
