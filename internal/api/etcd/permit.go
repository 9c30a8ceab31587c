package etcd

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// What a caller is told is decided against the state from which it is told. What it lets be done is
// decided where that is applied: see fsm.By.

// root says why the caller may not do what only root may, nil if it may.
func root(ctx context.Context, v *fsm.View) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.CheckRoot(api.CallerOf(ctx)))
}

// known says why the caller counts as nobody, nil if it has logged in.
func known(ctx context.Context, v *fsm.View) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.CheckKnown(api.CallerOf(ctx)))
}

// readable says why the caller may not read all keys of a range, nil if it may.
func readable(ctx context.Context, v *fsm.View, key, end string) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.Check(
		api.CallerOf(ctx), access.Read, keyrange.Range{Key: key, End: end}))
}

// allKeys says why the caller may not read, or write, some key, nil if it may all of them and has
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

// seen says why the caller may not be told of a lease, nil if it may. Of one without a name that
// belongs to nobody the keys decide.
func seen(ctx context.Context, v *fsm.View, of access.Lease) error {
	if !v.Access.Enabled() || of == (access.Lease{}) {
		return nil
	}
	return api.Error(v.Access.CheckLease(api.CallerOf(ctx), access.See, of))
}

// allLeases says why the caller may not be told all leases for which the keys decide, nil if it
// may. It looks at all keys, unless root asks.
func allLeases(ctx context.Context, v *fsm.View, all lease.View) error {
	who := api.CallerOf(ctx)
	if !v.Access.Enabled() || v.Access.IsRoot(who) {
		return nil
	}
	if err := v.Access.CheckKnown(who); err != nil {
		return api.Error(err)
	}
	nobodys := make(map[int64]bool)
	for info := range all.All() {
		if fsm.BelongsTo(&info) == (access.Lease{}) {
			nobodys[int64(info.ID)] = true
		}
	}
	for kv := range v.KV.Ascend("", "\x00", 0) {
		if !nobodys[kv.Lease] {
			continue
		}
		if err := v.Access.Check(who, access.Read, keyrange.Range{Key: kv.Key}); err != nil {
			return api.Error(err)
		}
	}
	return nil
}
