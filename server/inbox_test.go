package server

import (
	"errors"
	"testing"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// alone gathers what becomes of single renewals, batched what becomes of those of batches.
type (
	alone   struct{ errs []error }
	batched struct{ errs []error }
)

func (o *alone) Renewed(_ lease.ID, _ lease.TTL, err error) { o.errs = append(o.errs, err) }

func (o *batched) RenewedOne(_ int, _ lease.TTL, err error) { o.errs = append(o.errs, err) }

func (o *batched) RenewedTogether() { o.errs = append(o.errs, nil) }

// Renewals of either kind count by their leases against what may wait, and are told so if
// there is no room. The core's stop answers those that wait.
func TestRenewalsWait(t *testing.T) {
	n := &node{core: &core{inbox: newInbox()}}
	var one alone
	var all batched
	batch := func(size int) *replica.Renewals {
		return &replica.Renewals{IDs: make([]lease.ID, size), Owner: &all}
	}
	if err := n.Renew(1, &one); err != nil {
		t.Fatal(err)
	}
	if err := n.RenewAll(batch(3)); err != nil {
		t.Fatal(err)
	}
	if err := n.RenewAll(batch(maxQueued - 3)); !errors.Is(err, api.ErrTooManyRequests) {
		t.Errorf("one too many: %v", err)
	}
	if err := n.RenewAll(batch(maxQueued - 4)); err != nil {
		t.Errorf("as many as may wait: %v", err)
	}
	if err := n.Renew(1, &one); !errors.Is(err, api.ErrTooManyRequests) {
		t.Errorf("no room: %v", err)
	}
	n.stop()
	if err := n.RenewAll(batch(1)); !errors.Is(err, api.ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	if len(one.errs) != 1 || len(all.errs) != maxQueued-1 {
		t.Fatalf("%d and %d outcomes", len(one.errs), len(all.errs))
	}
	for _, err := range append(one.errs, all.errs...) {
		if !errors.Is(err, replica.ErrLeaderChanged) {
			t.Fatalf("a renewal that waits at the stop: %v", err)
		}
	}
	if n.inbox.renewing != 0 {
		t.Errorf("%d renewals wait after all were taken", n.inbox.renewing)
	}
}
