// Package silence decides when an unresponsive member is considered hung or cut off.
//
// When a process is killed, its connections break, so the failure is detected immediately. A
// stopped process, or one behind a broken link, simply sends nothing. However, a busy process may
// also send nothing, and the watching member may itself have been delayed. So missing heartbeats
// alone are not enough:
//
//   - A member that has sent nothing for one and a half heartbeats is probed, over a connection
//     and by goroutines that do not depend on its core. A busy process answers; a stopped process
//     does not.
//   - A member becomes silent once it has sent nothing for its limit and has not answered for
//     twice the time of its slowest answer in the last few minutes.
//   - The limit is three heartbeats, or one and a half times the longest pause from which the
//     member recovered in the last few minutes, but at most the election timeout. So a member
//     that stutters is considered hung once, not every time.
//   - A watching member that was delayed itself restarts all countdowns.
//
// No guarantee depends on this. A mistake costs an election, and only if a majority makes the
// mistake at the same time.
//
// The package is pure: the caller passes in the time.
package silence

import (
	"cmp"
	"slices"

	"leasehold.dev/lease"
)

// Config configures a Watch. The zero value watches no members.
type Config struct {
	// Heartbeat is the time between a watched member's heartbeats, in milliseconds.
	Heartbeat lease.TTL
	// Most is the upper bound on the limit, except for slow links. It is the election timeout.
	Most lease.TTL
}

const (
	// leastWait is the minimum time to wait for an answer, in milliseconds. Even a process that has
	// answered promptly for minutes may have to wait for a processor or its garbage collector.
	leastWait = 100
	// tolerance is how late the watching member can be, in milliseconds. If it is any later, it
	// disregards the lack of messages.
	tolerance = 50
	// restEvery is the time between probes of the members that are not being watched, in
	// milliseconds.
	restEvery = 1000
	// memory is the minimum time for which a measurement is remembered, in milliseconds. The
	// maximum is twice as long.
	memory = 5 * 60_000
	// lostAfter is how many times its limit a silent member must be quiet to count as lost.
	lostAfter = 2
)

// Watch watches other members. It is not safe for concurrent use.
type Watch struct {
	cfg     Config
	watched []uint64         // sorted by ID
	of      map[uint64]*peer // all measured or watched members
	due     lease.Instant    // latest time of the next Look; 0 if nothing is pending
	late    lease.Instant    // when this member was last delayed
}

// peer is the state of one other member.
type peer struct {
	lastSeen lease.Instant // time of the last message, or of the last restart of the countdown
	probed   lease.Instant // first probe since the last message; 0 if there was none
	again    lease.Instant // time of the next probe
	silent   bool
	lost     bool
	// missed is the time of the last message before the member became silent, even if it is no
	// longer watched. It is 0 if a message has been received since.
	missed lease.Instant
	back   lease.Instant // when its last outage ended

	roundTrip worst // longest time to answer
	pause     worst // longest time between messages
}

// worst tracks the largest measurement of the last few minutes.
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

// at returns the largest measurement as of an instant.
func (w *worst) at(now lease.Instant) lease.TTL {
	switch age := now - w.since; {
	case age < memory:
		return max(w.now, w.before)
	case age < 2*memory:
		return w.now
	}
	return 0
}

// New returns a Watch that watches no members.
func New(c Config) *Watch { return &Watch{cfg: c, of: make(map[uint64]*peer)} }

// Advance sets the time. It must be called before passing in any input that has arrived since the
// last call. If the time is later than the next planned look, this member was itself delayed, and
// the lack of messages proves nothing.
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

// Follow sets the members to watch: the leader or, on the leader, all voters. A newly watched
// member is treated as if it had just sent a message. The list must be sorted.
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

// Forget drops the state of all members except the given ones.
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
		p = &peer{lastSeen: now}
		w.of[id] = p
	}
	return p
}

// begin restarts the countdown.
func (p *peer) begin(now lease.Instant) {
	p.lastSeen, p.probed, p.silent, p.lost = now, 0, false, false
}

// Received records a message from a member. A pause longer than the maximum limit is an outage, not
// a stutter. No limit could have covered it, so it is not recorded as a measurement.
func (w *Watch) Received(member uint64, now lease.Instant) {
	p := w.of[member]
	if p == nil {
		return
	}
	watched := slices.Contains(w.watched, member)
	pause, most := lease.TTL(now-p.lastSeen), w.cfg.Most
	switch {
	case p.missed != 0:
		pause = lease.TTL(now - p.missed)
	case !watched:
		most += restEvery
	}
	switch {
	case pause > most:
		p.back = now
	case p.missed != 0 || watched && p.probed != 0:
		p.pause.note(pause, now)
	}
	p.begin(now)
	p.missed = 0
}

// Answered records a member's answer and how long it took. If the probe was sent before this member
// was delayed, or before an outage ended, the answer does not count as a measurement.
func (w *Watch) Answered(member uint64, took lease.TTL, now lease.Instant) {
	p := w.peer(member, now)
	w.Received(member, now)
	if sent := now - lease.Instant(took); took <= w.cfg.Most && sent >= max(w.late, p.back) {
		p.roundTrip.note(took, now)
	}
}

// News is the result of Look.
type News struct {
	// Ask lists the members to probe now.
	Ask []uint64
	// Silent lists the members that have just become silent: they are hung or cut off.
	Silent []State
	// Changed is true if more members are lost than at the previous Look.
	Changed bool
}

// Look returns the probes to send and the members that have become silent.
func (w *Watch) Look(now lease.Instant) (news News) {
	for _, id := range w.watched {
		p := w.of[id]
		quiet := lease.TTL(now - p.lastSeen)
		if !p.silent && quiet >= w.askAfter() {
			if p.probed == 0 {
				p.probed, p.again = now, now
			}
			if now >= p.again {
				p.again = now + lease.Instant(w.askAfter())
				news.Ask = append(news.Ask, id)
			}
		}
		if !p.silent && p.probed != 0 && now >= w.silentAt(p, now) {
			p.silent, p.missed = true, p.lastSeen
			news.Silent = append(news.Silent, w.state(id, p, now))
		}
		if p.silent && !p.lost && quiet >= lostAfter*w.limit(p, now) {
			p.lost, news.Changed = true, true
		}
	}
	w.due = w.plan(now)
	return news
}

// Next returns when to call Look if no message arrives before then. ok is false if nothing is
// pending. Advance detects when Look is called late.
func (w *Watch) Next() (at lease.Instant, ok bool) { return w.due, w.due != 0 }

func (w *Watch) plan(now lease.Instant) (at lease.Instant) {
	for _, id := range w.watched {
		p := w.of[id]
		var next lease.Instant
		switch {
		case p.lost:
			continue
		case p.silent:
			next = p.lastSeen + lease.Instant(lostAfter*w.limit(p, now))
		case p.probed == 0:
			next = p.lastSeen + lease.Instant(w.askAfter())
		default:
			next = min(p.again, w.silentAt(p, now))
		}
		if at == 0 || next < at {
			at = next
		}
	}
	return at
}

// askAfter is how long a member can be quiet before it is probed. A single late heartbeat is
// tolerated.
func (w *Watch) askAfter() lease.TTL { return w.cfg.Heartbeat * 3 / 2 }

// wait is how long a member can take to answer.
func (w *Watch) wait(p *peer, now lease.Instant) lease.TTL {
	return max(leastWait, 2*p.roundTrip.at(now))
}

// limit is how long a member can be quiet.
func (w *Watch) limit(p *peer, now lease.Instant) lease.TTL {
	limit := min(max(3*w.cfg.Heartbeat, p.pause.at(now)*3/2), w.cfg.Most)
	return max(limit, w.askAfter()+w.wait(p, now))
}

// silentAt returns when a probed member becomes silent if no message arrives before then.
func (w *Watch) silentAt(p *peer, now lease.Instant) lease.Instant {
	return max(p.lastSeen+lease.Instant(w.limit(p, now)), p.probed+lease.Instant(w.wait(p, now)))
}

// Lost reports whether a watched member has been silent for so long that this leader has to
// continue without it.
func (w *Watch) Lost(member uint64) bool {
	p := w.of[member]
	return p != nil && p.lost && slices.Contains(w.watched, member)
}

// State describes the responsiveness of a member.
type State struct {
	Member uint64
	// Quiet is how long a watched member has gone without sending anything. Limit is how long it
	// can be quiet.
	Quiet, Limit lease.TTL
	// RoundTrip is the longest that the member has taken to answer in the last few minutes.
	RoundTrip lease.TTL
}

func (w *Watch) state(id uint64, p *peer, now lease.Instant) State {
	s := State{Member: id, Limit: w.limit(p, now), RoundTrip: p.roundTrip.at(now)}
	if slices.Contains(w.watched, id) {
		s.Quiet = lease.TTL(now - p.lastSeen)
	}
	return s
}

// States returns the states of all members with measurements, sorted by ID.
func (w *Watch) States(now lease.Instant) []State {
	out := make([]State, 0, len(w.of))
	for id, p := range w.of {
		out = append(out, w.state(id, p, now))
	}
	slices.SortFunc(out, func(a, b State) int { return cmp.Compare(a.Member, b.Member) })
	return out
}
