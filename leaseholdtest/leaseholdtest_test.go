package leaseholdtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/leaseholdtest"
)

// TestAdvance checks that in a bubble the server's time advances under the test's control. A lock
// remains held if its session is kept alive, and is released if not.
func TestAdvance(t *testing.T) {
	for range 2 { // two successive bubbles
		synctest.Test(t, func(t *testing.T) {
			s := leaseholdtest.Start(t)
			c := s.Client(client.Config{})
			first, err := c.Open(t.Context(), client.Grant{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			held, err := lock.NewMutex(first, "m").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.Advance(time.Hour)
			if held.Err() != nil {
				t.Errorf("after an hour: %v", held.Err())
			}
			first.Lease().Close() // simulates a program crash
			second, err := c.Open(t.Context(), client.Grant{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			next := lock.NewMutex(second, "m")
			if _, err := next.TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
				t.Errorf("before the TTL is over: %v", err)
			}
			s.Advance(2 * time.Minute)
			if _, err := next.TryLock(t.Context()); err != nil {
				t.Errorf("after the TTL: %v", err)
			}
		})
	}
}

// TestRealTime checks that the server runs in real time outside a bubble.
func TestRealTime(t *testing.T) {
	c := leaseholdtest.Start(t).Client(client.Config{})
	err := c.Run(t.Context(), client.Grant{}, func(context.Context, *client.Session) error { return nil })
	if err != nil {
		t.Error(err)
	}
}
