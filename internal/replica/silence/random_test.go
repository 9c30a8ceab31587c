package silence

import (
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// world is a member that monitors others. The others send messages, stutter, stop and return at
// random.
type world struct {
	t      *testing.T
	r      *rand.Rand
	w      *Watch
	now    lease.Instant
	others []*other
	fresh  lease.Instant // when the monitoring member was last late
	silent int           // number of times that a member was reported silent
}

// other is a monitored member.
type other struct {
	id       uint64
	beat     lease.Instant // when it sends its next heartbeat
	answer   lease.Instant // when it sends its next answer; 0 if not asked
	asked    lease.Instant // when it was first asked since its last message; 0 if not asked
	again    lease.Instant // when it was last asked
	lastSeen lease.Instant
	stops    lease.Instant // it sends nothing until then
	silent   bool
}

// newWorld returns a world with two monitored members.
func newWorld(t *testing.T, seed uint64) *world {
	v := &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), w: New(Config{Heartbeat: 100, Most: 1000}), now: 1000,
		fresh: 1000,
	}
	for id := range uint64(2) {
		v.others = append(v.others, &other{id: id + 2, beat: v.now + 50, lastSeen: v.now})
	}
	v.w.Advance(v.now)
	v.w.Follow([]uint64{2, 3}, v.now)
	v.look()
	return v
}

// step advances to the next instant at which something happens.
func (v *world) step() {
	at, ok := v.w.Next()
	if !ok {
		at = v.now + 1000 // all members are lost
	}
	for _, o := range v.others {
		at = min(at, o.next())
	}
	switch n := v.r.IntN(300); { // the monitoring member itself can be delayed
	case at > v.now && n == 0:
		at += lease.Instant(v.r.IntN(3000))
	case at > v.now && n < 20:
		at += lease.Instant(v.r.IntN(tolerance))
	}
	if due, ok := v.w.Next(); ok && at-due > tolerance {
		v.fresh = at
		for _, o := range v.others {
			o.lastSeen, o.asked, o.silent = at, 0, false
		}
	}
	v.now = max(v.now, at)
	v.w.Advance(v.now)
	for _, o := range v.others {
		v.speak(o)
	}
	v.look()
}

// next returns when the member next sends something.
func (o *other) next() lease.Instant {
	at := o.beat
	if o.answer != 0 {
		at = min(at, o.answer)
	}
	return max(at, o.stops)
}

// speak delivers a member's heartbeat or answer if it is due. Sometimes the member then sends
// nothing for a while.
func (v *world) speak(o *other) {
	if o.next() > v.now {
		return
	}
	if o.answer != 0 && o.answer <= v.now {
		v.w.Answered(o.id, lease.TTL(v.now-o.asked), v.now)
	} else {
		v.w.Received(o.id, v.now)
	}
	o.lastSeen, o.asked, o.answer, o.silent = v.now, 0, 0, false
	o.beat = v.now + 100 + lease.Instant(v.r.IntN(40))
	if v.r.IntN(100) == 0 {
		o.stops = v.now + lease.Instant(v.r.IntN(4000))
	}
}

// look checks the result of Look.
func (v *world) look() {
	news := v.w.Look(v.now)
	for _, o := range v.others {
		if slices.Contains(news.Ask, o.id) {
			if o.asked == 0 {
				o.asked = v.now
			} else if v.now-o.again < 150 {
				v.t.Fatalf("%d: member %d asked again after only %d", v.now, o.id, v.now-o.again)
			}
			o.again = v.now
			o.answer = v.now + lease.Instant(1+v.r.IntN(leastWait-1))
		}
	}
	for _, s := range news.Silent {
		o := v.others[s.Member-2]
		v.silent++
		quiet := v.now - o.lastSeen
		switch {
		case o.silent:
			v.t.Fatalf("%d: member %d is silent twice without a message in between", v.now, o.id)
		case lease.TTL(quiet) != s.Quiet || s.Quiet < s.Limit || s.Limit < 300 ||
			s.Limit > max(1000, 150+2*s.RoundTrip):
			v.t.Fatalf("%d: member %d was active %d ago: %+v", v.now, o.id, quiet, s)
		case o.asked == 0 || lease.TTL(v.now-o.asked) < max(leastWait, 2*s.RoundTrip):
			v.t.Fatalf("%d: member %d had too little time to answer: asked at %d", v.now, o.id, o.asked)
		case o.stops <= o.lastSeen+150:
			v.t.Fatalf("%d: member %d is silent, but sent something at %d", v.now, o.id, o.lastSeen)
		case o.lastSeen < v.fresh && quiet < 300:
			v.t.Fatalf("%d: member %d is silent, but the watching member was late", v.now, o.id)
		}
		o.silent = true
	}
	for i, s := range v.w.States(v.now) {
		if o := v.others[i]; !o.silent && s.Quiet > s.Limit+2*tolerance {
			v.t.Fatalf("%d: member %d last sent at %d, but is not silent: %+v", v.now, o.id, o.lastSeen, s)
		}
	}
	if at, ok := v.w.Next(); ok && at <= v.now {
		v.t.Fatalf("%d: next look at %d", v.now, at)
	}
}

// TestRandomWorlds checks silence detection under random heartbeats, answers, stops and delays. A
// member that keeps sending is never reported silent, a stopped member is reported within its
// limit, and no member is reported before it has had time to answer.
func TestRandomWorlds(t *testing.T) {
	silent := 0
	for seed := range uint64(100) {
		v := newWorld(t, seed)
		for range 3000 {
			v.step()
		}
		silent += v.silent
	}
	if silent == 0 {
		t.Error("no member was ever silent")
	}
}
