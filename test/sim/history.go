package sim

import (
	"fmt"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// Time is an instant of the world's true time, in microseconds since the start of the run. Members
// and clients never see true time, because each has its own clock. Clock readings also have this
// type, in fields named local.
type Time int64

// The units of Time.
const (
	Millisecond Time = 1000
	Second           = 1000 * Millisecond
	Minute           = 60 * Second
)

// Never is later than any instant of a run.
const Never Time = 1<<63 - 1

// String formats t as in a timeline, in minutes, seconds and microseconds.
func (t Time) String() string {
	return fmt.Sprintf("%02d:%02d.%06d", t/Minute, t%Minute/Second, t%Second)
}

// History is the record of a run, for use by the checkers. The world appends to it in order of true
// time, and it is read after the run.
//
// Each slice is ordered by the time at which its elements were recorded: Ops by Start, all others
// by At.
type History struct {
	// Seed is the run's seed. End is the instant at which the run ended.
	Seed uint64
	End  Time
	// Drift limits how much two clocks may differ in rate, as a fraction. Margin is what holders
	// subtract in addition. InBound is set if all clocks stayed within the bound; otherwise L1 and
	// L4 are not promised.
	Drift   float64
	Margin  Time
	InBound bool

	// Ops holds all client operations.
	Ops []*Op
	// Speak maps each founder to the cluster versions that it supports.
	Speak map[uint64]version.Range
	// Log is the replicated log up to the last entry that any member has applied. Log[i] is the
	// entry at index firstIndex+i. If members disagree, that is a violation (see Broken).
	Log []*Entry
	// Applied records which member applied which entries, and when.
	Applied []Applied
	// Roles records which members led, and when.
	Roles []Role
	// Jumps records clock jumps.
	Jumps []Jump
	// Restarts records when members started and stopped.
	Restarts []Restart
	// Hashes holds the hashes of members' states (S3).
	Hashes []Hash
	// Beliefs records what holders believed they held, and for how long (L1, L4).
	Beliefs []*Belief
	// Watches holds the clients' watches, and Deliveries the batches they received (W1).
	Watches    []*Watch
	Deliveries []Delivery
	// Waits holds the clients' waits in wait queues, with their notices (Q1).
	Waits []*Wait
	// Faults holds the injected faults.
	Faults []Fault
	// Healthy holds the stretches without faults (L2, L7), in order. A stretch begins when the last
	// fault is healed, so the cluster may not have a leader yet.
	Healthy []Stretch
	// Broken holds the violations detected by the world itself.
	Broken []Violation
}

// firstIndex is the index of Log's first entry. It is 2 because founders start from a snapshot at
// index 1.
const firstIndex = 2

// opKind is the kind of an operation.
type opKind uint8

// The kinds of operation.
const (
	// opCommand sends an fsm.Command through the log. It uses Request.Command and Answer.Fsm.
	opCommand opKind = iota
	// opRange reads a range of keys. It uses Request.Range and Answer.Range.
	opRange
	// opRenew renews a lease. It uses Request.Lease and Answer.TTL. The error lease.ErrNotFound is
	// an answer, not a failure.
	opRenew
	// opTTL requests the remaining time of a lease. It uses Request.Lease, Answer.TTL, Answer.Found
	// and Answer.Token.
	opTTL
	// opEvents reads lease events. It uses Request.After, Answer.Events and Answer.Last. The error
	// fsm.ErrEventsCompacted is an answer.
	opEvents
	// opGroups renews groups of leases and removes leases from groups. It uses Request.Groups.
	opGroups
	// opCached reads a range from a cache. It is like opRange, but the returned revision can be any
	// revision since the last change in the range.
	opCached
)

// Request is the request of an operation. Commands must not be modified.
type Request struct {
	Command fsm.Command
	Range   *fsm.Range
	Lease   lease.ID
	// Groups is a keeper's request concerning groups. It is also set for a renewal through a relay.
	Groups *renewedGroups
	// Token is the lease's token as known to its holder, or 0 for any token.
	Token lease.Token
	// After is the number of the last event received by the client.
	After uint64
	// Cache is set if the client wants to cache the result.
	Cache *replica.Fill
	// Serializable means reading the member's state without a confirm round.
	Serializable bool
}

// Answer is the answer to an operation.
type Answer struct {
	Fsm   fsm.Result
	Range *mvcc.RangeResult
	TTL   lease.TTL
	Found bool
	Token lease.Token
	// CacheTerm is the term in which the result may be cached, or 0 if it may not be cached.
	CacheTerm uint64
	// Last is the number of the member's last event.
	Last   uint64
	Events []fsm.LeaseEvent
	// News is the state of the ticket that the operation waits for afterward, or nil.
	News *waitqueue.News
}

// Op is one operation of a client. It has one of three outcomes:
//
//   - Done: Answer contains the answer. For a command, this may be an error in Answer.Fsm.Err.
//   - Failed: Err is the reason. The request certainly had no effect and never will.
//   - Unknown: the client received no answer. The request may take effect at any time after Start,
//     even after End, or never.
type Op struct {
	// ID is the operation's index in History.Ops.
	ID     int
	Client int
	// Member is the member to which the client sent the request.
	Member uint64
	Kind   opKind
	// Caller is the authenticated caller, or zero if no permission is needed. AsOf is the member's
	// applied index when it checked the permission, or 0 if it did not.
	Caller access.Caller
	AsOf   uint64
	Request
	Answer
	Outcome Ending
	Err     error
	// Start is when the client sent the request. End is when it received the answer or gave up, or
	// Never if the run ended first. Answered is when the member sent the answer, or 0.
	Start, End, Answered Time
	// LocalStart is Start on the client's clock.
	LocalStart Time
}

// Ending is how an operation ended.
type Ending uint8

// The endings.
const (
	Unknown Ending = iota
	Done
	Failed
)

// Entry is one entry of the replicated log, with its effects. The world also applies the log to its
// own state machine, which produces Results and the fields after it.
type Entry struct {
	Index, Term uint64
	// Member is the first member to apply the entry, and At is when it did. Taken is when that
	// member took the mail that made it apply the entry. If a primary was in the middle of a step
	// and had taken the mail for it even earlier, Taken is that time. The TTLs that the entry
	// starts count from a clock reading between Taken and At.
	At     Time
	Taken  Time
	Member uint64
	// Version is the version of the entry's encoding, or 0 if it has no commands.
	Version byte
	// Commands holds the commands of all groups, in order, and Results their outcomes. Origins
	// holds the member that forwarded each command, or zero if no other member forwarded it to the
	// leader. Callers holds the caller of each command.
	Commands []fsm.Command
	Callers  []access.Caller
	Results  []fsm.Result
	Origins  []fsm.Origin
	// Changes holds the changes to the store, one per revision.
	Changes []fsm.Change
	// Granted holds the leases that the entry created or assigned a new token. Ended holds the
	// leases that it ended or whose lock delay it started. Events holds its lease events.
	Granted []lease.Info
	Ended   []Ended
	Events  []fsm.LeaseEvent
	// Revision is the store's revision after the entry.
	Revision int64
}

// Ended is the end of one lease.
type Ended struct {
	lease.Info
	// Expired is false for a revocation. A lease that expired with Info.Delayed set is gone only if
	// Gone is set; otherwise its lock delay has begun.
	Expired, Gone bool
	// Keys holds the keys that were attached to the lease, sorted. Revision is the revision in
	// which they were deleted or detached, or 0 if there were none.
	Keys     []string
	Revision int64
}

// Applied records that a member applied the entries after From up to and including To. If Snapshot
// is set, the member replaced its state with a snapshot at To instead.
type Applied struct {
	At       Time
	Member   uint64
	From, To uint64
	Snapshot bool
}

// Role is the role of a member, starting at At.
type Role struct {
	At       Time
	Member   uint64
	Term     uint64
	Leader   uint64 // the leader according to this member, or 0
	Leading  bool
	Primary  bool   // the member times leases
	Index    uint64 // the member's applied index
	Refresh  bool   // the member restored the full TTL of all leases after a clock jump
	Local    lease.Instant
	Removed  bool // the member detected its removal from the cluster
	Promoted bool // the member has just become primary
}

// Jump records that a member observed its clocks diverging. The remaining time of silent leases
// counts from At.
type Jump struct {
	At     Time
	Member uint64
}

// Restart records that a member started or stopped.
type Restart struct {
	At     Time
	Member uint64
	Up     bool
	// Crash distinguishes a crash, which loses unsynced writes, from a clean stop.
	Crash bool
	// Fresh is set if the member started with an empty disk in order to join.
	Fresh bool
	// Index is the index on disk for a start, or the applied index for a stop.
	Index uint64
}

// Hash is the hash of a member's state at an index. Member is 0 for the world's state machine.
type Hash struct {
	At     Time
	Member uint64
	Index  uint64
	Sum    uint32
	Bytes  fsm.Bytes
}

// beliefKind is the type of object that a holder believes it holds.
type beliefKind uint8

const (
	// beliefLease is a lease. What is its ID in decimal. Clients never share a lease.
	beliefLease beliefKind = iota
	// beliefName is the unique name of a lease.
	beliefName
	// beliefLock is a lock acquired by the recipe in etcd's concurrency package. What is its
	// prefix.
	beliefLock
	// beliefRole is an election won by the recipe in the same package. What is its prefix.
	beliefRole
	// beliefPermit is one of several permits of a wait queue. What is the queue's prefix. If a
	// queue has only one permit, beliefLock is used instead.
	beliefPermit
)

// Belief records that a client believed that it held something from From until Until. At is when
// the belief was recorded.
//
// Until is when the client stopped or had to stop. The client has to stop when its clock reaches
// the end of the validity from its last acknowledged renewal, t_send + TTL*(1-drift) - margin. If
// the client released the object earlier, Until is the time of the release, and Released is set. A
// client that is paused or cut off keeps its belief until then.
type Belief struct {
	At          Time
	Client      int
	Kind        beliefKind
	What        string
	Lease       lease.ID
	Token       lease.Token
	From, Until Time
	Released    bool
	// Forgotten is set if the belief ended because the client's process ended.
	Forgotten bool
	// CreateRevision is the create revision of the lock's or role's key.
	CreateRevision int64
}

// Watch is one watch of a client at one member. A client that resumes watching opens another Watch.
type Watch struct {
	// ID is the index in History.Watches.
	ID       int
	Client   int
	Caller   access.Caller
	Member   uint64
	At       Time
	Key, End string
	// From is the first requested revision, never 0. Resumes is the ID of the watch that this one
	// resumes, or -1.
	From    int64
	Resumes int
	// Closed is when the watch ended, or Never. Err is the reason if the member sent one, such as
	// mvcc.ErrCompacted. In that case, Compacted is the compacted revision.
	Closed    Time
	Err       error
	Compacted int64
}

// Delivery is one batch of events that a client received.
type Delivery struct {
	At       Time
	Watch    int
	Revision int64 // this and earlier batches contain all events up to this revision
	// Index is the member's applied index when it checked the permission.
	Index    uint64
	Events   []mvcc.Event
	Progress bool // the batch contains no events
}

// Wait is one wait of a client in a wait queue at one member. If the client asks again, that is
// another Wait.
type Wait struct {
	// ID is the index in History.Waits.
	ID     int
	Client int
	Caller access.Caller
	Member uint64
	waitqueue.Ask
	// Made is the create revision of the key as known to the client. Token is the token drawn
	// together with it. Both are 0 while unknown.
	Made  int64
	Token lease.Token
	// AsOf is the revision in the client's request to wait, or 0 before the request.
	AsOf int64
	// Notices holds the notices received by the client: first the state of the ticket, then its
	// changes.
	Notices []Notice
	// Closed is when the wait ended, or Never.
	Closed Time
}

// Notice is a notice about a ticket and when it arrived.
type Notice struct {
	At Time
	// Index is the member's applied index when it checked the permission.
	Index uint64
	waitqueue.News
}

// Fault is an injected fault.
type Fault struct {
	At   Time
	Kind faultKind
	// Member and Other are the affected members, or 0. Client is the number of a client.
	Member, Other uint64
	Client        int
	Until         Time // when the fault ends on its own, if known
}

// Stretch is an interval of time.
type Stretch struct{ From, To Time }

// Violation is a broken invariant, identified by its ID in docs/design.md, with a description.
type Violation struct {
	At   Time
	ID   string
	What string
}

// String describes a wait for a violation report.
func (t *Wait) String() string {
	return fmt.Sprintf("wait %d of client %d at member %d (%s of revision %d, permits %d, skips %t)",
		t.ID, t.Client, t.Member, t.Key, t.Made, t.Permits, t.Skips)
}
