package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"
)

// A fault is a known fault of lease services that can be provoked.
type fault struct {
	id      string // row in "Known faults" in docs/simulator.md
	title   string
	members int // number of members required
	// byDesign marks behavior that etcd's API requires. leasehold behaves in the same way and
	// documents it.
	byDesign bool
	provoke  func(context.Context, *cluster, trial) (result, error)
}

// faults lists the faults in report order, quick ones first.
var faults = []fault{
	{
		id: "T15", title: "one ending lease stops a keep-alive stream",
		members: 1, provoke: stuckStream,
	},
	{
		id: "T16", title: "a waiter for a lock outlives its lease",
		members: 1, provoke: deadWaiter,
	},
	{
		id: "T17a", title: "a campaign is won without a lease",
		members: 1, provoke: deadWinner,
	},
	{
		id: "T17b", title: "an observer never hears of nobody",
		members: 1, byDesign: true, provoke: deafObserver,
	},
	{
		id: "T18", title: "a lock without a lease has two holders",
		members: 1, byDesign: true, provoke: borrowedLease,
	},
	{
		id: "T5", title: "a renewal succeeds when the keys are gone",
		members: 3, provoke: renewedWithoutKeys,
	},
	{
		id: "T6", title: "a renewal succeeds after the revoke",
		members: 3, provoke: renewedAfterRevoke,
	},
	{
		id: "T9", title: "a dead lease lives on through leader changes",
		members: 3, provoke: immortalLease,
	},
	{
		id: "T1", title: "a leader that was stuck ends live leases",
		members: 3, provoke: wokenLeader,
	},
}

// A trial is an attempt to provoke a fault.
type trial struct {
	dir   string
	tries int
	say   func(format string, args ...any)
}

// A result describes how a server behaved when the benchmark tried to provoke a fault.
type result struct {
	shown  bool
	failed bool   // the attempt failed
	seen   string // one line with numbers, or the reason for the failure
}

func (r result) verdict() string {
	switch {
	case r.failed:
		return "FAILED"
	case r.shown:
		return "SHOWN"
	}
	return "not shown"
}

// try provokes the fault on new servers of the given kind.
func (f fault) try(ctx context.Context, k kind, t trial) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	t.say("%s on %s: %s", f.id, k.name, f.title)
	c, err := start(ctx, k, filepath.Join(t.dir, f.id+"-"+k.name), f.members)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return f.provoke(ctx, c, t)
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
