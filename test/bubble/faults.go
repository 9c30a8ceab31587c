package bubble

import (
	"math/rand/v2"
	"slices"
	"time"

	"leasehold.dev/test/virtual"
)

// faults injects faults until a given time and then repairs all of them. The kind, time and
// duration of each fault depend only on the seed.
type faults struct {
	w   *World
	rng *rand.Rand
}

func (f *faults) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.rng.Int64N(int64(most-least)+1))
}

// run injects faults until the given time.
func (f *faults) run(until time.Duration) {
	for f.w.h.Now() < until {
		time.Sleep(f.between(500*time.Millisecond, 2*f.w.calm))
		f.one()
	}
}

// later repairs a fault after a delay.
func (f *faults) later(d time.Duration, mend func()) {
	f.w.mends.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-f.w.heal:
		}
		mend()
	})
}

func (f *faults) member() *member { return f.w.members[f.rng.IntN(len(f.w.members))] }

// kind is one type of fault.
type kind struct {
	name string
	do   func()
}

// one injects a random fault.
func (f *faults) one() {
	kinds := []kind{
		{"crash", func() { f.crash(f.member()) }},
		{"crash of the leader", func() { f.crash(f.w.leader()) }},
		{"crash of all", f.crashAll},
		{"cut", f.cut},
		{"isolated member", func() { f.isolate(f.member().machine()) }},
		{"isolated leader", func() { f.isolate(f.w.leader().machine()) }},
		{"isolated client", func() { f.isolate(f.w.someone(f.rng).on) }},
		{"slow way", f.slow},
		{"pause", func() { f.pause(f.member().machine()) }},
		{"pause of the leader", func() { f.pause(f.w.leader().machine()) }},
		{"pause of a client", func() { f.pause(f.w.someone(f.rng).on) }},
		{"slow disk", f.slowDisk},
		{"clock jump", f.jump},
		{"death of a client", f.killClient},
		{"isolated leader with clients", f.split},
		{"client that gets answers late, then none", func() { f.eclipse(f.w.someone(f.rng).on) }},
		{"crash with late last words", f.ghost},
	}
	if len(f.w.relays) > 0 {
		kinds = append(kinds, f.ofRelays()...)
	}
	k := kinds[f.rng.IntN(len(kinds))]
	f.w.h.Count("fault: " + k.name)
	f.w.say("%s", k.name)
	k.do()
}

func (f *faults) crash(m *member) {
	on := m.machine()
	if on == nil {
		return
	}
	if f.rng.IntN(5) == 0 {
		return
	}
	m.crash(f.rng.IntN(2) == 0, f.rng)
	f.later(f.between(time.Millisecond, 10*time.Second), m.restart)
}

func (f *faults) crashAll() {
	if f.rng.IntN(3) > 0 {
		return // inject this fault rarely
	}
	for _, m := range f.w.members {
		f.crash(m)
	}
}

// ends chooses the two ends of a path. They are usually members, but the first can be a client and
// the second a relay.
func (f *faults) ends() (a, b *virtual.Machine) {
	a, b = f.member().machine(), f.member().machine()
	if f.rng.IntN(3) == 0 {
		a = f.w.someone(f.rng).on
	}
	if len(f.w.relays) > 0 && f.rng.IntN(4) == 0 {
		b = f.relay().machine()
	}
	if a == nil || b == nil || a == b {
		return nil, nil
	}
	return a, b
}

func (f *faults) cut() {
	a, b := f.ends()
	if a == nil {
		return
	}
	both := f.rng.IntN(2) == 0
	f.w.net.Set(a, b, &virtual.Conditions{Cut: true})
	if both {
		f.w.net.Set(b, a, &virtual.Conditions{Cut: true})
	}
	f.later(f.between(10*time.Millisecond, 20*time.Second), func() {
		f.w.net.Set(a, b, nil)
		f.w.net.Set(b, a, nil)
	})
}

// isolate cuts a machine off from all others, in one or both directions.
func (f *faults) isolate(a *virtual.Machine) {
	if a == nil {
		return
	}
	in, out := true, true
	switch f.rng.IntN(4) {
	case 0:
		in = false
	case 1:
		out = false
	}
	f.part([]*virtual.Machine{a}, in, out)
}

// split separates the leader, together with some clients and relays, from the other machines. The
// old leader still answers these clients while the others elect a new one.
func (f *faults) split() {
	leader := f.w.leader().machine()
	if leader == nil {
		return
	}
	side := []*virtual.Machine{leader}
	for _, on := range append(f.w.clientMachines(), f.w.relayMachines()...) {
		if f.rng.IntN(2) == 0 {
			side = append(side, on)
		}
	}
	f.part(side, true, true)
}

// part cuts the paths between some machines and all others. The paths can be inbound, outbound or
// both.
func (f *faults) part(side []*virtual.Machine, in, out bool) {
	f.partFrom(side, f.w.machines(), in, out)
}

// partFrom is like part, but cuts only the paths to certain other machines.
func (f *faults) partFrom(side, others []*virtual.Machine, in, out bool) {
	var ways [][2]*virtual.Machine
	for _, a := range side {
		for _, b := range others {
			if slices.Contains(side, b) {
				continue
			}
			if in {
				ways = append(ways, [2]*virtual.Machine{b, a})
			}
			if out {
				ways = append(ways, [2]*virtual.Machine{a, b})
			}
		}
	}
	for _, x := range ways {
		f.w.net.Set(x[0], x[1], &virtual.Conditions{Cut: true})
	}
	f.later(f.between(10*time.Millisecond, 20*time.Second), func() {
		for _, x := range ways {
			f.w.net.Set(x[0], x[1], nil)
		}
	})
}

// eclipse first delays and then drops the responses to a client or relay, so that the last promise
// is already old when it arrives.
func (f *faults) eclipse(on *virtual.Machine) {
	if on == nil {
		return
	}
	late := &virtual.Conditions{Delay: f.between(200*time.Millisecond, 2*time.Second)}
	others := append(f.w.memberMachines(), f.w.relayMachines()...)
	for _, from := range others {
		f.w.net.Set(from, on, late)
	}
	f.later(f.between(time.Second, 5*time.Second), func() {
		for _, from := range others { // including machines that are down now
			f.w.net.Set(from, on, nil)
		}
		f.part([]*virtual.Machine{on}, true, true)
	})
}

// ghost crashes a member so that its last messages arrive after messages from its next process.
func (f *faults) ghost() {
	m := f.member()
	on := m.machine()
	if on == nil {
		return
	}
	late := &virtual.Conditions{Delay: f.between(time.Second, 3*time.Second), Jitter: time.Second}
	others := f.w.machines()
	for _, to := range others {
		f.w.net.Set(on, to, late)
	}
	back := f.between(time.Millisecond, time.Second)
	f.later(f.between(100*time.Millisecond, 2*time.Second), func() {
		for _, to := range others {
			f.w.net.Set(on, to, nil)
		}
		if m.machine() == on {
			m.crash(true, f.w.draw())
			f.later(back, m.restart)
		}
	})
}

func (f *faults) slow() {
	a, b := f.ends()
	if a == nil {
		return
	}
	most := f.between(time.Millisecond, 3*time.Second)
	f.w.net.Set(a, b, &virtual.Conditions{Delay: most / 2, Jitter: most / 2})
	f.later(f.between(time.Second, 20*time.Second), func() { f.w.net.Set(a, b, nil) })
}

func (f *faults) pause(on *virtual.Machine) {
	if on == nil {
		return
	}
	on.Stop()
	f.later(f.between(10*time.Millisecond, 10*time.Second), on.Resume)
}

func (f *faults) slowDisk() {
	disk := f.member().hasDisk()
	if disk == nil || disk.slow.Load() == 0 {
		return
	}
	disk.slow.Store(int64(f.between(time.Millisecond, 2*time.Second)))
	f.later(f.between(time.Second, 10*time.Second), func() {
		disk.slow.Store(int64(f.w.syncs))
	})
}

// leastJump is the smallest clock jump that a member is certain to detect. A member mistakes
// smaller jumps for delays of its own.
const leastJump = 500 * time.Millisecond

// jump moves a client's clock forward, or a member's clock forward or back.
func (f *faults) jump() {
	by := f.between(leastJump, 10*time.Second)
	if f.rng.IntN(2) == 0 {
		f.w.someone(f.rng).on.Jump(by)
		return
	}
	if on := f.member().machine(); on != nil {
		if f.rng.IntN(2) == 0 {
			by = -by
		}
		f.w.say("clock of %s jumps by %v", on.Name, by)
		on.Jump(by)
	}
}

func (f *faults) killClient() {
	p := f.w.someone(f.rng)
	f.later(0, func() { f.w.replace(p, true) })
}
