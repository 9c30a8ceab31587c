package sim

import (
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
)

// link is the path from one member to another.
type link struct {
	cut   bool
	clog  Time // no message arrives before this
	delay Time // additional mean delay
	lag   Time // fixed additional delay
	loss  int  // additional lost messages per million
}

// link returns the path between two members. The pointer is invalid once another member is created,
// because growLinks moves the links.
func (w *world) link(from, to uint64) *link { return &w.links[from][to] }

// growLinks makes room for one more member.
func (w *world) growLinks() {
	n := len(w.members) + 1
	for i := range w.links {
		w.links[i] = append(w.links[i], make([]link, n-len(w.links[i]))...)
	}
	for len(w.links) < n {
		w.links = append(w.links, make([]link, n))
	}
}

// arrival draws the arrival time of a message.
func (l *link) arrival(w *world) Time {
	return max(w.now+w.p.Delay/4+w.exp(w.p.Delay+l.delay)+l.lag, l.clog)
}

// send sends a message from a process to another member.
func (w *world) send(p *process, m *replica.Message) {
	if m.Raft.GetType() == raftpb.MsgSnap {
		w.stream(p, m)
		return
	}
	if m.To > uint64(len(w.members)) {
		return
	}
	p.watchForward(m)
	l := w.link(m.From, m.To)
	if l.cut || w.rng.IntN(1e6) < w.p.Loss+l.loss {
		w.cover["message lost"]++
		if w.chance(4) {
			p.deliver(func() { p.r.Unreachable(m.To) })
		}
		return
	}
	repeat := w.rng.IntN(1e6) < w.p.Repeat+l.loss
	if w.p.Codec || repeat {
		data := m.AppendTo(nil)
		if repeat {
			w.cover["message repeated"]++
			w.carry(l, m.From, m.To, data)
		}
		w.carry(l, m.From, m.To, data)
		return
	}
	w.at(l.arrival(w), func() { w.receive(m) })
}

// carry delivers an encoded message.
func (w *world) carry(l *link, from, to uint64, data []byte) {
	w.at(l.arrival(w), func() {
		m, err := replica.DecodeMessage(from, to, data)
		if err != nil {
			panic(err)
		}
		w.receive(m)
	})
}

func (w *world) receive(m *replica.Message) {
	if p := w.members[m.To-1].proc; p != nil && !w.link(m.From, m.To).cut {
		p.mail.Messages = append(p.mail.Messages, m)
		p.wake(w.now)
	}
}

// stream sends the current state of one member to another. The transfer takes time, and fails if
// the link is cut or either process stops. The sender keeps the log after that state until the
// transfer ends.
func (w *world) stream(p *process, m *replica.Message) {
	image, conf := p.r.Machine().Image(), p.r.ConfState()
	from, to, index := m.From, m.To, image.View.Index
	p.snaps.Hold(to, index)
	over := false
	ended := func(ok bool) {
		if over {
			return
		}
		over = true
		w.after(w.exp(w.p.Delay), func() {
			p.deliver(func() {
				p.snaps.Release(to)
				p.r.SnapshotSent(to, ok)
			})
		})
	}
	w.tracef("member %d streams a snapshot at %d to %d", from, index, to)
	receiver := w.members[to-1].proc
	breaks := w.chance(4) && !w.injector.calm
	w.after(w.between(5*Millisecond, 500*Millisecond), func() {
		if receiver == nil || receiver.dead || p.dead || breaks || w.link(from, to).cut {
			w.injector.note(Fault{Kind: faultSnapBreak, Member: from, Other: to})
			ended(false)
			return
		}
		receiver.snaps.open = append(receiver.snaps.open, ended)
		snap := picture(image, conf)
		header := &raftpb.Message{
			Type: m.Raft.Type, From: m.Raft.From, To: m.Raft.To, Term: m.Raft.Term,
			Snapshot: &raftpb.Snapshot{Metadata: snap.meta},
		}
		receiver.arrived(header, &arrival{&snap, ended})
	})
}

// arrival is a received snapshot. ended reports to the sender whether the snapshot was accepted.
type arrival struct {
	snap  *snapshot
	ended func(bool)
}

// arrived queues a snapshot for the process's next step.
func (p *process) arrived(header *raftpb.Message, a *arrival) {
	if a.snap.index() <= p.view.Index {
		p.w.cover["snapshot too old when it arrived"]++
		a.ended(true) // as in the server: the member already has this state
		return
	}
	p.mail.Arrivals = append(p.mail.Arrivals, shell.Arrival{
		Message: header, Machine: a.snap.restore(p.w.machine), Owner: a,
	})
	p.wake(p.w.now)
}

// watchForward counts events related to forwarding.
func (p *process) watchForward(m *replica.Message) {
	cover := p.w.cover
	if r := m.Reply; r != nil {
		if len(r.Refused) > 0 {
			cover["forwarded command refused"]++
		}
		cover["group of a follower renewed"] += len(r.Groups)
		for _, n := range r.Renewed {
			if n.Group != 0 {
				cover["lease joined a group of a follower"]++
			}
		}
	}
	f := m.Forward
	if f == nil {
		return
	}
	if len(f.Renewals) > 0 {
		cover["renewal forwarded"]++
	}
	cover["lease left a group of a follower"] += len(f.Groups.Leave)
	if f.Groups.Fresh {
		cover["groups of a follower ended"]++
	}
	if len(f.Commands) == 0 || f.Base >= 1<<63 { // forged
		return
	}
	cover["command forwarded"]++
	if f.First < p.forwarded.next {
		cover["forwarded command sent again"]++
	}
	p.forwarded.next = f.First + uint64(len(f.Commands))
	if f.Term != p.forwarded.term {
		for _, c := range f.Commands {
			if p.forwarded.before[c] {
				cover["forwarded command sent to the next leader"]++
			}
		}
		p.forwarded.before, p.forwarded.term = p.forwarded.now, f.Term
		p.forwarded.now = make(map[fsm.Command]bool)
	}
	for _, c := range f.Commands {
		p.forwarded.now[c] = true
	}
}

// forwarded records which commands a process has forwarded to the current and the previous leader.
type forwarded struct {
	next, term  uint64
	now, before map[fsm.Command]bool
}
