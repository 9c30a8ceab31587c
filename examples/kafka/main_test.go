package main

import (
	"bytes"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestKafka runs the example: when the controller dies another takes its place, and the partitions
// that it led have leaders among the others.
func TestKafka(t *testing.T) {
	member := inprocess.Run(t, 1)[0]
	var out bytes.Buffer
	d := demo{
		endpoints: []string{member.Endpoint()}, brokers: 3, partitions: 6,
		ttl: 2 * time.Second, log: log.New(&out, "", 0),
	}
	if err := d.run(t.Context()); err != nil {
		t.Errorf("%v after\n%s", err, out.String())
	}
	if !strings.HasSuffix(out.String(), "6 partitions are led by 2 live brokers\n") {
		t.Errorf("it says %q", out.String())
	}
}
