package etcd

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// What a caller may see is decided against the state that it is shown. What a caller may do is
// decided where it is applied: see fsm.By.

// root returns why the caller may not act as root, nil if it may.
func root(ctx context.Context, v *fsm.View) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.CheckRoot(api.CallerOf(ctx)))
}

// known returns an error if a login is required and the caller is anonymous.
func known(ctx context.Context, v *fsm.View) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.CheckKnown(api.CallerOf(ctx)))
}

// readable returns why the caller may not read all keys of a range, nil if it may.
func readable(ctx context.Context, v *fsm.View, key, end string) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.Check(
		api.CallerOf(ctx), access.Read, keyrange.Range{Key: key, End: end}))
}

// allKeys returns why the caller may not read, or write, one of the keys, nil if it may all and has
// logged in.
func allKeys(ctx context.Context, v *fsm.View, what access.Kind, keys []string) error {
	if !v.Access.Enabled() {
		return nil
	}
	who := api.CallerOf(ctx)
	if err := v.Access.CheckKnown(who); err != nil {
		return api.Error(err)
	}
	if v.Access.IsRoot(who) {
		return nil
	}
	for _, k := range keys {
		if err := v.Access.Check(who, what, keyrange.Range{Key: k}); err != nil {
			return api.Error(err)
		}
	}
	return nil
}

// seen returns why the caller may not see a lease, nil if it may. For a lease without name and
// principal, its keys decide.
func seen(ctx context.Context, v *fsm.View, of access.Lease) error {
	if !v.Access.Enabled() || of == (access.Lease{}) {
		return nil
	}
	return api.Error(v.Access.CheckLease(api.CallerOf(ctx), access.See, of))
}

// allLeases returns why the caller may not see all leases whose keys decide, nil if it may. It
// checks all keys, unless root asks.
func allLeases(ctx context.Context, v *fsm.View, all lease.View) error {
	who := api.CallerOf(ctx)
	if !v.Access.Enabled() || v.Access.IsRoot(who) {
		return nil
	}
	if err := v.Access.CheckKnown(who); err != nil {
		return api.Error(err)
	}
	unowned := make(map[int64]bool)
	for info := range all.All() {
		if fsm.BelongsTo(&info) == (access.Lease{}) {
			unowned[int64(info.ID)] = true
		}
	}
	for kv := range v.KV.Ascend("", "\x00", 0) {
		if !unowned[kv.Lease] {
			continue
		}
		if err := v.Access.Check(who, access.Read, keyrange.Range{Key: kv.Key}); err != nil {
			return api.Error(err)
		}
	}
	return nil
}
