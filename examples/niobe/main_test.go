package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestNiobe runs the example: when a secondary has made itself the primary, the old primary does
// not answer any more, by its own clock, and nothing that was written is lost.
func TestNiobe(t *testing.T) {
	member := inprocess.Run(t, 1)[0]
	var out bytes.Buffer
	d := demo{
		endpoints: []string{member.Endpoint()}, replicas: 3, ttl: 2 * time.Second,
		log: log.New(&out, "", 0),
	}
	if err := d.run(t.Context()); err != nil {
		t.Errorf("%v after\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "answers nobody") {
		t.Errorf("it says %q", out.String())
	}
}
