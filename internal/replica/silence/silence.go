// Package silence says when a member that is not heard is taken for hung or cut off.
//
// A process that is killed takes its connections with it, and is missed at once. One that is
// stopped, or behind a cut link, only says nothing. So does one that is busy, and the member that
// listens may have been held up itself. So silence alone decides nothing:
//
//   - A member that has not been heard for a heartbeat and a half is asked, over a connection and
//     by goroutines that have nothing to do with its core. A busy process answers, a stopped one
//     does not.
//   - It is silent when it has not been heard for its limit, and has not answered for twice as long
//     as its slowest answer of the last minutes took.
//   - The limit is three heartbeats, or half as much again as the longest pause from which the
//     member came back in the last minutes, but no more than the election timeout. So a member
//     that stutters is taken for hung once, and not each time.
//   - A member that was late itself counts anew from then.
//
// No promise rests on it: to be wrong costs an election, and that only if a majority is wrong at
// one time.
//
// The package is pure: instants are arguments.
package silence

import (
	"cmp"
	"slices"

	"leasehold.dev/lease"
)

// Config says how members speak. The zero value watches nobody.
type Config struct {
	// Heartbeat is how often a member that is watched speaks, in milliseconds.
	Heartbeat lease.TTL
	// Most is the longest limit, but for links that need more: the election timeout.
	Most lease.TTL
}

const (
	// leastWait is how long an answer may take, at least, in milliseconds: what a process may wait
	// for a processor, or for its garbage collector, that has answered at once for minutes.
	leastWait = 100
	// tolerance is how late the one that watches may be, in milliseconds, and still trust what it
	// has not heard.
	tolerance = 50
	// restEvery is how often members are asked that are not watched, in milliseconds.
	restEvery = 1000
	// memory is for how long measurements count, at least; at most twice as long.
	memory = 5 * 60_000
	// lostAfter is after how many limits a silent member is lost.
	lostAfter = 2
)

// Watch watches other members. It is not safe for concurrent use.
type Watch struct {
	cfg     Config
	watched []uint64         // in ID order
	of      map[uint64]*peer // all that were measured or watched
	due     lease.Instant    // when Look is to be called, at the latest; 0: nobody is to be heard
	late    lease.Instant    // when this member was late the last time
}

// peer is what is known of another member.
type peer struct {
	heard  lease.Instant // or since when it is watched, or this member is not late
	asked  lease.Instant // when it was asked first since it was heard; 0: it was not
	again  lease.Instant // when it is asked again
	silent bool
	lost   bool
	// missed is when it had been heard last when it fell silent, watched or not since; 0: it has
	// been heard again.
	missed lease.Instant
	back   lease.Instant // when its last outage ended

	roundTrip worst // of its answers
	pause     worst // of its silences that ended
}

// worst is the longest of several measurements of the last minutes.
type worst struct {
	since       lease.Instant
	now, before lease.TTL
}

func (w *worst) note(took lease.TTL, at lease.Instant) {
	if at-w.since >= memory {
		w.before = w.now
		if at-w.since >= 2*memory {
			w.before = 0
		}
		w.now, w.since = 0, at
	}
	w.now = max(w.now, took)
}

// at returns the longest as of an instant.
func (w *worst) at(now lease.Instant) lease.TTL {
	switch age := now - w.since; {
	case age < memory:
		return max(w.now, w.before)
	case age < 2*memory:
		return w.now
	}
	return 0
}

// New returns a Watch of nobody.
func New(c Config) *Watch { return &Watch{cfg: c, of: make(map[uint64]*peer)} }

// Advance says what time it is, before all that has come in since. If that is later than this
// member meant to look, it was held up itself, and what it has not heard says nothing.
func (w *Watch) Advance(now lease.Instant) {
	if w.due == 0 || now-w.due <= tolerance {
		return
	}
	w.late, w.due = now, 0
	for _, p := range w.of {
		p.begin(now)
		p.missed = 0
	}
}

// Follow says which members are to be heard: the leader, or all voters at the leader. Those that
// were not until now count as heard. The list is in ID order.
func (w *Watch) Follow(members []uint64, now lease.Instant) {
	if slices.Equal(w.watched, members) {
		return
	}
	for _, id := range members {
		if !slices.Contains(w.watched, id) {
			w.peer(id, now).begin(now)
		}
	}
	w.watched = append(w.watched[:0], members...)
}

// Forget drops what is known of all members but these.
func (w *Watch) Forget(but []uint64) {
	for id := range w.of {
		if !slices.Contains(but, id) {
			delete(w.of, id)
		}
	}
	w.watched = slices.DeleteFunc(w.watched, func(id uint64) bool { return w.of[id] == nil })
}

func (w *Watch) peer(id uint64, now lease.Instant) *peer {
	p := w.of[id]
	if p == nil {
		p = &peer{heard: now}
		w.of[id] = p
	}
	return p
}

// begin counts from now on.
func (p *peer) begin(now lease.Instant) {
	p.heard, p.asked, p.silent, p.lost = now, 0, false, false
}

// Heard says that a message of a member is here. A pause that was longer than the longest limit is
// an outage and no stutter: no limit would have bridged it, so nothing is learned from it.
func (w *Watch) Heard(member uint64, now lease.Instant) {
	p := w.of[member]
	if p == nil {
		return
	}
	watched := slices.Contains(w.watched, member)
	pause, most := lease.TTL(now-p.heard), w.cfg.Most
	switch {
	case p.missed != 0:
		pause = lease.TTL(now - p.missed)
	case !watched:
		most += restEvery
	}
	switch {
	case pause > most:
		p.back = now
	case p.missed != 0 || watched && p.asked != 0:
		p.pause.note(pause, now)
	}
	p.begin(now)
	p.missed = 0
}

// Answered says that a member has answered, and how long that took. What was asked before this
// member was held up itself, or before the end of an outage, says nothing of the way there.
func (w *Watch) Answered(member uint64, took lease.TTL, now lease.Instant) {
	p := w.peer(member, now)
	w.Heard(member, now)
	if asked := now - lease.Instant(took); took <= w.cfg.Most && asked >= max(w.late, p.back) {
		p.roundTrip.note(took, now)
	}
}

// News is what a look brings.
type News struct {
	// Ask are the members that are to be asked now.
	Ask []uint64
	// Silent are those that are silent from now on: they hang, or are cut off.
	Silent []State
	// Changed says that more members are lost than before.
	Changed bool
}

// Look returns what is to be done now.
func (w *Watch) Look(now lease.Instant) (news News) {
	for _, id := range w.watched {
		p := w.of[id]
		quiet := lease.TTL(now - p.heard)
		if !p.silent && quiet >= w.askAfter() {
			if p.asked == 0 {
				p.asked, p.again = now, now
			}
			if now >= p.again {
				p.again = now + lease.Instant(w.askAfter())
				news.Ask = append(news.Ask, id)
			}
		}
		if !p.silent && p.asked != 0 && now >= w.silentAt(p, now) {
			p.silent, p.missed = true, p.heard
			news.Silent = append(news.Silent, w.state(id, p, now))
		}
		if p.silent && !p.lost && quiet >= lostAfter*w.limit(p, now) {
			p.lost, news.Changed = true, true
		}
	}
	w.due = w.plan(now)
	return news
}

// Next returns when Look is to be called, if nothing is heard before; ok is false if nobody is to
// be heard. To be late is noticed.
func (w *Watch) Next() (at lease.Instant, ok bool) { return w.due, w.due != 0 }

func (w *Watch) plan(now lease.Instant) (at lease.Instant) {
	for _, id := range w.watched {
		p := w.of[id]
		var next lease.Instant
		switch {
		case p.lost:
			continue
		case p.silent:
			next = p.heard + lease.Instant(lostAfter*w.limit(p, now))
		case p.asked == 0:
			next = p.heard + lease.Instant(w.askAfter())
		default:
			next = min(p.again, w.silentAt(p, now))
		}
		if at == 0 || next < at {
			at = next
		}
	}
	return at
}

// askAfter is how long a member is quiet before it is asked: one late heartbeat is no silence.
func (w *Watch) askAfter() lease.TTL { return w.cfg.Heartbeat * 3 / 2 }

// wait is how long an answer of a member may take.
func (w *Watch) wait(p *peer, now lease.Instant) lease.TTL {
	return max(leastWait, 2*p.roundTrip.at(now))
}

// limit is for how long a member may be quiet.
func (w *Watch) limit(p *peer, now lease.Instant) lease.TTL {
	limit := min(max(3*w.cfg.Heartbeat, p.pause.at(now)*3/2), w.cfg.Most)
	return max(limit, w.askAfter()+w.wait(p, now))
}

// silentAt is when a member that was asked is silent, unless it is heard before.
func (w *Watch) silentAt(p *peer, now lease.Instant) lease.Instant {
	return max(p.heard+lease.Instant(w.limit(p, now)), p.asked+lease.Instant(w.wait(p, now)))
}

// Lost reports whether a member has been silent for so long that this leader can do nothing with
// it. Members that are not watched are not lost.
func (w *Watch) Lost(member uint64) bool {
	p := w.of[member]
	return p != nil && p.lost && slices.Contains(w.watched, member)
}

// State is what is known of a member.
type State struct {
	Member uint64
	// Quiet is for how long it has not been heard, if it is watched; Limit is for how long it may.
	Quiet, Limit lease.TTL
	// RoundTrip is the longest that an answer took in the last minutes.
	RoundTrip lease.TTL
}

func (w *Watch) state(id uint64, p *peer, now lease.Instant) State {
	s := State{Member: id, Limit: w.limit(p, now), RoundTrip: p.roundTrip.at(now)}
	if slices.Contains(w.watched, id) {
		s.Quiet = lease.TTL(now - p.heard)
	}
	return s
}

// States returns what is known of the members that were measured, in ID order.
func (w *Watch) States(now lease.Instant) []State {
	out := make([]State, 0, len(w.of))
	for id, p := range w.of {
		out = append(out, w.state(id, p, now))
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Compare(a.Member, b.Member) })
	return out
}
