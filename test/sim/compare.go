package sim

import (
	"fmt"
	"slices"

	"leasehold.dev/internal/fsm"
)

// This file makes members compare the hashes of their states. Whatever faults occur, only a member
// with a wrong hash may be declared damaged, and it must then stop permanently.

// Compare configures how members compare their states.
type Compare struct {
	// Ticks is the leader's interval between comparisons; 0 disables them.
	Ticks uint64
	// Damage is when a member starts to report wrong hashes, in a run without other faults. A value
	// of 0 means never.
	Damage Time
}

// drawCompare draws a Compare and adapts the profile to it.
func (w *world) drawCompare(p *Profile) (c Compare) {
	r := w.source(0xc03a4e)
	if r.IntN(4) > 0 {
		return c
	}
	c.Ticks = 5 + r.Uint64N(60)
	if r.IntN(4) == 0 && p.RestartAll == 0 {
		p.Faults = 0
		c.Ticks += 20 // so that all members can report in time
		p.Room = 0    // so that no leader rejects a hash needed to identify the correct state
		c.Damage = w.end/4 + Time(r.Int64N(int64(w.end/4)))
	}
	return c
}

// hash computes the hash of a state in parallel with the core and reports it, as the server does.
// If image is nil, there is nothing to hash.
func (p *process) hash(image *fsm.Image) {
	if image == nil || p.snaps.hashing {
		return
	}
	p.snaps.hashing = true
	most := 2 * Second // some hashes are late
	if p.w.p.Compare.Damage > 0 {
		most = Time(p.w.p.Compare.Ticks) * p.w.p.Tick / 2
	}
	p.w.after(p.w.between(Millisecond, most), func() {
		if p.dead {
			p.w.cover["crash while a state was hashed"]++
			return
		}
		sum, err := image.Hash()
		if err != nil {
			panic(err)
		}
		if p.m.damaged {
			sum++
		}
		p.deliver(func() {
			p.snaps.hashing = false
			p.r.ReportHash(image, sum, nil)
		})
	})
}

// damage makes a member report wrong hashes from now on.
func (n *injector) damage() {
	m := n.victim()
	m.damaged = true
	n.note(Fault{Kind: faultDamaged, Member: m.id})
}

// compared checks the outcome of comparing the hashes reported up to an entry.
func (o *oracle) compared(e *Entry) {
	for _, c := range e.Commands {
		if c, ok := c.(*fsm.StateHash); ok && c.Index == o.machine.HashedAt() {
			o.w.cover["state compared"]++
		}
	}
	for _, a := range o.machine.View().Alarms {
		if a.Kind == fsm.Split || a.Kind == fsm.Damaged && !o.w.members[a.Member-1].damaged {
			o.w.broken("S3", fmt.Sprintf("entry %d: the states of members are taken for different "+
				"(alarm %d of member %d)", e.Index, a.Kind, a.Member))
		}
	}
}

// stopDamaged ends a process that detected that its member is damaged. The member is restarted
// once, must stop again, and is then replaced.
func (p *process) stopDamaged() {
	m, w := p.m, p.w
	m.stop(false, false)
	if !m.damaged {
		return // the oracle has already reported it
	}
	if m.condemned {
		w.cover["damaged member stopped again"]++
		m.gone = true
		w.injector.send(membershipChange{remove: m.id, add: w.injector.newcomer()})
		return
	}
	m.condemned = true
	w.injector.restart(m, w.between(Millisecond, Second))
	w.h.Healthy[len(w.h.Healthy)-1].To = w.now
	w.h.Healthy = append(w.h.Healthy, Stretch{w.now + 2*Second, Never})
}

// noneDamaged checks that no damaged member is running.
func (w *world) noneDamaged() {
	if i := slices.IndexFunc(w.members, func(m *member) bool { return m.damaged && !m.gone }); i >= 0 {
		w.broken("S3", fmt.Sprintf("member %d is damaged, and was let run", w.members[i].id))
	}
}
