package shell

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// Do is the next action of a Shell's driver.
type Do int

// The actions of a step. A driver does each when [Shell.Next] returns it. An action without work
// in a step is left out, unless it is marked "always".
const (
	// TakeMail: take all inputs that have come, into Mail. Always.
	TakeMail Do = iota
	// ReadClock: read the clocks, and call Read. Always, and after the mail was taken, so
	// that nothing in it is newer than the reading: a renewal counts from then.
	ReadClock
	// Advance: log that every lease gets its full time again, because of Jumped or Stalled.
	Advance
	// LookAround: a heartbeat has passed; call Beat.
	LookAround
	// Feed: report what was Refused, and that Declined is not needed.
	Feed
	// Work: call Work, which may take a while. Always.
	Work
	// Ask: ask the processes of the members in Out.Ask whether they are there, over what carries
	// messages, and call the replica's Answered in a task for each that answers. They
	// answer without their cores.
	Ask
	// Send: send Out.Send.
	Send
	// Save: save Out.Append in order, without waiting for it. If Arrived is not nil, it is
	// the owner of the snapshot that one of the messages asks for.
	Save
	// Show: make View the view that all goroutines read.
	Show
	// Follow: report that the replica's status was Before and is now Status.
	Follow
	// Publish: tell watchers of Out.Changes, which the view shows already.
	Publish
	// Answer: answer Out.Proposals, Reads, Together, Groups and Renewals. Always. A client that is
	// answered may read at once, and what it reads must show what it was told.
	Answer
	// TellCaches: call TellCaches.
	TellCaches
	// End: stop for good, because of Err, or if that is nil because the member was removed.
	End
	// Delay: if Delayed, have Mail.DelayOver set after the commit delay; otherwise stop that.
	// Always.
	Delay
	// Shrink: make View the view that all goroutines read; only its size differs.
	Shrink
	// Sleep: wait for mail, or for Wait. Always.
	Sleep
)

// order is the order of a step.
var order = [...]Do{
	TakeMail, ReadClock, Advance, LookAround, Feed, Work, Ask,
	Send, Save, Show, Follow, Publish, Answer, TellCaches,
	End, Delay, Shrink, Sleep,
}

// scrubBudget is how many records one step cleans up after a compaction: about a hundred
// microseconds' worth.
const scrubBudget = 256

// yieldEvery is how many election timeouts pass at least between two attempts to hand over: more
// would not help if every disk is full.
const yieldEvery = 10

// Config has the parts of a Shell.
type Config struct {
	Replica *replica.Replica
	// Start is the current reading of the clocks: the shell's instants begin here.
	Start Reading
	// Heartbeat is the length of Raft's tick, Election the shortest election timeout, both
	// in milliseconds.
	Heartbeat, Election lease.TTL
}

// Shell is the shell of one member: see the package's comment. The driver reads the exported
// fields when Next has returned an action that names them, and sets Mail.
type Shell struct {
	Mail Mail
	Now  lease.Instant // of the last reading
	Out  replica.Output
	View *fsm.View

	Jumped, Stalled bool
	Refused         []Refusal
	Declined        []Declined
	Arrived         any
	Before, Status  replica.Status
	Err             error
	Delayed         bool
	Wait            lease.TTL

	r      *replica.Replica
	clock  clock
	pace   pace
	caches caches
	dirty  bool // the store may hold records that compaction has freed
	at     int  // the place of the next action in order
}

// pace has the times of a member's periodic and delayed work, and whether it may lead.
type pace struct {
	heartbeat, election lease.Instant
	next                lease.Instant // of Raft's ticks
	last                lease.Instant // the step before
	mayYield            lease.Instant
	stuck               bool // at the last heartbeat this member's disk took no log entries
}

// New returns the shell of a replica that has done nothing yet.
func New(c Config) *Shell {
	return &Shell{
		r: c.Replica, clock: clock{start: c.Start}, Status: c.Replica.Status(),
		pace:   pace{heartbeat: lease.Instant(c.Heartbeat), election: lease.Instant(c.Election)},
		caches: make(caches),
	}
}

// Next returns the driver's next action. The action before must be done. After Sleep a new step
// begins; End is the last action.
func (s *Shell) Next() Do {
	for {
		if s.Err != nil {
			return End
		}
		do := order[s.at]
		s.at = (s.at + 1) % len(order)
		if s.begin(do) {
			return do
		}
	}
}

// begin does the shell's own part of an action, and reports whether the driver has a part as
// well.
func (s *Shell) begin(do Do) bool {
	switch do {
	case Advance:
		return s.advance()
	case LookAround:
		return s.Now >= s.pace.next
	case Feed:
		return s.feed()
	case Send:
		return len(s.Out.Send) > 0
	case Ask:
		return len(s.Out.Ask) > 0
	case Save:
		return len(s.Out.Append) > 0
	case Show:
		s.Arrived = nil // Save has it
		if s.Out.Applied {
			s.View = s.r.Machine().View()
		}
		return s.Out.Applied
	case Follow:
		s.Before, s.Status = s.Status, s.r.Status()
		return s.Before != s.Status
	case Publish: // after a restore the hub was told of a state that shows the changes, too
		return len(s.Out.Changes) > 0 && !s.Out.Restored
	case TellCaches:
		return len(s.Out.Opened)+len(s.Out.Invalidations) > 0 ||
			s.Before.Leader != s.Status.Leader || s.Before.Term != s.Status.Term
	case End:
		return s.Out.Removed
	case Delay:
		s.Delayed = s.r.Delayed()
	case Shrink:
		return s.scrub()
	case Sleep:
		s.Wait = s.sleep()
	}
	return true
}

// Read takes a reading of the clocks.
func (s *Shell) Read(r Reading) { s.Now, s.Jumped = s.clock.read(r) }

// Epoch returns the boot time at which the instants begin. Read may change it.
func (s *Shell) Epoch() lease.Instant { return s.clock.start.Boot }

// advance moves the replica's clock. A member that did nothing for as long as an election takes
// was stopped or starved. Holders could not renew meanwhile, through no fault of theirs (T1), so
// leases get their full time again, as after a sleep. After a sleep it is unknown how much time
// has passed: then silent leases get their remaining time again.
func (s *Shell) advance() bool {
	s.r.Advance(s.Now)
	s.Stalled = s.Now-s.pace.last > s.pace.election
	s.pace.last = s.Now
	if s.Jumped {
		s.r.Recount()
	}
	if s.Jumped || s.Stalled {
		s.r.Refresh()
		return true
	}
	return false
}

// Around is what a member sees at a heartbeat.
type Around struct {
	// Assembled says that Raft may tick: the member does not wait for other members to start.
	Assembled bool
	// DiskStuck says that the member's disk does not accept log entries.
	DiskStuck bool
}

// Beat is called once a heartbeat. It reports whether the leadership is being handed over because
// this member's disk does not accept log entries: a leader applies only what is on its own disk,
// so all clients would wait (T1). If no other member can lead, it stays leader.
func (s *Shell) Beat(a Around) (yields bool) {
	s.pace.next = s.Now + s.pace.heartbeat
	s.dirty, s.pace.stuck = true, a.DiskStuck
	if a.Assembled {
		s.r.Tick()
	}
	if !s.Status.Leading || s.Now < s.pace.mayYield || !a.DiskStuck {
		return false
	}
	if !s.r.Yield() {
		return false // try again at the next heartbeat: a follower may connect
	}
	s.pace.mayYield = s.Now + yieldEvery*s.pace.election
	return true
}

// feed gives the inputs to the replica. Err is set if the replica cannot go on.
func (s *Shell) feed() bool {
	m := &s.Mail
	s.Refused, s.Declined = s.Refused[:0], s.Declined[:0]
	if m.DelayOver {
		s.r.EndDelay()
	}
	for _, f := range m.Tasks {
		f()
	}
	for _, a := range m.Arrivals {
		s.install(a)
	}
	for _, p := range m.Persisted {
		s.r.Persisted(p)
	}
	for _, msg := range m.Messages {
		if s.pace.stuck && msg.Raft.GetType() == raftpb.MsgTimeoutNow {
			continue // the leader stays and offers the lead to another member
		}
		switch err := s.r.Step(msg); {
		case errors.Is(err, replica.ErrImpossible):
			s.Err = err
			return false
		case err != nil:
			s.Refused = append(s.Refused, Refusal{msg.From, err})
		}
	}
	for _, n := range m.Renewals {
		s.r.Renew(n)
	}
	for _, r := range m.Together {
		s.r.RenewAll(r)
	}
	s.r.Abandon(m.Abandoned)
	for _, by := range m.Ended {
		s.r.EndKeeper(by)
	}
	for i := range m.Caches {
		s.caches.says(s.r, &m.Caches[i])
	}
	for _, q := range m.Reads {
		s.r.Read(q)
	}
	for _, p := range m.Proposals {
		s.r.Propose(p)
	}
	return len(s.Refused)+len(s.Declined) > 0
}

// install offers a snapshot to the replica, which asks for it with a message to be saved.
func (s *Shell) install(a Arrival) {
	taken, err := s.r.Restore(a.Message, a.Machine)
	if !taken {
		s.Declined = append(s.Declined, Declined{a.Owner, err})
		return
	}
	s.Arrived = a.Owner
}

// Work lets the replica work. Err is set if it cannot go on.
func (s *Shell) Work() {
	s.Out = s.r.Take()
	s.Err = s.Out.Failed
}

// TellCaches passes the leader's messages to the caches that are open at this member, and tells
// them who leads.
func (s *Shell) TellCaches() {
	s.caches.tell(&s.Out)
	s.caches.follow(&s.Status)
}

// OpenCaches returns how many caches are open at this member.
func (s *Shell) OpenCaches() int { return len(s.caches) }

// scrub cleans up after a compaction, and reports whether it has just finished.
func (s *Shell) scrub() bool {
	if !s.dirty {
		return false
	}
	if s.dirty = s.r.Machine().Scrub(scrubBudget); s.dirty {
		return false
	}
	s.View = s.r.Machine().View()
	return true
}

// sleep returns how long the member may wait for mail.
func (s *Shell) sleep() lease.TTL {
	if s.dirty {
		return 0
	}
	next := s.pace.next
	if at, ok := s.r.Next(); ok {
		next = min(next, at)
	}
	return lease.TTL(max(next-s.Now, 0))
}
