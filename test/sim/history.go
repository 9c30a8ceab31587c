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

// Time is an instant of the world's true time, in microseconds since the run
// began. No member and no client ever sees it: each has a clock of its own, whose
// readings are of this type too where they are named local.
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

// History is all that happened in a run, for the checkers. It is written by
// the world, in order of true time, and read when the run has ended.
//
// Each slice is ordered by the time at which its elements were recorded: Ops by
// Start, the others by At.
type History struct {
	// Seed is the run's, and End when it ended.
	Seed uint64
	End  Time
	// Drift bounds how far a clock's rate may be from that of true time, in parts
	// of one, and Margin is what a holder gives away on top of it. InBound says that all
	// clocks of the run kept to the bound: beyond it L1 and L4 are not promised.
	Drift   float64
	Margin  Time
	InBound bool

	// Ops are all operations of clients.
	Ops []*Op
	// Speak are the cluster versions that the founders speak.
	Speak map[uint64]version.Range
	// Log is the replicated log as far as any member has applied it: Log[i] is the
	// entry at index firstIndex+i. It is the same for all members, or the run has
	// found a violation (see Broken).
	Log []*Entry
	// Applied tells which member applied what, and when.
	Applied []Applied
	// Roles tells who led, and when.
	Roles []Role
	// Jumps tells when clocks jumped.
	Jumps []Jump
	// Restarts tells when members started and stopped.
	Restarts []Restart
	// Hashes are hashes of members' states (S3).
	Hashes []Hash
	// Beliefs are what holders were sure to hold, and how long (L1, L4).
	Beliefs []*Belief
	// Watches are the watchers of clients, and Deliveries what they were told (W1).
	Watches    []*Watch
	Deliveries []Delivery
	// Waits are the waits of clients in wait queues, and what they were told (Q1).
	Waits []*Wait
	// Faults are those that were injected.
	Faults []Fault
	// Healthy are the stretches without faults (L2, L7), in order. A stretch begins
	// when the last fault is healed: the cluster may still need to elect a leader.
	Healthy []Stretch
	// Broken are violations that the world itself saw, as they happened.
	Broken []Violation
}

// firstIndex is the index of Log's first entry: founders begin with a snapshot
// at index 1.
const firstIndex = 2

// opKind says what a client asked.
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
	// opTTL asks how long a lease has left: Request.Lease, Answer.TTL, Answer.Found and
	// Answer.Token.
	opTTL
	// opEvents reads events of leases: Request.After, Answer.Events and Answer.Last; Err
	// fsm.ErrEventsCompacted is an answer.
	opEvents
	// opGroups renews groups of leases, and has leases leave them: Request.Groups.
	opGroups
	// opCached is a range of keys as a cache had it: as opRange, but for the revision, which
	// may be of any time since which the range has not changed.
	opCached
)

// Request is what an operation asked. Commands must not be changed.
type Request struct {
	Command fsm.Command
	Range   *fsm.Range
	Lease   lease.ID
	// Groups are what a keeper asks about its groups, and what it is told. A renewal has them that
	// goes through a relay.
	Groups *renewedGroups
	// Token is the lease's as its holder knows it, 0 for any.
	Token lease.Token
	// After is the number of the last event that the client knows.
	After uint64
	// Cache asks that what is read may be cached.
	Cache *replica.Fill
	// Serializable reads take what the member has, without a confirm round.
	Serializable bool
}

// Answer is the answer to an operation.
type Answer struct {
	Fsm   fsm.Result
	Range *mvcc.RangeResult
	TTL   lease.TTL
	Found bool
	Token lease.Token
	// CacheTerm is the term in which what was read may be cached, 0 for none.
	CacheTerm uint64
	// Last is the number of the last event that the member knew.
	Last   uint64
	Events []fsm.LeaseEvent
	// News is the state of the ticket with which the operation was to wait, nil if it
	// does not wait.
	News *waitqueue.News
}

// Op is one operation of a client.
//
// Its outcome is one of three. Done: Answer is the answer (for a command, an
// error of the state machine's is in Answer.Fsm.Err and is an answer too). Failed:
// Err says why, and it is certain that nothing was or will be done. Unknown: the
// client has no answer, and what it asked may take effect at any time after
// Start, even after End, or never.
type Op struct {
	// ID is the operation's index in History.Ops.
	ID     int
	Client int
	// Member is whom the client asked.
	Member uint64
	Kind   opKind
	// Caller is who asked, as the member knew it; zero where nobody needs a right. AsOf is what the
	// member had applied when it decided whether the caller may be told, or may renew; 0 if it was
	// not asked.
	Caller access.Caller
	AsOf   uint64
	Request
	Answer
	Outcome Ending
	Err     error
	// Start is when the client sent, End when it had the answer or gave up (Never if
	// the run ended first); Answered is when the member gave the answer, on the
	// way to the client, or 0.
	Start, End, Answered Time
	// LocalStart is Start by the client's own clock.
	LocalStart Time
}

// Ending says how an operation ended.
type Ending uint8

// The endings.
const (
	Unknown Ending = iota
	Done
	Failed
)

// Entry is one entry of the replicated log, with what came of it. The world
// applies the log once more, to a state machine of its own, as members apply it;
// Results and all else are what that one said.
type Entry struct {
	Index, Term uint64
	// At is when a member applied it first, and Member which. Taken is when that member took
	// the mail because of which it did, or a primary in the middle of a step the mail of that, if
	// it did so earlier: TTLs that the entry begins run from a reading of the clock after that,
	// which is before At if the member was held up in between.
	At     Time
	Taken  Time
	Member uint64
	// Version is that of its encoding, 0 if it has no commands.
	Version byte
	// Commands are those of all groups, in order, and Results their outcomes;
	// Origins says through which member each came (zero for the leader itself).
	// Callers for whom.
	Commands []fsm.Command
	Callers  []access.Caller
	Results  []fsm.Result
	Origins  []fsm.Origin
	// Changes are the changes of the store, one a revision.
	Changes []fsm.Change
	// Granted are the leases that the entry made, or gave a new token; Ended those that it
	// ended, or whose lock delay it began; Events is what it said of leases.
	Granted []lease.Info
	Ended   []Ended
	Events  []fsm.LeaseEvent
	// Revision is the store's after the entry.
	Revision int64
}

// Ended is the end of one lease.
type Ended struct {
	lease.Info
	// Expired tells an expiry from a revocation. If Info.Delayed is set too, the lease
	// is gone now only if Gone is: otherwise its lock delay has begun.
	Expired, Gone bool
	// Keys were attached to it then, sorted; Revision deleted them or let them go, 0 if
	// there were none.
	Keys     []string
	Revision int64
}

// Applied says that a member applied the entries up to and including To; it
// had applied those up to From. If Snapshot, it did not: a snapshot at To took
// the place of its state.
type Applied struct {
	At       Time
	Member   uint64
	From, To uint64
	Snapshot bool
}

// Role says what part a member plays from At on.
type Role struct {
	At       Time
	Member   uint64
	Term     uint64
	Leader   uint64 // whom it takes for the leader, 0 for none
	Leading  bool
	Primary  bool   // it times leases
	Index    uint64 // it had applied
	Refresh  bool   // it gave all leases their full TTL again, because its clock jumped
	Local    lease.Instant
	Removed  bool // it learned that it is no longer in the cluster
	Promoted bool // it has just become primary
}

// Jump says that a member saw its clocks part: what remained of silent leases counts from At on.
type Jump struct {
	At     Time
	Member uint64
}

// Restart says that a member started or stopped.
type Restart struct {
	At     Time
	Member uint64
	Up     bool
	// Crash tells a crash, which loses what was not synced, from a clean stop.
	Crash bool
	// Fresh says that the member started with an empty disk: a joiner.
	Fresh bool
	// Index is what it has (on disk at a start, applied at a stop).
	Index uint64
}

// Hash is the hash of a member's whole state at an index. Member 0 is the
// world's own state machine.
type Hash struct {
	At     Time
	Member uint64
	Index  uint64
	Sum    uint32
	Bytes  fsm.Bytes
}

// beliefKind says what a holder believes to hold.
type beliefKind uint8

// The kinds of belief.
const (
	// beliefLease is a lease: What is its ID in decimal. Several clients never share one.
	beliefLease beliefKind = iota
	// beliefName is the unique name of a lease.
	beliefName
	// beliefLock is a lock by the recipe of etcd's concurrency package: What is its prefix.
	beliefLock
	// beliefRole is an election won, by the same: What is its prefix.
	beliefRole
	// beliefPermit is one of several permits of a wait queue: What is its
	// prefix. The only permit of a wait queue is a beliefLock.
	beliefPermit
)

// Belief says that a client was sure to hold something from From until Until. At is
// when it began.
//
// Until is where the client stopped, or had to stop: the instant at which its own
// clock showed valid until = t_send + TTL*(1-drift) - margin of the last acknowledged
// renewal, or before it, when the client gave the thing up: then Released is set. A
// client that was stopped or cut off goes on believing until then.
type Belief struct {
	At          Time
	Client      int
	Kind        beliefKind
	What        string
	Lease       lease.ID
	Token       lease.Token
	From, Until Time
	Released    bool
	// Forgotten says that the client's process ended, and its belief with it.
	Forgotten bool
	// CreateRevision is that of the lock's or role's key.
	CreateRevision int64
}

// Watch is one watcher of one client at one member. A client that resumes
// makes a new one.
type Watch struct {
	// ID is the index in History.Watches.
	ID       int
	Client   int
	Caller   access.Caller
	Member   uint64
	At       Time
	Key, End string
	// From is the first revision asked for, never 0; Resumes is the ID of the
	// watch that this one goes on from, -1 for none.
	From    int64
	Resumes int
	// Closed is when it ended, Never if it did not; Err is why, if the member said
	// so: mvcc.ErrCompacted, say, at the revision Compacted.
	Closed    Time
	Err       error
	Compacted int64
}

// Delivery is one batch of events that a client has received.
type Delivery struct {
	At       Time
	Watch    int
	Revision int64 // all events up to it were delivered with this batch or before
	// Index is what the member had applied when it decided that the client may be told.
	Index    uint64
	Events   []mvcc.Event
	Progress bool // the batch says no more than that
}

// Wait is one wait of a client in a wait queue at one member. A client that asks again
// makes a new one.
type Wait struct {
	// ID is the index in History.Waits.
	ID     int
	Client int
	Caller access.Caller
	Member uint64
	waitqueue.Ask
	// Made is the create revision of the key as the client knows it, and Token what was drawn with
	// it; 0 as long as it does not know.
	Made  int64
	Token lease.Token
	// AsOf is the revision as of which the member was asked, 0 until it was.
	AsOf int64
	// Notices is what the client was notified of: the state of the ticket, then its changes.
	Notices []Notice
	// Closed is when it ended, Never if it did not.
	Closed Time
}

// Notice is what a client was told of a ticket, and when.
type Notice struct {
	At Time
	// Index is what the member had applied when it decided that the client may be told.
	Index uint64
	waitqueue.News
}

// Fault is one fault that was injected.
type Fault struct {
	At   Time
	Kind faultKind
	// Member and Other are whom it struck, 0 for none; a client's number is in Client.
	Member, Other uint64
	Client        int
	Until         Time // when it ends by itself, if known
}

// Stretch is a stretch of time.
type Stretch struct{ From, To Time }

// Violation is a broken invariant: its ID in docs/design.md, and what was seen.
type Violation struct {
	At   Time
	ID   string
	What string
}

// String names a wait in a violation.
func (t *Wait) String() string {
	return fmt.Sprintf("wait %d of client %d at member %d (%s of revision %d, permits %d, skips %t)",
		t.ID, t.Client, t.Member, t.Key, t.Made, t.Permits, t.Skips)
}
