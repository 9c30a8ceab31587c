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

// The actions of a step. A driver performs each one when [Shell.Next] returns it. An action without
// work is left out of a step, unless it is marked "always".
const (
	// TakeMail: take all inputs that have arrived, into Mail. Always.
	TakeMail Do = iota
	// ReadClock: read the clocks, and call Read. Always, and after the mail was taken, so that
	// nothing in it is newer than the reading: renewals count from that time.
	ReadClock
	// Advance: log that every lease gets its full time again, because of Jumped or Stalled.
	Advance
	// LookAround: a heartbeat interval has passed; call Beat.
	LookAround
	// Feed: report the messages in Refused, and that the snapshot in Declined is not needed.
	Feed
	// Work: call Work, which may take a while. Always.
	Work
	// Ask: ask the processes of the members in Out.Ask whether they are running, over the transport
	// of messages, and call the replica's Answered in a task for each one that answers. They answer
	// without involving their cores.
	Ask
	// Send: send Out.Send.
	Send
	// Save: save Out.Append in order, without waiting for it. If Arrived is not nil, it is the
	// owner of the snapshot to which one of the messages refers.
	Save
	// Show: make View the view that all goroutines read.
	Show
	// Follow: report that the replica's status has changed from Before to Status.
	Follow
	// Publish: send watchers Out.Changes, which the view already shows.
	Publish
	// Answer: answer Out.Proposals, Reads, Together, Groups and Renewals. Always. A client that
	// gets an answer may read at once, and must then see the answered writes.
	Answer
	// DeliverCaches: call DeliverCaches.
	DeliverCaches
	// End: stop permanently, because of Err or, if that is nil, because the member was removed.
	End
	// Delay: if Delayed, have Mail.DelayOver set after the commit delay; otherwise cancel that.
	// Always.
	Delay
	// Shrink: make View the view that all goroutines read; only its size has changed.
	Shrink
	// Sleep: wait for mail, but no longer than Wait. Always.
	Sleep
)

// order is the order of actions in a step.
var order = [...]Do{
	TakeMail, ReadClock, Advance, LookAround, Feed, Work, Ask,
	Send, Save, Show, Follow, Publish, Answer, DeliverCaches,
	End, Delay, Shrink, Sleep,
}

// scrubBudget is how many records a step cleans up after a compaction, which takes about a hundred
// microseconds.
const scrubBudget = 256

// yieldEvery is the minimum number of election timeouts between two attempts to hand over. More
// attempts would not help if all disks are full.
const yieldEvery = 10

// Config configures a Shell.
type Config struct {
	Replica *replica.Replica
	// Start is the current reading of the clocks, which becomes instant 0.
	Start Reading
	// Heartbeat is the length of Raft's tick, and Election the shortest election timeout, both in
	// milliseconds.
	Heartbeat, Election lease.TTL
}

// Shell is the shell of one member: see the package comment. The driver reads the exported fields
// after Next has returned an action whose comment mentions them, and sets Mail.
type Shell struct {
	Mail Mail
	Now  lease.Instant // the last reading
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
	dirty  bool // the store may contain records that compaction has freed
	at     int  // index of the next action in order
}

// pace keeps the times of a member's periodic and delayed work, and whether it may lead.
type pace struct {
	heartbeat, election lease.Instant
	next                lease.Instant // next tick of Raft
	last                lease.Instant // previous step
	mayYield            lease.Instant
	stuck               bool // at the last heartbeat, this member's disk did not accept log entries
}

// New returns the shell of a replica that has not done anything yet.
func New(c Config) *Shell {
	return &Shell{
		r: c.Replica, clock: clock{start: c.Start}, Status: c.Replica.Status(),
		pace:   pace{heartbeat: lease.Instant(c.Heartbeat), election: lease.Instant(c.Election)},
		caches: make(caches),
	}
}

// Next returns the driver's next action. The previous one must have been completed. A new step
// begins after Sleep; End is the last action.
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

// begin does the shell's part of an action, and reports whether there is work for the driver too.
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
		s.Arrived = nil // Save has returned it
		if s.Out.Applied {
			s.View = s.r.Machine().View()
		}
		return s.Out.Applied
	case Follow:
		s.Before, s.Status = s.Status, s.r.Status()
		return s.Before != s.Status
	case Publish: // after a restore, the hub already has a state that shows the changes
		return len(s.Out.Changes) > 0 && !s.Out.Restored
	case DeliverCaches:
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

// Read records a reading of the clocks.
func (s *Shell) Read(r Reading) { s.Now, s.Jumped = s.clock.read(r) }

// Epoch returns the boot time of instant 0. Read may change it.
func (s *Shell) Epoch() lease.Instant { return s.clock.start.Boot }

// advance moves the replica's clock. A member that did nothing for as long as an election takes was
// stopped or starved. Holders could not renew during that time, through no fault of their own (T1),
// so leases get their full time again, as after a suspension. After a suspension, it is unknown how
// much time has passed, so silent leases get their remaining time again.
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

// Around is what a member observes at a heartbeat.
type Around struct {
	// Assembled is set if Raft may tick: the member is not waiting for other members to start.
	Assembled bool
	// DiskStuck is set if the member's disk does not accept log entries.
	DiskStuck bool
}

// Beat is called at each heartbeat. It reports whether the leadership is being handed over because
// this member's disk does not accept log entries: a leader applies only what is on its own disk, so
// all clients would have to wait (T1). If no other member can lead, this one stays the leader.
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

// feed passes the inputs to the replica. It sets Err if the replica cannot continue.
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
			continue // the leader stays, and offers the lead to another member
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
	for i := range m.Caches {
		s.caches.fromCache(s.r, &m.Caches[i])
	}
	for _, q := range m.Reads {
		s.r.Read(q)
	}
	for _, p := range m.Proposals {
		s.r.Propose(p)
	}
	return len(s.Refused)+len(s.Declined) > 0
}

// install offers a snapshot to the replica, which then asks for it in a message to be saved.
func (s *Shell) install(a Arrival) {
	taken, err := s.r.Restore(a.Message, a.Machine)
	if !taken {
		s.Declined = append(s.Declined, Declined{a.Owner, err})
		return
	}
	s.Arrived = a.Owner
}

// Work lets the replica work. It sets Err if the replica cannot continue.
func (s *Shell) Work() {
	s.Out = s.r.Take()
	s.Err = s.Out.Failed
}

// DeliverCaches delivers the leader's messages to the caches that are open at this member, and
// notifies them of a new leader.
func (s *Shell) DeliverCaches() {
	s.caches.deliver(&s.Out)
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
