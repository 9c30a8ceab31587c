package cache_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
)

// TestTooManyHolds: who holds as much as one owner may is told so at once, whichever way he
// opens one more cache, and keeps nobody else from opening one. What he closes he has again.
func TestTooManyHolds(t *testing.T) {
	cl := newCluster(t, 1)
	c := connect(t, cl.endpoints()...)
	var left []client.KeyRange
	for i := range 64 {
		left = append(left, cache.Prefix(fmt.Sprintf("h/%d/", i)))
	}
	grant := client.Grant{TTL: time.Hour, Owner: "greedy", Holds: left}
	first := must[*client.Granted](t)(c.GrantOnly(ask(t), grant))
	for range 10_000/64 - 1 {
		_ = must[*client.Granted](t)(c.GrantOnly(ask(t), grant))
	}
	_, err := cache.Open(ask(t), c, left, cache.Options{Owner: "greedy"})
	if !errors.Is(err, client.ErrTooManyHolds) {
		t.Errorf("one too many: %v", err)
	}
	open(t, c, "h/", cache.Options{Owner: "another"})
	open(t, c, "h/", cache.Options{})
	if err := c.Revoke(ask(t), client.LeaseRef{ID: first.ID}); err != nil {
		t.Fatal(err)
	}
	mine := must[*cache.Cache](t)(cache.Open(ask(t), c, left, cache.Options{Owner: "greedy"}))
	if err := mine.Close(ask(t)); err != nil {
		t.Error(err)
	}
}
