package etcd

import (
	"context"
	"io"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Node is the member that the services belong to. It is safe for concurrent use.
type Node interface {
	api.Node
	// Confirm returns once View is guaranteed to include every write that was acknowledged before
	// the call.
	Confirm(ctx context.Context) error
	// InspectLease is Inspect with additional data from the leader about one lease: whether it
	// exists, and the minimum time that it has left. Only the leader has this data. Everything else
	// that f sees is this member's state, which is at least as new as the leader's data.
	InspectLease(
		ctx context.Context, id lease.ID, f func(l *lease.Lessor, left lease.TTL, ok bool),
	) error
	// Renew submits a renewal without blocking. It reports the outcome exactly once, possibly
	// before it returns. If it returns an error, it does not report an outcome. The caller must be
	// permitted to renew the lease under the given users and roles, or under newer ones.
	Renew(id lease.ID, by *access.State, to api.Renewed) error
	// Abandon reports that the client renewing these leases is gone, because its stream has ended.
	Abandon(ids []lease.ID)
	// Status is cheap enough to call for every connection but not for every request.
	Status() Status
	// Alarms returns the alarms of the cluster. While this member's disk is full, they include
	// NoSpace for this member.
	Alarms() []fsm.Alarm
	// SnapshotTo writes a snapshot of the applied state.
	SnapshotTo(ctx context.Context, w io.Writer) error
	// Defragment returns space to the file system.
	Defragment(ctx context.Context) error
	// MoveLeader transfers leadership to the given member and returns once that member leads. If
	// this member is not the leader, it returns replica.ErrNoLeader.
	MoveLeader(ctx context.Context, target uint64) error
	// LogIn returns a token for a user and password. The error is login.ErrRefused,
	// access.ErrNotEnabled, or the reason why the password could not be checked. LogIn and
	// HashPassword are deliberately slow and limit the number of concurrent checks.
	LogIn(ctx context.Context, user, password string) (token string, err error)
	// HashPassword returns the hash of a new password.
	HashPassword(ctx context.Context, password string) ([]byte, error)
}

// Status is a member's view of itself and its cluster.
type Status struct {
	// MemberID and ClusterID do not change while the member is running.
	MemberID, ClusterID uint64
	// Leader is the member ID of the leader, or 0 if no leader is known.
	Leader uint64
	// Term is the Raft term. Index is the committed index, and Applied the applied index.
	Term, Index, Applied uint64
	// DBSize is the size of the data, DBSizeInUse is how much of it is live, and Quota is the
	// limit. All are in bytes.
	DBSize, DBSizeInUse, Quota int64
	// StorageVersion is the newest cluster version of any record on the member's disk, as a
	// semantic version. A release that supports this version can start with the data.
	StorageVersion string
	// Learner is true if the member is a learner, which does not vote.
	Learner bool
	// Errors lists the reasons why the member is unhealthy. Alarms and a missing leader are
	// reported elsewhere. Each entry is a report from package cause.
	Errors []string
}
