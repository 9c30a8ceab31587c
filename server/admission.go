package server

import (
	"context"
	"fmt"
	"slices"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// admit rejects commands that could not be applied now. They would only wait, or waste log space.
// On a full disk, it first rejects all commands except those that free space. Eventually, it
// rejects those as well, because the rest of the disk is reserved for the expiry of leases. A
// follower with a full disk still forwards writes as long as it has a reserve, because it receives
// the entries no matter which member the client calls.
func (n *node) admit(commands ...fsm.Command) error {
	if slices.ContainsFunc(commands, n.View().Refuses) {
		return fsm.ErrNoSpace
	}
	if !n.writer.full.Load() {
		return nil
	}
	if n.elsewhere() {
		if !n.writer.disk.HasRoomToFree() {
			return fmt.Errorf("%w: member %x", api.ErrDiskFull, n.member)
		}
		return nil
	}
	if slices.ContainsFunc(commands, grows) {
		return fmt.Errorf("%w: the disk of member %x is full", fsm.ErrNoSpace, n.member)
	}
	if !n.writer.disk.HasRoomToFree() {
		return fmt.Errorf("%w: the disk of member %x is almost full, and the remaining space is "+
			"reserved for expiring leases; free some space first", fsm.ErrNoSpace, n.member)
	}
	return nil
}

// elsewhere reports whether another member is the leader.
func (n *node) elsewhere() bool {
	leader := n.status.Load().Leader
	return leader != 0 && leader != n.member
}

// grows reports whether cmd can make the state larger.
func grows(cmd fsm.Command) bool {
	switch cmd := fsm.Inner(cmd).(type) {
	case *fsm.DeleteRange, *fsm.Revoke, *fsm.Compact, *fsm.SetAlarm, *fsm.SetLimits,
		*fsm.UserDelete, *fsm.UserRevokeRole, *fsm.RoleDelete, *fsm.RoleRevoke:
		return false
	case *fsm.Txn:
		return fsm.Growth(cmd) > 0
	default:
		return true
	}
}

// raiseNoSpace replicates the alarm after a command was rejected because it would have exceeded the
// quota. All members then reject commands that grow the state, until the state has been below the
// quota for a while.
func (n *node) raiseNoSpace(ctx context.Context) {
	v := n.View()
	if v.Full() || n.canClearAlarm() { // in the second case, the request itself is too large
		return
	}
	n.log.Warn("the state has reached its quota: raising the NOSPACE alarm until there is room; "+
		"delete keys and compact, or raise --quota-backend-bytes",
		"alarm", "NOSPACE", "quota-bytes", v.Quota, "size-bytes", v.Bytes.Sum(),
		"keys-bytes", v.Bytes.Keys, "lease-bytes", v.Bytes.Leases)
	n.alarmed.Store(true)
	alarm := fsm.Alarm{Member: n.member, Kind: fsm.NoSpace}
	if _, err := n.ProposeOwn(ctx, &fsm.SetAlarm{Alarm: alarm}); err != nil {
		n.log.Warn("cannot raise the alarm; retrying on the next rejected request",
			"alarm", "NOSPACE", "error", err)
	}
}
