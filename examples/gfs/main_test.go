package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestGFS runs the example. No acknowledged record may be lost when a primary fails, and an order
// from the old primary must be rejected.
func TestGFS(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		member := inprocess.Run(t, 1)[0]
		var out bytes.Buffer
		d := demo{
			cluster: inprocess.ClientConfig(t, member), servers: 3, chunks: 4, ttl: 2 * time.Second,
			log: log.New(&out, "", 0),
		}
		if err := d.run(t.Context()); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		if !strings.HasSuffix(out.String(), "in all live replicas, in the same order\n") {
			t.Errorf("it says %q", out.String())
		}
	})
}
