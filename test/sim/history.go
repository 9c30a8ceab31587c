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
// and clients never see it: each has its own clock. Its readings also have this type, in fields
// named local.
type Time int64

// The units of Time.
const (
	Millisecond Time = 1000
	Second           = 1000 * Millisecond
	Minute           = 60 * Second
)

// Never is later than every instant of a run.
const Never Time = 1<<63 - 1

// String formats t as in a timeline: minutes, seconds and microseconds.
func (t Time) String() string {
	return fmt.Sprintf("%02d:%02d.%06d", t/Minute, t%Minute/Second, t%Second)
}

// History is the record of a run for the checkers. The world writes it in order of true time; it is
// read after the run.
//
// Each slice is ordered by the time at which its elements were recorded: Ops by Start, the others
// by At.
type History struct {
	// Seed is the run's seed, End the instant of its end.
	Seed uint64
	End  Time
	// Drift limits how far a clock's rate may be from that of true time, as a fraction, and Margin
	// is what a holder subtracts as well. InBound means that all clocks kept to the bound;
	// otherwise L1 and L4 are not promised.
	Drift   float64
	Margin  Time
	InBound bool

	// Ops has all operations of clients.
	Ops []*Op
	// Speak holds the cluster versions that the founders support.
	Speak map[uint64]version.Range
	// Log is the replicated log as far as any member has applied it: Log[i] is the entry at index
	// firstIndex+i. It is a violation if members disagree (see Broken).
	Log []*Entry
	// Applied records which member applied what, and when.
	Applied []Applied
	// Roles records who led, and when.
	Roles []Role
	// Jumps records clock jumps.
	Jumps []Jump
	// Restarts records when members started and stopped.
	Restarts []Restart
	// Hashes has hashes of members' states (S3).
	Hashes []Hash
	// Beliefs records what holders believed they held, and how long (L1, L4).
	Beliefs []*Belief
	// Watches has the clients' watches, and Deliveries what they received (W1).
	Watches    []*Watch
	Deliveries []Delivery
	// Waits has the clients' waits in wait queues, with their notices (Q1).
	Waits []*Wait
	// Faults has the injected faults.
	Faults []Fault
	// Healthy has the stretches without faults (L2, L7), in order. A stretch begins when the last
	// fault is healed, so the cluster may still have to elect a leader.
	Healthy []Stretch
	// Broken has the violations that the world itself detected.
	Broken []Violation
}

// firstIndex is the index of Log's first entry: founders begin with a snapshot
// at index 1.
const firstIndex = 2

// opKind is the kind of an operation.
type opKind uint8

// The kinds of operation.
const (
	// opCommand is an fsm.Command through the log: Request.Command, Answer.Fsm.
	opCommand opKind = iota
	// opRange is a range of keys: Request.Range, Answer.Range.
	opRange
	// opRenew renews a lease: Request.Lease, Answer.TTL; Err lease.ErrNotFound is an
	// answer, not a failure.
	opRenew
	// opTTL requests the remaining time of a lease: Request.Lease, Answer.TTL, Answer.Found and
	// Answer.Token.
	opTTL
	// opEvents reads lease events: Request.After, Answer.Events and Answer.Last; Err
	// fsm.ErrEventsCompacted is an answer.
	opEvents
	// opGroups renews groups of leases and removes leases from them: Request.Groups.
	opGroups
	// opCached is a range read from a cache: like opRange, except for the revision, which may be
	// any since the last change in the range.
	opCached
)

// Request is an operation's request. Commands must not be changed.
type Request struct {
	Command fsm.Command
	Range   *fsm.Range
	Lease   lease.ID
	// Groups is a keeper's request about groups. A renewal that goes through a relay has one.
	Groups *renewedGroups
	// Token is the lease's token as its holder knows it, 0 for any.
	Token lease.Token
	// After is the number of the last event that the client has received.
	After uint64
	// If Cache is set, the client wants to cache the result.
	Cache *replica.Fill
	// Serializable reads the member's state without a confirm round.
	Serializable bool
}

// Answer is the answer to an operation.
type Answer struct {
	Fsm   fsm.Result
	Range *mvcc.RangeResult
	TTL   lease.TTL
	Found bool
	Token lease.Token
	// CacheTerm is the term in which the result may be cached, 0 for none.
	CacheTerm uint64
	// Last is the number of the last event that the member had.
	Last   uint64
	Events []fsm.LeaseEvent
	// News is the state of the ticket with which the operation then waits; nil if it does not wait.
	News *waitqueue.News
}

// Op is one operation of a client.
//
// It has one of three outcomes. Done: Answer has the answer (for a command, that includes an error
// in Answer.Fsm.Err). Failed: Err is the reason, and the request certainly had and will have no
// effect. Unknown: the client got no answer, and the request may take effect at any time after
// Start, even after End, or never.
type Op struct {
	// ID is the operation's index in History.Ops.
	ID     int
	Client int
	// Member is the member to which the client sent the request.
	Member uint64
	Kind   opKind
	// Caller is the authenticated caller; zero if no permission is needed. AsOf is the index that
	// the member had applied when it checked the permission; 0 if it did not.
	Caller access.Caller
	AsOf   uint64
	Request
	Answer
	Outcome Ending
	Err     error
	// Start is when the client sent the request, End when it got the answer or gave up (Never if
	// the run ended first); Answered is when the member sent the answer, or 0.
	Start, End, Answered Time
	// LocalStart is Start by the client's clock.
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

// Entry is one entry of the replicated log, with its effects. The world applies the log once more,
// to its own state machine, which gives Results and the rest.
type Entry struct {
	Index, Term uint64
	// Member is the member that applied it first, and At is when. Taken is when that member took
	// the mail that made it apply the entry, or when a primary in the middle of a step took its
	// mail, if that is earlier. TTLs that the entry starts run from a clock reading after Taken,
	// which is before At if the member was delayed.
	At     Time
	Taken  Time
	Member uint64
	// Version is the version of its encoding, 0 if it has no commands.
	Version byte
	// Commands holds the commands of all groups, in order, and Results their outcomes. Origins has
	// the member through which each came (zero for the leader itself), and Callers its caller.
	Commands []fsm.Command
	Callers  []access.Caller
	Results  []fsm.Result
	Origins  []fsm.Origin
	// Changes has the changes of the store, one per revision.
	Changes []fsm.Change
	// Granted holds the leases that the entry created or gave a new token, Ended those that it
	// ended or whose lock delay it began, and Events its lease events.
	Granted []lease.Info
	Ended   []Ended
	Events  []fsm.LeaseEvent
	// Revision is the store's revision after the entry.
	Revision int64
}

// Ended is the end of one lease.
type Ended struct {
	lease.Info
	// Expired is false for a revocation. If Info.Delayed is set too, the lease is gone only if Gone
	// is; otherwise its lock delay has begun.
	Expired, Gone bool
	// Keys are the keys that were attached to it, sorted. Revision is the revision that deleted or
	// detached them; 0 if there were none.
	Keys     []string
	Revision int64
}

// Applied records that a member applied the entries after From up to To. If Snapshot is set, a
// snapshot at To replaced its state instead.
type Applied struct {
	At       Time
	Member   uint64
	From, To uint64
	Snapshot bool
}

// Role is the role of a member from At on.
type Role struct {
	At       Time
	Member   uint64
	Term     uint64
	Leader   uint64 // the member it considers the leader, 0 for none
	Leading  bool
	Primary  bool   // it times leases
	Index    uint64 // the index that it had applied
	Refresh  bool   // a clock jump made it give all leases their full TTL again
	Local    lease.Instant
	Removed  bool // it learned that it is no longer in the cluster
	Promoted bool // it just became primary
}

// Jump records that a member saw its clocks diverge: the remaining time of silent leases counts
// from At.
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
	// Fresh is set if the member started with an empty disk, to join.
	Fresh bool
	// Index is the index on disk at a start, or the applied index at a stop.
	Index uint64
}

// Hash is the hash of a member's state at an index. Member 0 is the world's state machine.
type Hash struct {
	At     Time
	Member uint64
	Index  uint64
	Sum    uint32
	Bytes  fsm.Bytes
}

// beliefKind is the kind of thing that a holder believes it holds.
type beliefKind uint8

const (
	// beliefLease is a lease: What is its ID in decimal. Clients never share a lease.
	beliefLease beliefKind = iota
	// beliefName is the unique name of a lease.
	beliefName
	// beliefLock is a lock by the recipe of etcd's concurrency package: What is its prefix.
	beliefLock
	// beliefRole is a won election by the same package: What is its prefix.
	beliefRole
	// beliefPermit is one of several permits of a wait queue: What is its prefix. The permit of a
	// queue with only one is a beliefLock.
	beliefPermit
)

// Belief records that a client believed that it held something from From until Until. At is when
// the belief was recorded.
//
// Until is when the client stopped or had to stop: when its clock showed valid until = t_send +
// TTL*(1-drift) - margin of the last acknowledged renewal, or earlier, when it released the thing;
// then Released is set. A client that is paused or cut off keeps its belief until then.
type Belief struct {
	At          Time
	Client      int
	Kind        beliefKind
	What        string
	Lease       lease.ID
	Token       lease.Token
	From, Until Time
	Released    bool
	// Forgotten is set if the client's process ended, and its belief with it.
	Forgotten bool
	// CreateRevision is the create revision of the lock's or role's key.
	CreateRevision int64
}

// Watch is one watch of a client at one member. A client that resumes opens a new one.
type Watch struct {
	// ID is the index in History.Watches.
	ID       int
	Client   int
	Caller   access.Caller
	Member   uint64
	At       Time
	Key, End string
	// From is the first requested revision, never 0; Resumes is the ID of the watch that this one
	// continues, -1 for none.
	From    int64
	Resumes int
	// Closed is when it ended, Never if it did not; Err is the reason, if the member gave one, such
	// as mvcc.ErrCompacted at the revision Compacted.
	Closed    Time
	Err       error
	Compacted int64
}

// Delivery is one batch of events that a client received.
type Delivery struct {
	At       Time
	Watch    int
	Revision int64 // this and earlier batches have all events up to it
	// Index is what the member had applied when it checked the permission.
	Index    uint64
	Events   []mvcc.Event
	Progress bool // the batch has no events
}

// Wait is one wait of a client in a wait queue at one member. A client that asks again starts a new
// one.
type Wait struct {
	// ID is the index in History.Waits.
	ID     int
	Client int
	Caller access.Caller
	Member uint64
	waitqueue.Ask
	// Made is the create revision of the key as known to the client, and Token the token drawn with
	// it; 0 while unknown.
	Made  int64
	Token lease.Token
	// AsOf is the revision as of which the client asked to wait, 0 before the request.
	AsOf int64
	// Notices holds the notices that the client received: the state of the ticket, then its
	// changes.
	Notices []Notice
	// Closed is when it ended, Never if it did not.
	Closed Time
}

// Notice is a notice about a ticket, and its time.
type Notice struct {
	At Time
	// Index is what the member had applied when it checked the permission.
	Index uint64
	waitqueue.News
}

// Fault is an injected fault.
type Fault struct {
	At   Time
	Kind faultKind
	// Member and Other are the affected members, 0 for none; Client is the number of a client.
	Member, Other uint64
	Client        int
	Until         Time // when it ends on its own, if known
}

// Stretch is a stretch of time.
type Stretch struct{ From, To Time }

// Violation is a broken invariant, by its ID in docs/design.md, with a description.
type Violation struct {
	At   Time
	ID   string
	What string
}

// String describes a wait for a violation.
func (t *Wait) String() string {
	return fmt.Sprintf("wait %d of client %d at member %d (%s of revision %d, permits %d, skips %t)",
		t.ID, t.Client, t.Member, t.Key, t.Made, t.Permits, t.Skips)
}
