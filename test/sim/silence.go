package sim

import (
	"slices"

	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// This file has what package silence needs of a world, and what is hard for it: members that
// stutter, and links that become longer and shorter.

// silence returns the configuration of members that notice who hangs.
func (p *Profile) silence() silence.Config {
	if !p.Adapt {
		return silence.Config{}
	}
	return silence.Config{
		Heartbeat: lease.TTL(p.Tick / Millisecond), Most: lease.TTL(p.election() / Millisecond),
	}
}

// askOften asks all others once a second, as the transport does.
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

// ask asks the process of a member for an answer. It comes from a process that runs, whatever its
// core does, and later from one that stands still.
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
					// It is the process that measures, which may stand still meanwhile.
					p.r.Answered(id, lease.TTL((max(w.now, p.frozen)-began)/Millisecond)+1)
				})
			})
		})
	})
}

// Unsteady is how members stutter and links change.
type Unsteady struct {
	// Stutter is the mean time between two short pauses of a member, and Swing between two changes
	// of how far a member is from the others. 0 for none.
	Stutter, Swing Time
	// Pause is the longest stutter, and Far the most that a swing makes the way longer.
	Pause, Far Time
}

// shortStutter is the shortest stutter.
const shortStutter = 50 * Millisecond

// stutterOften lets a member stand still for a moment now and then, if the run's scenario has that.
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

// swingOften changes the way between a member and all others now and then, if the run's scenario
// has that.
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
