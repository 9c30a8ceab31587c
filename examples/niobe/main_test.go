package main

import (
	"bytes"
	"errors"
	"log"
	"strings"
	"testing"
	"time"

	"leasehold.dev/test/inprocess"
)

// TestNiobe runs the example. When a secondary makes itself the primary, the old primary must
// already have stopped answering by its own clock, and nothing that was written may be lost.
func TestNiobe(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		member := inprocess.Run(t, 1)[0]
		var out bytes.Buffer
		d := demo{
			cluster: inprocess.ClientConfig(t, member), replicas: 3, ttl: 2 * time.Second,
			log: log.New(&out, "", 0),
		}
		if err := d.run(t.Context()); err != nil {
			t.Errorf("%v after\n%s", err, out.String())
		}
		if !strings.Contains(out.String(), "rejects reads") {
			t.Errorf("it says %q", out.String())
		}
	})
}

// TestOldPrimary checks that a primary of an outdated configuration, which does not know that it is
// outdated, cannot change anything on a secondary and gets no lease from it.
func TestOldPrimary(t *testing.T) {
	r := newReplica("b", &group{ttl: time.Minute})
	old := config{Replicas: []string{"a", "b"}, revision: 1}
	if err := errors.Join(r.renew(old, ""), r.take(old, "one")); err != nil {
		t.Fatal(err)
	}
	r.adopt(config{Replicas: []string{"b"}, revision: 2})
	if err := r.take(old, "two"); !errors.Is(err, errConfig) {
		t.Errorf("a value: %v", err)
	}
	if err := r.renew(old, "two"); !errors.Is(err, errConfig) {
		t.Errorf("a beacon: %v", err)
	}
	if value, err := r.read(); value != "one" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
}
