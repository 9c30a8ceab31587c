package shell

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// Do is the next action for a Shell's driver.
type Do int

// These constants are the actions of a step. A driver performs each action when [Shell.Next]
// returns it. An action without work is omitted from a step, unless it is marked "always".
const (
	// TakeMail: move all inputs that have arrived into Mail. Always.
	TakeMail Do = iota
	// ReadClock: read the clocks and call Read. Always. It comes after TakeMail, so that nothing in
	// the mail is newer than the reading, because renewals count from that time.
	ReadClock
	// Advance: log that every lease gets its full time again because of Jumped or Stalled.
	Advance
	// HeartbeatDue: a heartbeat interval has passed; call Beat.
	HeartbeatDue
	// Feed: report the messages in Refused, and the unneeded snapshots in Declined.
	Feed
	// Work: call Work, which can take a while. Always.
	Work
	// Ask: probe the processes of the members in Out.Ask over the message transport. When a process
	// answers, call the replica's Answered in a task. The answer does not come from the other
	// member's core.
	Ask
	// Send: send Out.Send.
	Send
	// Save: save Out.Append in order, without waiting for completion. Arrived, if not nil, is the
	// owner of the snapshot that one of the messages refers to.
	Save
	// Show: make View the view that all goroutines read.
	Show
	// Follow: report that the replica's status has changed from Before to Status.
	Follow
	// Publish: send Out.Changes, which the view already includes, to watchers.
	Publish
	// Answer: answer Out.Proposals, Reads, Together, Groups and Renewals. Always. A client may read
	// as soon as it is answered, and must then see the writes that were answered.
	Answer
	// DeliverCaches: call DeliverCaches.
	DeliverCaches
	// End: stop permanently, because of Err or, if that is nil, because the member was removed.
	End
	// Delay: if Delayed is true, set Mail.DelayOver after the commit delay. Otherwise cancel any
	// earlier Delay. Always.
	Delay
	// Shrink: make View the view that all goroutines read. Only the size of the state has changed.
	Shrink
	// Sleep: wait for mail, but no longer than Wait. Always.
	Sleep
)

// order lists the actions of a step in order.
var order = [...]Do{
	TakeMail, ReadClock, Advance, HeartbeatDue, Feed, Work, Ask,
	Send, Save, Show, Follow, Publish, Answer, DeliverCaches,
	End, Delay, Shrink, Sleep,
}

// scrubBudget is the number of records that a step cleans up after a compaction. This takes about a
// hundred microseconds.
const scrubBudget = 256

// yieldEvery is the minimum number of election timeouts between two attempts to hand over
// leadership. More frequent attempts would not help if all disks are full.
const yieldEvery = 10

// Config configures a Shell.
type Config struct {
	Replica *replica.Replica
	// Start is the current reading of the clocks. It becomes instant 0.
	Start Reading
	// Heartbeat is the length of a Raft tick, and Election is the shortest election timeout, both
	// in milliseconds.
	Heartbeat, Election lease.TTL
}

// Shell is the shell of one member; see the package comment. The driver sets Mail. It can read any
// other exported field after Next has returned an action whose comment mentions the field.
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
	dirty  bool // the store may contain records freed by compaction
	at     int  // index in order of the next action
}

// pace tracks when a member's periodic and delayed work is due, and whether the member can lead.
type pace struct {
	heartbeat, election lease.Instant
	next                lease.Instant // next tick of Raft
	last                lease.Instant // time of the previous step
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

// Next returns the next action for the driver, which must have completed the previous one. A new
// step begins after Sleep. End is the last action.
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

// begin does the shell's part of an action, and reports whether the driver also has work to do.
func (s *Shell) begin(do Do) bool {
	switch do {
	case Advance:
		return s.advance()
	case HeartbeatDue:
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
		s.Arrived = nil // already returned with Save
		if s.Out.Applied {
			s.View = s.r.Machine().View()
		}
		return s.Out.Applied
	case Follow:
		s.Before, s.Status = s.Status, s.r.Status()
		return s.Before != s.Status
	case Publish: // after a restore, the hub already has a state that includes the changes
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
// so every lease gets its full TTL again. The same applies after a suspension. After a suspension,
// there is also no telling how much time has passed, so silent leases get their remaining time
// again.
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

// Environment is the member's environment, as observed at a heartbeat.
type Environment struct {
	// MayVote is set if Raft can tick: the member is not waiting for other members to start.
	MayVote bool
	// DiskStuck is set if the member's disk does not accept log entries.
	DiskStuck bool
}

// Beat is called at each heartbeat. It reports whether this member is handing over leadership
// because its disk does not accept log entries. A leader applies an entry only after writing it to
// its own disk, so all clients would have to wait (T1). If no other member can lead, this member
// remains the leader.
func (s *Shell) Beat(a Environment) (yields bool) {
	s.pace.next = s.Now + s.pace.heartbeat
	s.dirty, s.pace.stuck = true, a.DiskStuck
	if a.MayVote {
		s.r.Tick()
	}
	if !s.Status.Leading || s.Now < s.pace.mayYield || !a.DiskStuck {
		return false
	}
	if !s.r.Yield() {
		return false // retried at the next heartbeat, because a follower may connect
	}
	s.pace.mayYield = s.Now + yieldEvery*s.pace.election
	return true
}

// feed passes the inputs to the replica. If the replica cannot continue, feed sets Err.
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
			continue // this leader keeps leading, and offers leadership to another member
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

// install offers a snapshot to the replica. If the replica accepts it, a later message in
// Output.Append requests that the snapshot be installed.
func (s *Shell) install(a Arrival) {
	taken, err := s.r.Restore(a.Message, a.Machine)
	if !taken {
		s.Declined = append(s.Declined, Declined{a.Owner, err})
		return
	}
	s.Arrived = a.Owner
}

// Work lets the replica work. If the replica cannot continue, Work sets Err.
func (s *Shell) Work() {
	s.Out = s.r.Take()
	s.Err = s.Out.Failed
}

// DeliverCaches delivers the leader's messages to the caches that are open on this member, and
// notifies the caches of a new leader.
func (s *Shell) DeliverCaches() {
	s.caches.deliver(&s.Out)
	s.caches.follow(&s.Status)
}

// OpenCaches returns the number of caches that are open on this member.
func (s *Shell) OpenCaches() int { return len(s.caches) }

// scrub does part of the cleanup after a compaction, and reports whether the cleanup has just been
// completed.
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

// sleep returns how long the member can wait for mail.
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
