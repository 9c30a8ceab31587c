package model

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// This file models leases that are renewed in groups (docs/leases.md). A keeper is a relay, a
// follower, or the holder's own client. It adds the lease to its group at the leader, and then
// renews the whole group with a single message. Elections are simplified: a new leader gives the
// lease its full TTL, and only the current leader can end the lease or be confirmed.
//
// An instant is represented by how much remains of a TTL that started at that instant, so time is
// unbounded.

// A GroupFault is a rule about groups that the model omits.
type GroupFault byte

const (
	// NoGroupFault omits no rule.
	NoGroupFault GroupFault = iota
	// OwnExpiryOnly ends a lease according to its own last renewal and ignores its group's.
	OwnExpiryOnly
	// AnswerEarly releases answers to joins and renewals without a confirm round.
	AnswerEarly
	// AnswerOutOfOrder releases an answer before the answer to an earlier request.
	AnswerOutOfOrder
	// AnswerAlone lets a keeper answer the holder without asking the leader.
	AnswerAlone
	// CountSent lets a keeper answer a request with a renewal that it sent before the request
	// arrived.
	CountSent
	// CountUnjoined lets a keeper treat a lease as joined as soon as it has sent the join.
	CountUnjoined
	// TrustOldJoin accepts the answer to a join that was sent before the keeper last gave up the
	// lease.
	TrustOldJoin
	// TrustLateJoin accepts the answer to a join even though a later renewal was answered first.
	TrustLateJoin
	// CountOvertaking lets a renewal count even though its answer overtook an earlier one.
	CountOvertaking
	// TrustUnanswered accepts the answer to a join even though the keeper has stopped waiting for a
	// later renewal.
	TrustUnanswered
	// HideLeft does not report that the lease has moved to another keeper's group.
	HideLeft
	// HideSilent renews a group that was dissolved because it was silent.
	HideSilent
	// SurviveElection renews groups at a leader that they never joined.
	SurviveElection
	// ForgetOnLeave makes a lease that leaves its group expire one TTL after its join, not after
	// the last renewal that counted.
	ForgetOnLeave
	// ForgetOnBreak ignores the group's last renewal when the group ends with its connection.
	ForgetOnBreak
	// AnswerAfterLeave lets a renewal answer a request even though the keeper has since given up
	// the lease.
	AnswerAfterLeave
	// LoseLeave never sends the leave to the leader.
	LoseLeave
	// LeaveJoined sends a leave only if the keeper counts the lease as joined.
	LeaveJoined
	// CountJoins removes the lease from a group only after as many leaves as joins.
	CountJoins
	// JoinWithdrawn accepts a join even though its permission was withdrawn after the check.
	JoinWithdrawn
	// KeepWithdrawn keeps the lease in its group when its permission is withdrawn.
	KeepWithdrawn
)

// GroupBounds limits a search.
type GroupBounds struct {
	Terms   byte          // at most maxTerms
	Sent    [keepers]byte // joins and renewals of each keeper, at most maxSent
	Crashes byte          // total for all keepers
	// Withdraw allows the permission to hold the lease to be withdrawn.
	Withdraw bool
	// Impatient allows keepers to stop waiting for an answer.
	Impatient bool
}

const (
	keepers  = 2
	maxTerms = 2
	maxSent  = 3
	maxQueue = 2 // maximum number of messages per direction of a connection

	groupTTL    = 2 // in ticks
	groupSilent = 1 // ticks after which a group dissolves
)

// These are the types of messages that a keeper sends.
const (
	join = 1 + iota
	leave
	renewGroup
)

// A message travels from a keeper to the leader. Messages stay in order.
type message struct {
	kind     byte
	n        byte // number of the message; in a leave, number of the last one that counted
	received bool // the leader has received it and made its promise
	empty    bool // the keeper does not want the lease in the group
}

// An answer travels from the leader to a keeper. Answers can overtake each other.
type answer struct {
	kind, n byte
	in      bool // the leader has reported that the lease is in the group
}

// A keeper keeps the lease alive over a connection to the leader of one term.
type keeper struct {
	term    byte
	wanted  bool // keeps the lease alive on behalf of a holder
	asked   bool // the leader may have the lease in the group
	joined  bool // the keeper knows that the lease is in its group at the leader
	sent    byte // number of joins and renewals so far
	open    byte // bitmap of renewals awaiting an answer
	counted byte // the last join or renewal that counted for the holder
	ignored byte // answers to joins up to this number are ignored
	up      [maxQueue]message
	down    [maxQueue]answer
}

// A group is what the leader of a term records about a keeper.
type group struct {
	renewed byte              // instant of the last renewal
	times   [maxSent + 1]byte // instant of each join and renewal
	left    left              // why the lease left the group, until the leader reports it
	joins   byte              // only for CountJoins
}

// left is the reason why a lease left a group without a request.
type left byte

const (
	moved     left = 1 + iota // to another keeper's group
	dissolved                 // the group was silent, or permissions changed
)

// A lessor is the leader of a term. It might not know about a later term.
type lessor struct {
	own   byte // instant at which the lease itself was last renewed or granted
	in    byte // keeper whose group contains the lease, counted from 1; 0 for none
	group [keepers]group
}

// A request is the holder's request to renew the lease.
type request struct {
	sent byte // when it was sent; 0 if there is no request
	at   byte // keeper that received it, counted from 1
	wait byte // number of the join or renewal whose answer it waits for
}

// groupWorld is one state of the entire system.
type groupWorld struct {
	valid      byte // how much longer the holder considers the lease valid
	gone, kept bool // gone: the lease has ended; kept: it is kept alive without a holder
	withdrawn  bool // the current leader has applied the withdrawal of the permission
	term       byte
	crashes    byte
	lessor     [maxTerms]lessor
	keeper     [keepers]keeper
	request    request
}

func firstGroupWorld() groupWorld {
	w := groupWorld{valid: groupTTL, term: 1}
	w.lessor[0].own = groupTTL
	for k := range w.keeper {
		w.keeper[k].term = 1
	}
	return w
}

func (w *groupWorld) tick() {
	pass := func(instants ...*byte) {
		for _, at := range instants {
			if *at > 0 {
				*at--
			}
		}
	}
	pass(&w.valid, &w.request.sent)
	for t := range w.lessor {
		l := &w.lessor[t]
		pass(&l.own)
		for k := range l.group {
			pass(&l.group[k].renewed)
			for n := range l.group[k].times {
				pass(&l.group[k].times[n])
			}
		}
	}
	if w.request.sent == 0 {
		w.request = request{} // it can no longer extend the validity
	}
}

// normalize clears what is no longer relevant, so that equivalent worlds compare equal.
func (w *groupWorld) normalize() {
	for t := range w.lessor[:w.term-1] {
		led := func(k keeper) bool { return int(k.term) == t+1 }
		if !slices.ContainsFunc(w.keeper[:], led) {
			w.lessor[t] = lessor{}
		}
	}
	for t := range w.lessor {
		l := &w.lessor[t]
		for k := range l.group {
			g := &l.group[k]
			if int(l.in) != k+1 || g.renewed <= l.own {
				g.renewed = 0
			}
			for n := range g.times {
				if g.times[n] <= l.own {
					g.times[n] = 0 // a leave that names this message would not extend the lease
				}
			}
		}
	}
}

// expired reports whether the leader can end the lease.
func (l *lessor) expired(f GroupFault) bool {
	return l.own == 0 && (l.in == 0 || f == OwnExpiryOnly || l.group[l.in-1].renewed == 0)
}

// detach removes the lease from its group. It preserves the time of the group's last renewal.
func (l *lessor) detach(why left) {
	if l.in != 0 {
		g := &l.group[l.in-1]
		l.own = max(l.own, g.renewed)
		g.left, g.joins = why, 0
		l.in = 0
	}
}

// A groupStep leads from one world to another.
type groupStep struct {
	before int32
	text   string
	at     byte
}

type groupSearch struct {
	bounds GroupBounds
	fault  GroupFault
	seed   maphash.Seed
	seen   map[uint64]struct{} // hashes of worlds, as in type search
	open   []*groupWorld
	steps  []groupStep
	found  GroupsFound
	from   int32
}

// GroupsFound is the result of SearchGroups.
type GroupsFound struct {
	Worlds int
	// Broken lists the steps that led to a broken promise: a lease ended early or was kept alive
	// without a holder. It is nil if no promise was broken.
	Broken []string
	// These fields count the steps of each type.
	Elections, Joins, Renewals, Leaves, Moves, Expiries int
}

// SearchGroups visits all worlds within the bounds. It stops at the first world that breaks a
// promise.
func SearchGroups(b GroupBounds, f GroupFault) GroupsFound {
	s := &groupSearch{
		bounds: b, fault: f, from: -1, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{},
	}
	s.visit(firstGroupWorld(), "", 0)
	for at := 0; at < len(s.open) && s.found.Broken == nil; at++ {
		s.from = int32(at)
		w := s.open[at]
		s.open[at] = nil // only the trace is still needed
		s.next(*w)
	}
	s.found.Worlds = len(s.seen)
	return s.found
}

func (s *groupSearch) visit(w groupWorld, text string, at byte) {
	w.normalize()
	h := maphash.Comparable(s.seed, w)
	if _, ok := s.seen[h]; ok {
		return
	}
	s.seen[h] = struct{}{}
	s.open = append(s.open, &w)
	s.steps = append(s.steps, groupStep{s.from, text, at})
	if s.found.Broken == nil && (w.kept || w.gone && w.valid > 0) {
		for i := int32(len(s.steps) - 1); i >= 0; i = s.steps[i].before {
			step := s.steps[i]
			text := strings.ReplaceAll(step.text, "%d", strconv.Itoa(int(step.at)))
			s.found.Broken = append(s.found.Broken, text)
		}
		slices.Reverse(s.found.Broken)
	}
}

// next visits all worlds one step away from w.
func (s *groupSearch) next(w groupWorld) {
	n := w
	n.tick()
	s.visit(n, "the clock ticks", 0)
	if w.term < s.bounds.Terms {
		n := w
		n.term++
		n.lessor[n.term-1].own = groupTTL
		s.found.Elections++
		s.visit(n, "a new leader is elected", 0)
	}
	if l := &w.lessor[w.term-1]; l.expired(s.fault) {
		n := w
		n.gone = true
		s.found.Expiries++
		if w.valid > 0 {
			s.visit(n, "the lease ends", 0)
		}
	}
	s.withdraw(w)
	s.ask(w)
	for k := range byte(keepers) {
		s.keep(w, k)
		s.receive(w, k)
		s.release(w, k)
		s.answered(w, k)
		s.breaks(w, k)
	}
	for t := range w.term {
		for k := range byte(keepers) {
			s.dissolve(w, t, k)
		}
	}
}

// ask visits the possible outcomes of the holder's request.
func (s *groupSearch) ask(w groupWorld) {
	if w.request.sent == 0 {
		w.request.sent = groupTTL
		s.visit(w, "the holder asks for a renewal", 0)
		return
	}
	if w.request.at == 0 {
		for k := range byte(keepers) {
			s.arrive(w, k)
		}
	}
	w.request = request{}
	s.visit(w, "the holder's request or its answer is lost", 0)
}

// arrive delivers the holder's request to keeper k.
func (s *groupSearch) arrive(w groupWorld, k byte) {
	me := &w.keeper[k]
	w.request.at = k + 1
	switch {
	case s.fault == AnswerAlone && me.joined:
		w.valid = max(w.valid, w.request.sent)
		w.request = request{}
	case me.joined && s.fault == CountSent:
		w.request.wait = me.sent
	case me.joined:
		w.request.wait = me.sent + 1
	case !s.send(&w, k, join):
		return
	default:
		w.request.wait = me.sent
		me.joined = s.fault == CountUnjoined
	}
	s.visit(w, "keeper %d receives the holder's request", k)
}

// put queues a message on the connection. It returns false if the queue is full.
func (k *keeper) put(m message) bool {
	for i := range k.up {
		if k.up[i] == (message{}) {
			k.up[i] = m
			return true
		}
	}
	return false
}

// send queues a join or a renewal. It returns false if that would exceed the bounds.
func (s *groupSearch) send(w *groupWorld, at, kind byte) bool {
	k := &w.keeper[at]
	if k.sent >= s.bounds.Sent[at] {
		return false
	}
	k.sent++
	if kind == join {
		k.wanted, k.asked = true, true
	} else {
		k.open |= 1 << k.sent
	}
	return k.put(message{kind: kind, n: k.sent, empty: !k.wanted})
}

// keep visits the steps that keeper k takes without a request from the holder.
func (s *groupSearch) keep(w groupWorld, k byte) {
	n := w
	if s.send(&n, k, renewGroup) {
		s.visit(n, "keeper %d sends a renewal", k)
	}
	if w.keeper[k].wanted {
		s.giveUp(w, k)
		n = w
		if s.send(&n, k, join) {
			s.visit(n, "keeper %d sends another join", k)
		}
	}
	if me := &w.keeper[k]; me.open != 0 && s.bounds.Impatient {
		first := byte(bits.TrailingZeros8(me.open))
		me.open &^= 1 << first
		me.joined = false
		if s.fault != TrustUnanswered {
			me.ignored = max(me.ignored, first)
		}
		s.visit(w, "keeper %d stops waiting for its first renewal", k)
	}
}

// giveUp makes keeper k give up the lease because the holder released it or fell silent.
func (s *groupSearch) giveUp(w groupWorld, k byte) {
	me := &w.keeper[k]
	as, sent := me.counted, me.asked && s.fault != LoseLeave
	if s.fault == ForgetOnLeave {
		as = 0
	}
	if s.fault == LeaveJoined {
		sent = me.joined
	}
	me.wanted, me.asked, me.joined, me.ignored, me.counted = false, false, false, me.sent, 0
	if sent && !me.put(message{kind: leave, n: as}) {
		return
	}
	if w.request.at == k+1 && s.fault != AnswerAfterLeave {
		w.request = request{}
	}
	s.visit(w, "keeper %d gives the lease up", k)
}

// receive delivers keeper k's first message to its leader.
func (s *groupSearch) receive(w groupWorld, k byte) {
	me := &w.keeper[k]
	l := &w.lessor[me.term-1]
	g := &l.group[k]
	withdrawn := w.withdrawn && me.term == w.term
	for i := range me.up {
		m := &me.up[i]
		if m.kind == 0 || m.received {
			continue
		}
		m.received = true
		switch m.kind {
		case join: // this also renews the lease
			l.own, g.times[m.n] = groupTTL, groupTTL
			if l.in == 0 { // for example, renewing a checkpointed lease does not make it join
				s.visit(w, "keeper %d renews the lease, but it does not join", k)
			}
			if !withdrawn || s.fault == JoinWithdrawn {
				s.enter(l, k)
			}
		case renewGroup:
			g.renewed, g.times[m.n] = groupTTL, groupTTL
			w.kept = l.in == k+1 && (m.empty || withdrawn)
		case leave:
			s.leave(l, k, m.n)
			me.drop(i)
		}
		s.visit(w, "the leader receives a message from keeper %d", k)
		return
	}
}

// enter adds the lease to the group of keeper k.
func (s *groupSearch) enter(l *lessor, k byte) {
	g := &l.group[k]
	if l.in != k+1 {
		if l.in != 0 {
			s.found.Moves++
		}
		l.detach(moved)
		l.in = k + 1
	}
	if s.fault == CountJoins {
		g.joins++
	}
	s.found.Joins++
}

// leave removes the lease from the group of keeper k. as is the number of the join or renewal that
// renewed the lease last.
func (s *groupSearch) leave(l *lessor, k, as byte) {
	g := &l.group[k]
	if l.in != k+1 {
		return
	}
	if g.joins > 1 { // only with CountJoins
		g.joins--
		return
	}
	g.joins = 0
	l.own, l.in = max(l.own, g.times[as]), 0
	s.found.Leaves++
}

// withdraw makes the current leader apply the withdrawal of the permission. A follower that has not
// yet applied it can still check and forward a join.
func (s *groupSearch) withdraw(w groupWorld) {
	if !s.bounds.Withdraw || w.withdrawn {
		return
	}
	w.withdrawn = true
	if s.fault != KeepWithdrawn {
		w.lessor[w.term-1].detach(dissolved)
	}
	s.visit(w, "the permission is withdrawn", 0)
}

// drop removes a message from the queue.
func (k *keeper) drop(i int) {
	copy(k.up[i:], k.up[i+1:])
	k.up[maxQueue-1] = message{}
}

// release makes the leader answer keeper k's first message if its promise is confirmed.
func (s *groupSearch) release(w groupWorld, k byte) {
	if t := w.keeper[k].term; t != w.term && s.fault != AnswerEarly {
		return // no majority follows this leader
	}
	for i, m := range w.keeper[k].up {
		if !m.received {
			return
		}
		s.answer(w, k, i)
		if s.fault != AnswerOutOfOrder {
			return
		}
	}
}

// answer makes the leader answer message i of keeper k.
func (s *groupSearch) answer(w groupWorld, k byte, i int) {
	me := &w.keeper[k]
	l := &w.lessor[me.term-1]
	g, m := &l.group[k], me.up[i]
	a := answer{m.kind, m.n, l.in == k+1}
	if m.kind == renewGroup {
		hidden := s.fault == HideLeft && g.left == moved ||
			s.fault == HideSilent && g.left == dissolved
		a.in = g.left == 0 || hidden
		g.left = 0
	}
	me.drop(i)
	for j := range me.down {
		if me.down[j] == (answer{}) {
			me.down[j] = a
			s.visit(w, "the leader answers keeper %d", k)
			return
		}
	}
}

// answered delivers any one of the answers in flight to keeper k.
func (s *groupSearch) answered(w groupWorld, k byte) {
	for i, a := range w.keeper[k].down {
		if a != (answer{}) {
			n := w
			me := &n.keeper[k]
			copy(me.down[i:], me.down[i+1:])
			me.down[maxQueue-1] = answer{}
			s.take(&n, k, a)
			s.visit(n, "keeper %d receives an answer", k)
		}
	}
}

// take processes an answer received by keeper k.
func (s *groupSearch) take(w *groupWorld, k byte, a answer) {
	me := &w.keeper[k]
	if a.kind == join {
		s.count(w, k, a.n)
		if a.n > me.ignored || s.fault == TrustOldJoin && me.wanted {
			me.joined = a.in || s.fault == CountUnjoined
		}
		return
	}
	if s.fault != TrustLateJoin {
		me.ignored = max(me.ignored, a.n)
	}
	bit := byte(1) << a.n
	earlier, awaited := me.open&(bit-1) != 0, me.open&bit != 0
	me.open &^= bit
	switch {
	case !a.in, earlier && s.fault != CountOvertaking:
		me.joined = false
	case awaited && (me.joined || s.fault == AnswerAfterLeave):
		s.count(w, k, a.n)
	}
}

// count answers the holder's request if join or renewal n was sent after the request arrived.
func (s *groupSearch) count(w *groupWorld, k, n byte) {
	if w.request.at == k+1 && w.request.wait <= n {
		w.valid = max(w.valid, w.request.sent)
		w.request = request{}
		w.keeper[k].counted = n
		s.found.Renewals++
	}
}

// breaks either restarts keeper k or connects it to the current leader. In both cases it gets a new
// connection without leases.
func (s *groupSearch) breaks(w groupWorld, k byte) {
	me := &w.keeper[k]
	if w.request.at == k+1 {
		w.request = request{}
	}
	l := &w.lessor[me.term-1]
	switch {
	case me.term != w.term:
		joined := me.joined && s.fault == SurviveElection
		*me = keeper{term: w.term, wanted: joined, joined: joined, sent: me.sent}
		s.visit(w, "keeper %d connects to the current leader", k)
	case w.crashes < s.bounds.Crashes:
		w.crashes++
		*me = keeper{term: w.term}
		if s.fault == ForgetOnBreak {
			l.group[k].renewed = 0
		}
		if l.in == k+1 { // the group ends with its connection
			l.detach(0)
		}
		l.group[k] = group{}
		s.visit(w, "keeper %d restarts", k)
	}
}

// dissolve makes the leader of a term dissolve keeper k's silent group.
func (s *groupSearch) dissolve(w groupWorld, t, k byte) {
	l := &w.lessor[t]
	if l.in == k+1 && max(l.own, l.group[k].renewed) <= groupTTL-groupSilent {
		l.detach(dissolved)
		s.visit(w, "keeper %d's group is silent and dissolves", k)
	}
}
