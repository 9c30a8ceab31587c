package model

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// This file models leases that are renewed in groups (docs/leases.md). A keeper, which is a relay,
// a follower or the holder's own client, joins the lease to its group at the leader, and renews the
// group by one message. Elections are reduced to what the other model shows: a new leader gives the
// lease its full TTL, and only the current leader can end it or be confirmed.
//
// An instant is stored as what is left of a TTL that began then, so time needs no bound.

// A GroupFault is a rule about groups that is left out.
type GroupFault byte

// The faults.
const (
	NoGroupFault GroupFault = iota
	// OwnExpiryOnly ends a lease by its own last renewal, ignoring its group's.
	OwnExpiryOnly
	// AnswerEarly releases answers to joins and renewals without a confirm round.
	AnswerEarly
	// AnswerOutOfOrder releases an answer before that to an earlier request.
	AnswerOutOfOrder
	// AnswerAlone has a keeper answer the holder by itself.
	AnswerAlone
	// CountSent has a keeper answer by a renewal that it sent before the holder's request came.
	CountSent
	// CountUnjoined has a keeper count a lease as joined as soon as it has sent the join.
	CountUnjoined
	// TrustOldJoin has a keeper count the lease as joined by the answer to a join that it sent
	// before it gave the lease up.
	TrustOldJoin
	// TrustLateJoin has a keeper count the lease as joined by the answer to a join that it sent
	// before a renewal that was answered earlier.
	TrustLateJoin
	// CountOvertaking has a keeper count a renewal whose answer overtook that to an earlier one.
	CountOvertaking
	// TrustUnanswered has a keeper count the lease as joined by the answer to a join that it sent
	// before a renewal that it no longer waits for.
	TrustUnanswered
	// HideLeft does not report that the lease is in another keeper's group now.
	HideLeft
	// HideSilent renews a group that was dissolved because it was silent.
	HideSilent
	// SurviveElection renews groups at a leader that they were never joined at.
	SurviveElection
	// ForgetOnLeave makes the lease leave as of its join, not as of the last renewal that counted.
	ForgetOnLeave
	// ForgetOnBreak ends a group with its connection as if it had never been renewed.
	ForgetOnBreak
	// AnswerAfterLeave has a keeper answer by a renewal that it sent before the lease left.
	AnswerAfterLeave
	// LoseLeave does not tell the leader that the lease has left.
	LoseLeave
	// LeaveJoined tells the leader of a leave only if the keeper counts the lease as joined.
	LeaveJoined
	// CountJoins lets a lease leave only as often as it has joined.
	CountJoins
	// JoinWithdrawn lets a lease join that was checked before its permission was withdrawn.
	JoinWithdrawn
	// KeepWithdrawn leaves the lease in its group when its permission is withdrawn.
	KeepWithdrawn
)

// GroupBounds are the bounds of a search.
type GroupBounds struct {
	Terms   byte          // of leaders, at most maxTerms
	Sent    [keepers]byte // joins and renewals of each keeper, at most maxSent
	Crashes byte          // of keepers
	// Withdraw says that the permission to hold the lease may be withdrawn.
	Withdraw bool
	// Impatient says that keepers may stop waiting for an answer.
	Impatient bool
}

const (
	keepers  = 2
	maxTerms = 2
	maxSent  = 3
	maxQueue = 2 // messages of a connection, in each direction

	groupTTL    = 2 // ticks
	groupSilent = 1 // ticks after which a group dissolves
)

// The kinds of messages of a keeper.
const (
	join = 1 + iota
	leave
	renewGroup
)

// A message goes from a keeper to the leader, in order.
type message struct {
	kind     byte
	n        byte // its number; of a leave, that of the last one that counted for the holder
	received bool // and promised
	empty    bool // the keeper does not want the lease in the group
}

// An answer goes back. Answers may overtake each other.
type answer struct {
	kind, n byte
	in      bool // the lease is in the group, as far as the leader has reported
}

// A keeper keeps the lease alive over one connection to the leader of a term.
type keeper struct {
	term    byte
	wanted  bool // it holds the lease for somebody
	asked   bool // the leader may have the lease in the group
	joined  bool // and has it, as far as the keeper knows
	sent    byte // joins and renewals so far
	open    byte // the renewals that it waits for, a bit each
	counted byte // the last join or renewal that was good for the holder
	parted  byte // answers to joins up to this one do not count
	up      [maxQueue]message
	down    [maxQueue]answer
}

// A group is what the leader of a term has of a keeper.
type group struct {
	renewed byte              // when
	times   [maxSent + 1]byte // of each join and renewal
	left    left              // why the lease has left, if that was not reported yet
	joins   byte              // for CountJoins
}

// left is why a lease has left a group without having been asked to.
type left byte

const (
	moved     left = 1 + iota // another keeper has it
	dissolved                 // the group was silent, or ended by a change of permissions
)

// A lessor is the leader of a term, which may not know that there is a later one.
type lessor struct {
	own   byte // when the lease itself was renewed, or its time began
	in    byte // the keeper in whose group it is, from 1; 0 for none
	group [keepers]group
}

// A request is one of the holder, for more time.
type request struct {
	sent byte // when; 0 if there is none
	at   byte // the keeper that has it, from 1
	wait byte // the number of the join or renewal that it waits for
}

// groupWorld is a state of all that there is.
type groupWorld struct {
	valid      byte // for how long the holder believes that it has the lease
	gone, kept bool // the lease has ended; it is kept alive for nobody
	withdrawn  bool // nobody may hold the lease, as far as the current leader has applied
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

// tick lets time pass.
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
		w.request = request{} // it would promise nothing any more
	}
}

// forget makes worlds equal that differ only in what is over.
func (w *groupWorld) forget() {
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
					g.times[n] = 0 // to leave as of then makes no difference
				}
			}
		}
	}
}

// expired says whether the leader of a term may end the lease.
func (l *lessor) expired(f GroupFault) bool {
	return l.own == 0 && (l.in == 0 || f == OwnExpiryOnly || l.group[l.in-1].renewed == 0)
}

// part takes the lease out of its group. It lives on from the group's last renewal.
func (l *lessor) part(why left) {
	if l.in != 0 {
		g := &l.group[l.in-1]
		l.own = max(l.own, g.renewed)
		g.left, g.joins = why, 0
		l.in = 0
	}
}

// A groupStep is a way from one world to another.
type groupStep struct {
	before int32
	text   string
	at     byte
}

type groupSearch struct {
	bounds GroupBounds
	fault  GroupFault
	seed   maphash.Seed
	seen   map[uint64]struct{} // hashes, as in search
	open   []*groupWorld
	steps  []groupStep
	found  GroupsFound
	from   int32
}

// GroupsFound is what a search of groups came to.
type GroupsFound struct {
	Worlds int
	// Broken is what led to a lease that ended early or was kept for nobody; nil if none was.
	Broken []string
	// Counts of steps.
	Elections, Joins, Renewals, Leaves, Moves, Expiries int
}

// SearchGroups visits all worlds within the bounds, and stops at the first that breaks a promise.
func SearchGroups(b GroupBounds, f GroupFault) GroupsFound {
	s := &groupSearch{
		bounds: b, fault: f, from: -1, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{},
	}
	s.visit(firstGroupWorld(), "", 0)
	for at := 0; at < len(s.open) && s.found.Broken == nil; at++ {
		s.from = int32(at)
		w := s.open[at]
		s.open[at] = nil // only the way stays
		s.next(*w)
	}
	s.found.Worlds = len(s.seen)
	return s.found
}

func (s *groupSearch) visit(w groupWorld, text string, at byte) {
	w.forget()
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

// next visits all worlds that are one step from w.
func (s *groupSearch) next(w groupWorld) {
	n := w
	n.tick()
	s.visit(n, "the clock ticks", 0)
	if w.term < s.bounds.Terms {
		n := w
		n.term++
		n.lessor[n.term-1].own = groupTTL
		s.found.Elections++
		s.visit(n, "a leader of another term is elected", 0)
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

// ask visits what can become of the holder's request.
func (s *groupSearch) ask(w groupWorld) {
	if w.request.sent == 0 {
		w.request.sent = groupTTL
		s.visit(w, "the holder asks for more time", 0)
		return
	}
	if w.request.at == 0 {
		for k := range byte(keepers) {
			s.arrive(w, k)
		}
	}
	w.request = request{}
	s.visit(w, "the holder's request, or its answer, is lost", 0)
}

// arrive has keeper k take the holder's request.
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
	s.visit(w, "keeper %d has the holder's request", k)
}

// put puts a message into the connection, and reports whether there was room.
func (k *keeper) put(m message) bool {
	for i := range k.up {
		if k.up[i] == (message{}) {
			k.up[i] = m
			return true
		}
	}
	return false
}

// send has a keeper send a join or a renewal, and reports whether that is within the bounds.
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

// keep visits what keeper k may do by itself.
func (s *groupSearch) keep(w groupWorld, k byte) {
	n := w
	if s.send(&n, k, renewGroup) {
		s.visit(n, "keeper %d sends a renewal", k)
	}
	if w.keeper[k].wanted {
		s.giveUp(w, k)
		n = w
		if s.send(&n, k, join) {
			s.visit(n, "keeper %d joins the lease once more", k)
		}
	}
	if me := &w.keeper[k]; me.open != 0 && s.bounds.Impatient {
		first := byte(bits.TrailingZeros8(me.open))
		me.open &^= 1 << first
		me.joined = false
		if s.fault != TrustUnanswered {
			me.parted = max(me.parted, first)
		}
		s.visit(w, "keeper %d no longer waits for its first renewal", k)
	}
}

// giveUp has keeper k give the lease up: the holder has released it, or was not heard in time.
func (s *groupSearch) giveUp(w groupWorld, k byte) {
	me := &w.keeper[k]
	as, told := me.counted, me.asked && s.fault != LoseLeave
	if s.fault == ForgetOnLeave {
		as = 0
	}
	if s.fault == LeaveJoined {
		told = me.joined
	}
	me.wanted, me.asked, me.joined, me.parted, me.counted = false, false, false, me.sent, 0
	if told && !me.put(message{kind: leave, n: as}) {
		return
	}
	if w.request.at == k+1 && s.fault != AnswerAfterLeave {
		w.request = request{}
	}
	s.visit(w, "keeper %d gives the lease up", k)
}

// receive has the leader that keeper k is connected to take the first message.
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
		case join: // a renewal of the lease, too
			l.own, g.times[m.n] = groupTTL, groupTTL
			if l.in == 0 { // one that was checkpointed, say, is renewed and does not join
				s.visit(w, "keeper %d renews the lease, which does not join", k)
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
		s.visit(w, "the leader receives a message of keeper %d", k)
		return
	}
}

// enter has the lease join the group of keeper k.
func (s *groupSearch) enter(l *lessor, k byte) {
	g := &l.group[k]
	if l.in != k+1 {
		if l.in != 0 {
			s.found.Moves++
		}
		l.part(moved)
		l.in = k + 1
	}
	if s.fault == CountJoins {
		g.joins++
	}
	s.found.Joins++
}

// leave takes the lease out of a group as of a renewal.
func (s *groupSearch) leave(l *lessor, k, as byte) {
	g := &l.group[k]
	if l.in != k+1 {
		return
	}
	if g.joins > 1 { // CountJoins
		g.joins--
		return
	}
	g.joins = 0
	l.own, l.in = max(l.own, g.times[as]), 0
	s.found.Leaves++
}

// withdraw has the current leader apply that the permission to hold the lease is withdrawn. A
// follower that has not applied it yet may still check and forward a join.
func (s *groupSearch) withdraw(w groupWorld) {
	if !s.bounds.Withdraw || w.withdrawn {
		return
	}
	w.withdrawn = true
	if s.fault != KeepWithdrawn {
		w.lessor[w.term-1].part(dissolved)
	}
	s.visit(w, "the permission is withdrawn", 0)
}

// drop takes a message out of the connection.
func (k *keeper) drop(i int) {
	copy(k.up[i:], k.up[i+1:])
	k.up[maxQueue-1] = message{}
}

// release has the leader answer the first message of keeper k, if its promise is confirmed.
func (s *groupSearch) release(w groupWorld, k byte) {
	if t := w.keeper[k].term; t != w.term && s.fault != AnswerEarly {
		return // no majority follows it
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

// answer has the leader answer message i of keeper k.
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

// answered has keeper k take any of the answers that are on their way.
func (s *groupSearch) answered(w groupWorld, k byte) {
	for i, a := range w.keeper[k].down {
		if a != (answer{}) {
			n := w
			me := &n.keeper[k]
			copy(me.down[i:], me.down[i+1:])
			me.down[maxQueue-1] = answer{}
			s.take(&n, k, a)
			s.visit(n, "keeper %d takes an answer", k)
		}
	}
}

// take has keeper k take an answer.
func (s *groupSearch) take(w *groupWorld, k byte, a answer) {
	me := &w.keeper[k]
	if a.kind == join {
		s.count(w, k, a.n)
		if a.n > me.parted || s.fault == TrustOldJoin && me.wanted {
			me.joined = a.in || s.fault == CountUnjoined
		}
		return
	}
	if s.fault != TrustLateJoin {
		me.parted = max(me.parted, a.n)
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

// count has keeper k answer the holder's request if join or renewal n was sent after it came.
func (s *groupSearch) count(w *groupWorld, k, n byte) {
	if w.request.at == k+1 && w.request.wait <= n {
		w.valid = max(w.valid, w.request.sent)
		w.request = request{}
		w.keeper[k].counted = n
		s.found.Renewals++
	}
}

// breaks has keeper k start again, or turn to the current leader. Either way it has a new
// connection, and knows of no lease.
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
		s.visit(w, "keeper %d turns to the current leader", k)
	case w.crashes < s.bounds.Crashes:
		w.crashes++
		*me = keeper{term: w.term}
		if s.fault == ForgetOnBreak {
			l.group[k].renewed = 0
		}
		if l.in == k+1 { // the group ends with the connection
			l.part(0)
		}
		l.group[k] = group{}
		s.visit(w, "keeper %d starts again", k)
	}
}

// dissolve has the leader of a term dissolve the group of keeper k because it is silent.
func (s *groupSearch) dissolve(w groupWorld, t, k byte) {
	l := &w.lessor[t]
	if l.in == k+1 && max(l.own, l.group[k].renewed) <= groupTTL-groupSilent {
		l.part(dissolved)
		s.visit(w, "the group of keeper %d is silent, and dissolves", k)
	}
}
