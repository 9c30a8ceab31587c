package sim

import (
	"slices"

	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// This file runs package silence in the simulation. It also contains the faults that make detection
// hard: members that pause briefly, and links with changing latency.

// silence returns the configuration for detecting hung members.
func (p *Profile) silence() silence.Config {
	if !p.Adapt {
		return silence.Config{}
	}
	return silence.Config{
		Heartbeat: lease.TTL(p.Tick / Millisecond), Most: lease.TTL(p.election() / Millisecond),
	}
}

// askOften probes all other members once a second, like the transport.
func (p *process) askOften() {
	if !p.w.p.Adapt || p.dead {
		return
	}
	for _, other := range p.w.members {
		if other != p.m && p.frozen <= p.w.now {
			p.ask(other.id)
		}
	}
	p.w.after(Second, p.askOften)
}

// ask probes a member's process. A running process answers even if its core hangs. A paused process
// answers later.
func (p *process) ask(id uint64) {
	w, began := p.w, p.w.now
	if id > uint64(len(w.members)) || w.link(p.m.id, id).cut {
		return
	}
	w.at(w.link(p.m.id, id).arrival(w), func() {
		other := w.members[id-1].proc
		if other == nil || w.link(p.m.id, id).cut {
			return
		}
		w.at(max(w.now, other.frozen), func() {
			if other.dead || w.link(id, p.m.id).cut {
				return
			}
			w.at(w.link(id, p.m.id).arrival(w), func() {
				if p.dead || w.link(id, p.m.id).cut {
					return
				}
				w.cover["process answered"]++
				p.deliver(func() {
					// The probing process measures the latency itself, and may be paused in the
					// meantime.
					p.r.Answered(id, lease.TTL((max(w.now, p.frozen)-began)/Millisecond)+1)
				})
			})
		})
	})
}

// Unsteady configures brief pauses of members and latency changes of links.
type Unsteady struct {
	// Stutter is the mean time between brief pauses of a member. Swing is the mean time between
	// changes of a member's latency. A value of 0 disables either.
	Stutter, Swing Time
	// Pause is the longest stutter. Far is the largest additional latency.
	Pause, Far Time
}

// shortStutter is the duration of the shortest stutter.
const shortStutter = 50 * Millisecond

// stutterOften pauses a member briefly at random times if the scenario enables it.
func (n *injector) stutterOften() {
	if n.w.p.Unsteady.Stutter == 0 {
		return
	}
	n.w.after(Time(n.unsteady.ExpFloat64()*float64(n.w.p.Unsteady.Stutter)), func() {
		if n.calm {
			return
		}
		m := n.w.members[n.unsteady.IntN(len(n.w.members))]
		d := shortStutter + Time(n.unsteady.Int64N(int64(n.w.p.Unsteady.Pause-shortStutter)))
		if n.unsteady.IntN(2) == 0 && n.w.leader() != nil {
			m = n.w.leader()
		}
		if m.proc != nil && n.freeze(m, faultStutter, n.cutShort(d)) {
			n.w.cover[string(faultStutter)]++
		}
		n.stutterOften()
	})
}

// swingOften changes the latency between a member and all others at random times if the scenario
// enables it.
func (n *injector) swingOften() {
	if n.w.p.Unsteady.Swing == 0 {
		return
	}
	n.w.after(Time(n.unsteady.ExpFloat64()*float64(n.w.p.Unsteady.Swing)), func() {
		if n.calm {
			return
		}
		w := n.w
		m := w.members[n.unsteady.IntN(len(w.members))]
		d := Time(n.unsteady.Int64N(int64(2 * w.p.Unsteady.Swing)))
		farther := Time(n.unsteady.Int64N(int64(w.p.Unsteady.Far)))
		n.note(Fault{Kind: faultSwing, Member: m.id, Until: w.now + d})
		others := slices.Clone(w.members)
		move := func(by Time) {
			for _, other := range others {
				if other != m {
					w.link(m.id, other.id).lag += by
					w.link(other.id, m.id).lag += by
				}
			}
		}
		move(farther)
		n.lasting(n.cutShort(d), func() { move(-farther) })
		n.swingOften()
	})
}
