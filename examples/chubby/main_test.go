package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestChubby runs the example: a lock goes to the next when its holder has been silent, not
// before the holder knows that, and the holder's old sequencer is refused.
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
