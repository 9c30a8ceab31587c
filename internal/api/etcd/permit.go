package etcd

import (
	"context"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Read permissions are checked against the state that is returned to the caller. Permissions for
// commands are checked when a command is applied (see fsm.By).

// root returns an error if the caller may not act as root.
func root(ctx context.Context, v *fsm.View) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.CheckRoot(api.CallerOf(ctx)))
}

// checkLogin returns an error if login is required and the caller is anonymous.
func checkLogin(ctx context.Context, v *fsm.View) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.CheckKnown(api.CallerOf(ctx)))
}

// readable returns an error unless the caller may read all keys in a range.
func readable(ctx context.Context, v *fsm.View, key, end string) error {
	if !v.Access.Enabled() {
		return nil
	}
	return api.Error(v.Access.Check(
		api.CallerOf(ctx), access.Read, keyrange.Range{Key: key, End: end}))
}

// allKeys returns an error if the caller is not logged in, or if it lacks the permission of the
// given kind for any of the keys.
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

// checkSee returns an error if the caller may not see a lease. It ignores leases with neither a
// name nor a principal, because the permissions for these depend on their keys.
func checkSee(ctx context.Context, v *fsm.View, of access.Lease) error {
	if !v.Access.Enabled() || of == (access.Lease{}) {
		return nil
	}
	return api.Error(v.Access.CheckLease(api.CallerOf(ctx), access.See, of))
}

// allLeases returns an error if any lease has no name and no principal, and has a key that the
// caller may not read. It checks all keys unless the caller is root.
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
