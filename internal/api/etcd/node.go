package etcd

import (
	"context"
	"io"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Reader reads the keys and what is known of the cluster.
type Reader interface {
	// Confirm returns once a View taken afterwards is no older than any write
	// that was acknowledged before the call.
	Confirm(ctx context.Context) error
	// View returns the newest applied state.
	View() *fsm.View
}

// Inspector reads leases, linearizably.
type Inspector interface {
	// Inspect calls f on the goroutine that owns the lessor: f must be quick,
	// must not block, and must copy what it takes out.
	Inspect(ctx context.Context, f func(*lease.Lessor)) error
	// InspectHere is Inspect of the state that this member has, as of an index of the log. It waits
	// for no other.
	InspectHere(ctx context.Context, f func(l *lease.Lessor, index uint64)) error
	// InspectLease is Inspect with what the leader says of one lease: how long it
	// will certainly live on, and whether it is there at all. Only the leader knows
	// that. What f sees of the rest is this member's state, which is as new or newer.
	InspectLease(
		ctx context.Context, id lease.ID, f func(l *lease.Lessor, left lease.TTL, ok bool),
	) error
}

// Renewer renews leases.
type Renewer interface {
	// Renew returns at once, and to is called exactly once, possibly before
	// Renew returns. An error of Renew means that to is never called.
	Renew(id lease.ID, to api.Renewed) error
	// Abandon says that the client that renewed these leases is gone: its stream has ended.
	Abandon(ids []lease.ID)
}

// Reporter tells how the member is.
type Reporter interface {
	// Status is cheap enough for every connection, not for every request.
	Status() Status
	// Alarms returns the alarms of the cluster, and NoSpace of this member while its disk is full.
	Alarms() []fsm.Alarm
}

// Maintainer looks after what is on disk.
type Maintainer interface {
	// SnapshotTo writes a snapshot of the applied state.
	SnapshotTo(ctx context.Context, w io.Writer) error
	// Defragment gives space back to the file system.
	Defragment(ctx context.Context) error
}

// Transferrer hands over the leadership.
type Transferrer interface {
	// MoveLeader returns when the member target leads. It is for the leader alone,
	// on any other member the error is replica.ErrNoLeader.
	MoveLeader(ctx context.Context, target uint64) error
}

// Logins establish who users are, slowly on purpose, and with bounded work at a time.
type Logins interface {
	// LogIn returns a token for a user with a password. Its error is login.ErrRefused,
	// access.ErrNotEnabled, or one that says why it could not be found out.
	LogIn(ctx context.Context, user, password string) (token string, err error)
	// HashPassword returns the hash of a new password.
	HashPassword(ctx context.Context, password string) ([]byte, error)
}

// Node is the member that the services speak for. It is safe for concurrent
// use.
type Node interface {
	api.Proposer
	Reader
	Inspector
	Renewer
	api.Watchable
	api.Guarded
	Reporter
	Maintainer
	Transferrer
	Logins
}

// Status is how a member sees itself and its cluster.
type Status struct {
	// MemberID and ClusterID never change while the member runs.
	MemberID, ClusterID uint64
	// Leader is the leader's member ID, 0 if none is known.
	Leader uint64
	// Term is the Raft term; Index the committed and Applied the applied index.
	Term, Index, Applied uint64
	// DBSize is what the data takes, DBSizeInUse what of it is live, Quota what it
	// may grow to, all in bytes.
	DBSize, DBSizeInUse, Quota int64
	// StorageVersion is the newest cluster version of what is on the member's disk, as a semantic
	// version: a release that speaks it can start on the data.
	StorageVersion string
	// Learner says that the member does not vote.
	Learner bool
	// Errors are the reasons why the member is not well, but for alarms and the
	// want of a leader, which are seen elsewhere: each a report of package cause.
	Errors []string
}
