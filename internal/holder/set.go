package holder

import (
	"math"
	"slices"

	"leasehold.dev/lease"
)

// Set contains the leases of one holder. It is not safe for concurrent use.
//
// Invariants: a lease in leases has not ended, and is either in both queues or in a group.
type Set struct {
	cfg    Config
	now    instant
	leases map[lease.ID]*held
	turns  queue
	ends   queue
	// flights contains the batches that may still be answered, by Seq.
	flights map[uint64]*flight
	// groups contains the groups that have leases. A group is in both queues in place of its
	// leases.
	groups map[lease.GroupID]*held
	// leave contains leases that are no longer held, but that may still be in a group at the
	// lessor.
	leave map[lease.ID]struct{}
	// moved is the last batch that was sent over an earlier connection. The groups that its leases
	// joined have ended.
	moved uint64
	// groupsAnswered is the last batch whose answer about groups has arrived. Leases that joined a
	// group before that batch may have left since.
	groupsAnswered uint64
	seq            uint64 // of the last batch
	oldest         uint64 // no batch in flights is older
	changes        []Change
}

// held is a lease or a group of a Set.
type held struct {
	Held
	until    instant     // valid until
	bound    lease.TTL   // maximum TTL that may be promised: the smallest of asks
	asks     []lease.TTL // requested TTLs that are in force or may come into force
	jeopardy bool
	resting  bool    // renewed only by Ask
	since    uint64  // the last batch before the lease was added
	asked    uint64  // the unanswered batch that renews it, or 0
	tried    instant // when asked was sent
	tries    int     // consecutive attempts without an answer
	// the last batch that renewed it, after which the lessor may have put it in a group
	batch  uint64
	parted uint64 // the last batch that asked for it to leave its group
	when
	// group is the group of the lease, or nil. member is the lease's index in the group. The lease
	// is valid for at least as long as the group.
	group  *held
	member int
	// If held is a group rather than a lease, members contains its leases, and open contains the
	// unanswered batches that renew the group.
	members []*held
	open    []uint64
}

// unbound is the bound of a lease if no other TTL has been requested for it.
const unbound = lease.TTL(math.MaxInt64)

// flight is a batch that has not been fully answered.
type flight struct {
	sent instant
	left int // number of leases and groups without an answer
}

// New returns an empty Set whose clock is at now.
func New(c Config, now lease.Instant) *Set {
	if c.Drift == 0 {
		c.Drift = defaultDrift
	}
	c.Drift = max(c.Drift, 0)
	return &Set{
		cfg: c, now: now, leases: make(map[lease.ID]*held),
		turns: queue{by: turns}, ends: queue{by: ends},
		flights: make(map[uint64]*flight), groups: make(map[lease.GroupID]*held),
		leave: make(map[lease.ID]struct{}),
	}
}

// Add adds a lease and returns its state. If the answer to the grant came too late, the state is
// Ended and nothing is added. Otherwise the lease replaces any lease with the same ID.
func (s *Set) Add(h Held) State {
	l := &held{Held: h, until: s.validUntil(h.Sent, h.TTL-h.Spent), since: s.seq, bound: unbound}
	if s.now >= plus(l.until, h.Grace) {
		return State{Status: Ended, Reason: Expired, ValidUntil: l.until}
	}
	s.Drop(h.ID)
	l.jeopardy = s.now >= l.until
	s.leases[h.ID] = l
	turn := s.renewAt(l, h.Sent) - instant(h.Spent)
	if s.cfg.First > 0 {
		turn = min(turn, plus(h.Sent, s.cfg.First))
	}
	s.turns.add(l, max(s.now, turn))
	s.ends.add(l, l.end())
	return l.state()
}

// Drop stops holding a lease. It reports no further changes to the lease.
func (s *Set) Drop(id lease.ID) {
	if l := s.leases[id]; l != nil {
		s.giveUp(l)
		s.remove(l)
	}
}

// giveUp records that a lease is no longer renewed. The lessor may already have put the lease in a
// group, even if the Set has not received that answer yet.
func (s *Set) giveUp(l *held) {
	if l.batch > s.moved {
		s.leave[l.ID] = struct{}{}
	}
}

// Shorten records that the holder is about to request another TTL for a lease. If the new TTL is
// shorter, it limits the validity immediately and until the outcome is known, because an
// acknowledged renewal may be for the previous TTL. A request whose outcome remains unknown can
// take effect at any time, even after later requests. So its TTL limits the holder permanently.
func (s *Set) Shorten(id lease.ID, ttl lease.TTL) {
	if l := s.leases[id]; l != nil {
		s.part(l)
		l.asks = append(l.asks, ttl)
		l.bound = min(l.bound, ttl)
		l.until = min(l.until, s.validUntil(s.now, ttl))
		s.ends.set(l, l.end())
		s.turn(l, min(l.at[turns], s.renewAt(l, s.now)))
	}
}

// Refused records that a requested TTL will never take effect.
func (s *Set) Refused(id lease.ID, ttl lease.TTL) {
	if l := s.leases[id]; l != nil {
		l.settled(ttl)
	}
}

// settled removes one request for a TTL.
func (l *held) settled(ttl lease.TTL) {
	if i := slices.Index(l.asks, ttl); i >= 0 {
		l.asks = slices.Delete(l.asks, i, i+1)
	}
	l.bound = slices.Min(append(l.asks, unbound))
}

// Confirmed records that the lessor has acknowledged a requested TTL, other than through a batch.
// The holder made the request after sent. The TTL of the lease is now ttl, which is usually the
// same as asked. Earlier batches no longer count. Confirmed settles one request. If the outcome of
// another request for the same TTL is unknown, that request still limits the holder.
func (s *Set) Confirmed(id lease.ID, asked, ttl lease.TTL, sent lease.Instant) {
	if l := s.leases[id]; l != nil {
		s.part(l)
		l.settled(asked)
		l.TTL, l.since = ttl, s.seq
		l.asked, l.tries = 0, 0
		s.confirm(l, sent)
		s.turn(l, s.renewAt(l, sent))
	}
}

// Rest stops the scheduled renewals of a lease. The lease is held until it ends, and renewed only
// by Ask.
func (s *Set) Rest(id lease.ID) {
	if l := s.leases[id]; l != nil {
		s.giveUp(l)
		s.part(l)
		l.resting = true
		s.turn(l, 0)
	}
}

// turn sets when to renew a lease.
func (s *Set) turn(l *held, at instant) {
	if l.resting {
		at = math.MaxInt64
	}
	s.turns.set(l, at)
}

// State returns the state of a lease, if it is held.
func (s *Set) State(id lease.ID) (_ State, ok bool) {
	l := s.leases[id]
	if l == nil {
		return State{}, false
	}
	return l.state(), true
}

// Advance moves the clock, which never goes backward.
func (s *Set) Advance(now lease.Instant) {
	s.now = max(s.now, now)
	for {
		l, ok := s.ends.first(s.now)
		switch {
		case !ok:
			return
		case l.members != nil:
			s.dissolve(l, l.at[turns])
		case s.now >= plus(l.until, l.Grace):
			s.lose(l, Expired)
		default:
			l.jeopardy = true
			s.ends.set(l, l.end())
			s.changed(l)
		}
	}
}

// Next returns the earliest instant at which Advance or Due has something to do. ok is false if
// there is none.
func (s *Set) Next() (_ lease.Instant, ok bool) {
	if len(s.leases) == 0 {
		return 0, false
	}
	return max(s.now, min(s.turns.items[0].at[turns], s.ends.items[0].at[ends])), true
}

// Ends returns the earliest instant at which the state of a lease changes unless the lease is
// renewed. That is the end of its validity or grace period. ok is false if there is none.
func (s *Set) Ends() (_ lease.Instant, ok bool) {
	if len(s.leases) == 0 {
		return 0, false
	}
	return max(s.now, s.ends.items[0].at[ends]), true
}

// Changes returns the state changes since its last call, in order. It includes changes caused by
// the clock or an answer, but not changes made by the holder itself.
func (s *Set) Changes() []Change {
	c := s.changes
	s.changes = nil
	return c
}

func (s *Set) changed(l *held) { s.changes = append(s.changes, Change{l.ID, l.state()}) }

// lose ends a lease and records the change.
func (s *Set) lose(l *held, why Reason) {
	s.giveUp(l)
	s.remove(l)
	s.changes = append(s.changes, Change{l.ID, State{Ended, why, l.until}})
}

func (s *Set) remove(l *held) {
	s.part(l)
	delete(s.leases, l.ID)
	s.turns.remove(l)
	s.ends.remove(l)
}

// confirm records an acknowledged promise for the TTL of a lease.
func (s *Set) confirm(l *held, sent instant) {
	l.until = max(l.until, s.validUntil(sent, min(l.TTL, l.bound)))
	if l.group != nil {
		return
	}
	if l.jeopardy && s.now < l.until {
		l.jeopardy = false
		s.changed(l)
	}
	s.ends.set(l, l.end())
}

// validUntil returns when the validity of a lease ends if its TTL was requested at sent and then
// acknowledged.
func (s *Set) validUntil(sent instant, ttl lease.TTL) instant {
	drift := lease.TTL(math.Ceil(float64(ttl) * s.cfg.Drift))
	return plus(sent, max(0, ttl-drift-s.cfg.Margin))
}

func (l *held) state() State {
	until := l.until
	if l.group != nil {
		until = max(until, l.group.until)
	}
	if l.jeopardy {
		return State{Status: Jeopardy, ValidUntil: until}
	}
	return State{Status: OK, ValidUntil: until}
}

// end returns when the state of the lease changes unless it is renewed.
func (l *held) end() instant {
	if l.jeopardy {
		return plus(l.until, l.Grace)
	}
	return l.until
}

// plus adds a duration to an instant. It saturates instead of overflowing (T24).
func plus(t instant, d lease.TTL) instant {
	if t > 0 && d >= lease.TTL(math.MaxInt64-t) {
		return math.MaxInt64
	}
	return t + instant(d)
}
