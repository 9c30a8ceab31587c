package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestChubby runs the example. A lock must pass to the next client when its holder falls silent,
// but not before the holder knows that it has lost the lock. The old holder's sequencer must be
// rejected.
func TestChubby(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		member := inprocess.Run(t, 1)[0]
		var out bytes.Buffer
		d := demo{
			cluster: inprocess.ClientConfig(t, member), ttl: 2 * time.Second,
			log: log.New(&out, "", 0),
		}
		if err := d.run(t.Context()); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		if !strings.Contains(out.String(), "the primary is first\n") ||
			!strings.Contains(out.String(), "the primary is second\nsequencer ") {
			t.Errorf("it says %q", out.String())
		}
	})
}
