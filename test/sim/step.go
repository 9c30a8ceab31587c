package sim

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// This file runs the real shell in virtual time.

// stepState is the progress of a process within a step.
type stepState struct {
	ahead  []shell.Do // the next actions, if already known
	within bool       // a step is in progress
	taken  Time       // when the step took the mail
	rung   bool       // the process was woken in the meantime
	spread bool       // the hub has something to distribute
	worked int        // number of steps so far
	// delaying is set while commands wait for the end of the commit delay.
	delaying bool
}

// next returns the next action.
func (p *process) next() shell.Do {
	if n := len(p.step.ahead); n > 0 {
		do := p.step.ahead[n-1]
		p.step.ahead = p.step.ahead[:n-1]
		return do
	}
	return p.s.Next()
}

// run runs a step, or the rest of one. If crashIn is set, the process dies between two actions. A
// delayed step continues later.
func (p *process) run() {
	for p.step.within = true; p.step.within; {
		do := p.next()
		switch {
		case p.dies(do):
			return
		case p.heldUp():
			p.step.ahead = append(p.step.ahead, do)
			return
		}
		p.do(do)
		if p.dead {
			return
		}
		if p.step.spread {
			p.step.spread = false
			p.spread()
		}
	}
}

// dies reports whether the process died just before an action.
func (p *process) dies(do shell.Do) bool {
	out := &p.s.Out
	if p.crashIn == 0 || do < shell.Send || do > shell.Sleep || len(out.Append)+len(out.Send) == 0 {
		return false
	}
	if p.crashIn--; p.crashIn > 0 {
		return false
	}
	p.w.cover["crash in the middle of an output"]++
	p.w.tracef("member %d dies before action %d of a step", p.m.id, do)
	p.m.stop(true, p.w.chance(2))
	return true
}

// heldUp reports whether the core's goroutine is delayed while other goroutines of the process run.
// If so, the step continues later.
func (p *process) heldUp() bool {
	w := p.w
	if w.p.HeldUp == 0 || w.injector.calm {
		return false
	}
	left := w.end - w.p.Calm - w.now
	if w.injector.stalls.IntN(w.p.HeldUp) > 0 || left <= 0 {
		return false
	}
	w.cover["core held up in the middle of a step"]++
	p.resume(w.now + min(left, 100+Time(w.injector.stalls.Int64N(int64(200*Millisecond)))))
	return true
}

// resume continues a step at t.
func (p *process) resume(t Time) {
	p.w.at(t, func() {
		switch {
		case p.dead:
		case p.frozen > p.w.now:
			p.resume(p.frozen)
		default:
			p.run()
		}
	})
}

// do performs one action of the shell.
func (p *process) do(do shell.Do) {
	s := p.s
	switch do {
	case shell.TakeMail:
		p.step.taken = p.w.now
		p.take()
	case shell.ReadClock:
		s.Read(p.m.clock.reading(p.w.now))
	case shell.Advance:
		if s.Jumped {
			p.w.h.Jumps = append(p.w.h.Jumps, Jump{p.w.now, p.m.id})
		}
		p.role.Refreshing = p.r.Status().Primary
		p.refreshed()
	case shell.HeartbeatDue:
		stuck := p.m.disk.stall() >= p.w.p.election()
		if s.Beat(shell.Environment{MayVote: true, DiskStuck: stuck}) {
			p.w.injector.note(Fault{Kind: faultYield, Member: p.m.id})
		}
	case shell.Feed:
		p.refuse()
	case shell.Work:
		s.Work()
		p.note(&s.Out)
		p.checkState()
		p.hash(s.Out.Hash)
	case shell.Send:
		for _, m := range s.Out.Send {
			p.w.send(p, m)
		}
	case shell.Ask:
		for _, id := range s.Out.Ask {
			p.ask(id)
		}
	case shell.Save:
		p.save()
	case shell.Show:
		p.showInRace()
	case shell.Publish:
		p.publish(&s.Out)
	case shell.Answer:
		p.answer(&s.Out)
	case shell.DeliverCaches:
		s.DeliverCaches()
	case shell.End:
		p.end()
	case shell.Delay:
		p.delayCommit()
	case shell.Shrink:
		p.view = s.View
	case shell.Sleep:
		p.sleep()
	}
}

// checkEvery is the number of steps between two checks of a process's state.
const checkEvery = 256

// checkState checks the invariants of the process's state every checkEvery steps.
func (p *process) checkState() {
	if p.step.worked++; p.step.worked%checkEvery != 0 {
		return
	}
	p.w.cover["state walked"]++
	if err := p.r.CheckInvariants(); err != nil {
		p.w.broken("state", fmt.Sprintf("member %d: %v", p.m.id, err))
	}
}

// take passes the received messages to the shell.
func (p *process) take() {
	m := p.mail
	p.mail = mail{Mail: p.s.Mail.Emptied(), calls: p.calls[:0]}
	p.afterPause(&m)
	p.s.Mail = m.Mail
	rounds := 0 // rounds are processed before the calls
	for rounds < len(m.groups) && m.groups[rounds].Owner != nil && p.w.chance(2) {
		rounds++
	}
	for _, b := range m.groups {
		if r, ok := b.Owner.(*round); ok {
			r.asOf = p.view.Index
		}
	}
	p.s.Mail.Together = append(p.s.Mail.Together, m.groups[:rounds]...)
	p.arrive(m.calls)
	p.s.Mail.Together = append(p.s.Mail.Together, m.groups[rounds:]...)
	clear(m.calls)
	p.calls = m.calls
}

// refuse records the messages that the replica rejected.
func (p *process) refuse() {
	for _, m := range p.s.Refused {
		if errors.Is(m.Err, replica.ErrMessage) {
			// All members are correct, so a rejection is a violation.
			p.w.broken("messages", m.Err.Error())
		}
		p.w.cover["message refused"]++
	}
	for _, d := range p.s.Declined {
		p.w.cover["snapshot not taken"]++
		d.Owner.(*arrival).ended(false)
	}
}

// save passes the messages to be persisted to the disk.
func (p *process) save() {
	if a, ok := p.s.Arrived.(*arrival); ok {
		p.m.disk.arrival = a
	}
	p.m.disk.put(p.s.Out.Append)
}

// persisted processes messages that have become durable.
func (p *process) persisted(messages []*raftpb.Message) {
	p.mail.Persisted = append(p.mail.Persisted, messages...)
	p.wake(p.w.now)
}

// end performs the last action of a process.
func (p *process) end() {
	if errors.Is(p.s.Err, replica.ErrDamaged) {
		p.stopDamaged()
		return
	}
	if p.s.Err != nil {
		// Any other error is a bug: no disk is rolled back here, and members can propose every
		// entry.
		panic(p.s.Err)
	}
	p.w.tracef("member %d learns that it was removed", p.m.id)
	p.w.cover["member learned of its removal"]++
	p.m.gone = true
	p.m.stop(false, false)
}

// delayCommit limits the commit delay, as the server does.
func (p *process) delayCommit() {
	if !p.s.Delayed || p.step.delaying {
		return
	}
	p.step.delaying = true
	p.w.cover["commands wait for others"]++
	p.w.after(p.w.between(Millisecond/50, 2*Millisecond), func() {
		if p.step.delaying = false; !p.dead {
			p.mail.DelayOver = true
			p.wake(p.w.now)
		}
	})
}

// sleep ends a step.
func (p *process) sleep() {
	p.step.within = false
	p.wake(p.m.clock.after(p.s.Now + max(1, lease.Instant(p.s.Wait)) + p.born))
	if p.step.rung {
		p.step.rung = false
		p.wake(p.w.now)
	}
}
