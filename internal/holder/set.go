package holder

import (
	"math"
	"slices"

	"leasehold.dev/lease"
)

// Set holds the leases of one holder. It is not safe for concurrent use.
//
// Invariants: a lease in leases has not ended, and is in both queues or in a group.
type Set struct {
	cfg    Config
	now    instant
	leases map[lease.ID]*held
	turns  queue
	ends   queue
	// flights holds the batches that may still be answered, by Seq.
	flights map[uint64]*flight
	// groups holds the groups that contain leases. Each group is in both queues, instead of its
	// leases.
	groups map[lease.GroupID]*held
	// leave holds leases that are no longer held, but that the lessor may still have in a group.
	leave map[lease.ID]struct{}
	// moved is the last batch on an earlier connection: it joined groups that have ended.
	moved uint64
	// groupsAnswered is the last batch whose answer about groups has arrived. Leases that joined
	// before it may have left since.
	groupsAnswered uint64
	seq            uint64 // of the last batch
	oldest         uint64 // no flight is older
	changes        []Change
}

// held is a lease of a Set.
type held struct {
	Held
	until    instant     // valid until
	bound    lease.TTL   // maximum TTL of promises: the smallest of asks
	asks     []lease.TTL // requested TTLs that may be in force, now or later
	jeopardy bool
	resting  bool    // renewed only by Ask
	since    uint64  // the last batch before it was added
	asked    uint64  // the batch that is to renew it and has no answer yet, or 0
	tried    instant // when asked was sent
	tries    int     // consecutive ones without an answer
	batch    uint64  // the last batch that renewed it, after which the lessor may have it in a group
	parted   uint64  // the last batch that requested that it leave its group
	when
	// group is the group of the lease, or nil, and member its index there. The lease is valid at
	// least as long as the group.
	group  *held
	member int
	// If held is a group and not a lease, members holds its leases, and open the unanswered batches
	// that renew it.
	members []*held
	open    []uint64
}

// unbound is the bound of a lease for which no other TTL was requested.
const unbound = lease.TTL(math.MaxInt64)

// flight is a batch without all of its answers.
type flight struct {
	sent instant
	left int // leases and groups without an answer
}

// New returns an empty Set whose clock shows now.
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

// Add adds a lease, and returns its state: Ended if the answer to the grant came too late.
// Otherwise it replaces a lease with the same ID.
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

// Drop stops holding a lease. There are no changes about it afterwards.
func (s *Set) Drop(id lease.ID) {
	if l := s.leases[id]; l != nil {
		s.giveUp(l)
		s.remove(l)
	}
}

// giveUp records that a lease is no longer renewed. The lessor may have it in a group, even if no
// answer has reported that.
func (s *Set) giveUp(l *held) {
	if l.batch > s.moved {
		s.leave[l.ID] = struct{}{}
	}
}

// Shorten records that the holder is about to request another TTL for a lease. A shorter one limits
// the validity at once, until the outcome is known: an acknowledged renewal may be for the previous
// TTL. A request with an unknown outcome may take effect at any time, even after later ones, so it
// limits the holder forever.
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

// Refused records that a requested TTL will never be in force.
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

// Confirmed records that the lessor has acknowledged a requested TTL, by other means than a batch,
// after sent, and that the lease has ttl now, usually the same. Earlier batches no longer count. It
// settles one request: another one for the same TTL, with an unknown outcome, continues to limit
// the holder.
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

// Rest stops the scheduled renewals of a lease: it is held until it ends, and renewed only by Ask.
func (s *Set) Rest(id lease.ID) {
	if l := s.leases[id]; l != nil {
		s.giveUp(l)
		s.part(l)
		l.resting = true
		s.turn(l, 0)
	}
}

// turn sets the instant at which to renew a lease.
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

// Next returns the earliest instant at which Advance or Due have something to do. ok is false if
// there is none.
func (s *Set) Next() (_ lease.Instant, ok bool) {
	if len(s.leases) == 0 {
		return 0, false
	}
	return max(s.now, min(s.turns.items[0].at[turns], s.ends.items[0].at[ends])), true
}

// Ends returns the earliest instant at which the state of a lease changes by itself, at the end of
// its validity or grace. ok is false if there is none.
func (s *Set) Ends() (_ lease.Instant, ok bool) {
	if len(s.leases) == 0 {
		return 0, false
	}
	return max(s.now, s.ends.items[0].at[ends]), true
}

// Changes returns, in order, the changes of state since its last call: those caused by the clock or
// an answer, not by the holder itself.
func (s *Set) Changes() []Change {
	c := s.changes
	s.changes = nil
	return c
}

func (s *Set) changed(l *held) { s.changes = append(s.changes, Change{l.ID, l.state()}) }

// lose ends a lease.
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

// confirm applies an acknowledged promise of a lease's TTL.
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

// validUntil returns when a promise of a TTL that was requested at sent ends.
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

// end returns when the state of the lease changes by itself.
func (l *held) end() instant {
	if l.jeopardy {
		return plus(l.until, l.Grace)
	}
	return l.until
}

// plus adds, and saturates at the end of time (T24).
func plus(t instant, d lease.TTL) instant {
	if t > 0 && d >= lease.TTL(math.MaxInt64-t) {
		return math.MaxInt64
	}
	return t + instant(d)
}
