package model

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
)

// This file models leases that are renewed in groups (docs/leases.md). A keeper, which is a relay
// or the holder's own client, joins the lease to its group at the leader and renews the group by
// one message. Elections are reduced to what the other model shows: a new leader gives the lease
// its full TTL, and only the present leader can end it or be confirmed.
//
// An instant is stored as what is left of a TTL that began then, so time needs no bound.

// A GroupFault is a rule about groups that is left out.
type GroupFault byte

// The faults.
const (
	NoGroupFault GroupFault = iota
	// OwnExpiryOnly ends a lease by its own last renewal, whatever its group's.
	OwnExpiryOnly
	// AnswerEarly releases answers to joins and renewals without a confirm round.
	AnswerEarly
	// AnswerAlone has a keeper answer the holder by itself.
	AnswerAlone
	// CountSent has a keeper answer by a renewal that it sent before the holder's request came.
	CountSent
	// CountUnjoined has a keeper take a lease for joined as soon as it has sent the join.
	CountUnjoined
	// TrustOldJoin has a keeper take the lease for joined by the answer to a join that it sent
	// before it gave the lease up.
	TrustOldJoin
	// HideLeft does not report that the lease is in another keeper's group now.
	HideLeft
	// HideSilent renews a group that was dissolved because it was silent.
	HideSilent
	// SurviveElection renews groups at a leader that they were never joined at.
	SurviveElection
	// ForgetOnLeave makes the lease leave as of its join, not as of the last renewal that counted.
	ForgetOnLeave
	// AnswerAfterLeave has a keeper answer by a renewal that it sent before the lease left.
	AnswerAfterLeave
	// LoseLeave does not tell the leader that the lease has left.
	LoseLeave
	// CountJoins lets a lease leave only as often as it has joined.
	CountJoins
)

// GroupBounds are the bounds of a search.
type GroupBounds struct {
	Terms   byte          // of leaders, at most maxTerms
	Sent    [keepers]byte // joins and renewals of each keeper, at most maxSent
	Crashes byte          // of keepers
}

const (
	keepers  = 2
	maxTerms = 2
	maxSent  = 3
	maxQueue = 2 // messages of a connection to the leader

	groupTTL    = 2 // ticks
	groupSilent = 1 // ticks after which a group dissolves
)

// The kinds of messages of a keeper.
const (
	join = 1 + iota
	leave
	renewGroup
)

// A message goes from a keeper to the leader, in order. Promises are confirmed in any order.
type message struct {
	kind     byte
	n        byte // its number; of a leave, that of the last one that counted for the holder
	received bool // and promised
	empty    bool // the keeper has nothing in the group
}

// An answer goes back.
type answer struct {
	kind, n byte
	in      bool // the lease is in the group, as far as the leader has told
}

// A keeper keeps the lease alive over one connection to the leader of a term.
type keeper struct {
	term    byte
	joined  bool
	joining byte // joins without an answer
	sent    byte // joins and renewals so far
	counted byte // the last of them that was good for the holder
	since   byte // answers up to this one say nothing of whether the lease is in the group
	up      [maxQueue]message
	down    answer
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
	dissolved                 // the group was silent
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
	if w.gone {
		return // nothing more can go wrong
	}
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
		s.visit(n, "the lease ends", 0)
	}
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

// send puts a message into the connection, and reports whether there was room.
func (k *keeper) send(m message) bool {
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
		k.joining++
	}
	return k.send(message{kind: kind, n: k.sent, empty: !k.joined && k.joining == 0})
}

// keep visits what keeper k may send by itself.
func (s *groupSearch) keep(w groupWorld, k byte) {
	n := w
	if s.send(&n, k, renewGroup) {
		s.visit(n, "keeper %d sends a renewal", k)
	}
	if w.keeper[k].joined {
		n := w
		me := &n.keeper[k]
		as := me.counted
		if s.fault == ForgetOnLeave {
			as = 0
		}
		me.joined, me.since = false, me.sent
		if s.fault == LoseLeave || me.send(message{kind: leave, n: as}) {
			if n.request.at == k+1 && s.fault != AnswerAfterLeave {
				n.request = request{}
			}
			s.visit(n, "keeper %d gives the lease up", k)
		}
		n = w
		if s.send(&n, k, join) {
			s.visit(n, "keeper %d joins the lease once more", k)
		}
	}
}

// receive has the leader that keeper k is connected to take the first message.
func (s *groupSearch) receive(w groupWorld, k byte) {
	me := &w.keeper[k]
	l := &w.lessor[me.term-1]
	g := &l.group[k]
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
			s.enter(l, k)
		case renewGroup:
			g.renewed, g.times[m.n] = groupTTL, groupTTL
			w.kept = m.empty && l.in == k+1
		case leave:
			s.leave(l, k, m.n)
			me.drop(i)
		}
		s.visit(w, "the leader receives a message of keeper %d", k)
		return
	}
}

// leave takes the lease out of a group as of a renewal.
func (s *groupSearch) leave(l *lessor, k, as byte) {
	g := &l.group[k]
	if l.in != k+1 {
		return
	}
	if g.joins--; s.fault == CountJoins && g.joins > 0 {
		return
	}
	g.joins = 0
	l.own, l.in = max(l.own, g.times[as]), 0
	s.found.Leaves++
}

// drop takes a message out of the connection.
func (k *keeper) drop(i int) {
	copy(k.up[i:], k.up[i+1:])
	k.up[maxQueue-1] = message{}
}

// release has the leader answer any message of keeper k whose promise is confirmed.
func (s *groupSearch) release(w groupWorld, k byte) {
	if t := w.keeper[k].term; t != w.term && s.fault != AnswerEarly {
		return // no majority follows it
	}
	for i, m := range w.keeper[k].up {
		if !m.received || w.keeper[k].down != (answer{}) {
			continue
		}
		n := w
		me := &n.keeper[k]
		l := &n.lessor[me.term-1]
		g := &l.group[k]
		hidden := s.fault == HideLeft && g.left == moved ||
			s.fault == HideSilent && g.left == dissolved
		me.down = answer{m.kind, m.n, g.left == 0 || hidden}
		if m.kind == join {
			me.down.in = l.in == k+1
		}
		g.left = 0
		me.drop(i)
		s.visit(n, "the leader answers keeper %d", k)
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
	g.joins++
	s.found.Joins++
}

// answered has keeper k take the first answer.
func (s *groupSearch) answered(w groupWorld, k byte) {
	me := &w.keeper[k]
	a := me.down
	if a == (answer{}) {
		return
	}
	me.down = answer{}
	if a.kind == join {
		me.joining--
		s.count(&w, k, a.n)
		if a.n > me.since || s.fault == TrustOldJoin {
			me.joined = a.in || s.fault == CountUnjoined
		}
	}
	switch {
	case !a.in && a.kind != join:
		me.joined = false
	case a.kind != join && (me.joined || s.fault == AnswerAfterLeave):
		s.count(&w, k, a.n)
	}
	s.visit(w, "keeper %d takes an answer", k)
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

// breaks has keeper k start again, or turn to the present leader. Either way it has a new
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
		*me = keeper{term: w.term, joined: joined, sent: me.sent}
		s.visit(w, "keeper %d turns to the present leader", k)
	case w.crashes < s.bounds.Crashes:
		w.crashes++
		*me = keeper{term: w.term}
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
