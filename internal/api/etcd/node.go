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
	// Confirm returns once a View taken afterwards is no older than any write
	// that was acknowledged before the call.
	Confirm(ctx context.Context) error
	// InspectLease is Inspect with the leader's answer about one lease: how long it will certainly
	// live, and whether it exists. Only the leader knows that. Everything else that f sees is this
	// member's state, which is at least as new as that answer.
	InspectLease(
		ctx context.Context, id lease.ID, f func(l *lease.Lessor, left lease.TTL, ok bool),
	) error
	// Renew returns at once. to is called exactly once, possibly before Renew returns, unless Renew
	// returns an error. The caller has permission to renew the lease according to the users and
	// roles in by or newer ones.
	Renew(id lease.ID, by *access.State, to api.Renewed) error
	// Abandon reports that the client that renewed these leases is gone, because its stream has
	// ended.
	Abandon(ids []lease.ID)
	// Status is cheap enough for every connection, not for every request.
	Status() Status
	// Alarms returns the alarms of the cluster, and NoSpace of this member while its disk is full.
	Alarms() []fsm.Alarm
	// SnapshotTo writes a snapshot of the applied state.
	SnapshotTo(ctx context.Context, w io.Writer) error
	// Defragment returns space to the file system.
	Defragment(ctx context.Context) error
	// MoveLeader returns when the member target leads. On a member other than the leader it returns
	// replica.ErrNoLeader.
	MoveLeader(ctx context.Context, target uint64) error
	// LogIn returns a token for a user and password. Its error is login.ErrRefused,
	// access.ErrNotEnabled, or the reason why the password could not be checked. Logging in is slow
	// on purpose, and the number of concurrent checks is bounded; the same holds for HashPassword.
	LogIn(ctx context.Context, user, password string) (token string, err error)
	// HashPassword returns the hash of a new password.
	HashPassword(ctx context.Context, password string) ([]byte, error)
}

// Status is a member's view of itself and its cluster.
type Status struct {
	// MemberID and ClusterID never change while the member runs.
	MemberID, ClusterID uint64
	// Leader is the leader's member ID, 0 if none is known.
	Leader uint64
	// Term is the Raft term; Index the committed and Applied the applied index.
	Term, Index, Applied uint64
	// DBSize is the size of the data, DBSizeInUse the live part of it, and Quota the limit, all in
	// bytes.
	DBSize, DBSizeInUse, Quota int64
	// StorageVersion is the newest cluster version of any record on the member's disk, as a
	// semantic version: a release that supports it can start on the data.
	StorageVersion string
	// Learner is true if the member does not vote.
	Learner bool
	// Errors are the reasons why the member is not healthy, except for alarms and the lack of a
	// leader, which are reported elsewhere. Each is a report of package cause.
	Errors []string
}
