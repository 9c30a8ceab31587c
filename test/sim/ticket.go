package sim

import (
	"slices"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
)

// waitQueues holds a process's wait queues: the production package waitqueue on top of the
// process's hub.
type waitQueues struct {
	queues  *waitqueue.Queues
	tickets []*ticket
	// racing is set while the core is about to publish a new state.
	racing bool
	// late holds the waiters that are about to start waiting, each in its own goroutine.
	late []func()
}

func (l *waitQueues) init(p *process) {
	l.queues = waitqueue.New(p.hub, func() *mvcc.View {
		v := p.view.KV
		if l.racing {
			p.w.cover["state shown while a wait queue was read"]++
			p.race()
		}
		return v
	})
}

// someEnter lets some of the late waiters start waiting.
func (p *process) someEnter() {
	for i := 0; i < len(p.late); i++ {
		if p.w.chance(2) {
			f := p.late[i]
			f()
			p.late = slices.Delete(p.late, i, i+1)
			i--
		}
	}
}

// allEnter lets all late waiters start waiting.
func (p *process) allEnter() {
	for _, f := range p.late {
		f()
	}
	p.late = nil
}

// checkWaiters checks that every ticket in the process's wait queues has a waiter, and vice versa.
func (p *process) checkWaiters() {
	if n := p.queues.Stats().Waiting; n != len(p.tickets) {
		p.w.broken("Q1", "the wait queues of a member have tickets without a waiter, or have lost some")
	}
}

// ticket is a client's wait in one wait queue of a process. It stands in for client.Ticket, for the
// code around waitqueue.Queues in internal/api/native, and for the messages between the two. The
// messages stay in order unless the connection breaks.
type ticket struct {
	t   *thread
	rec *Wait

	// State at the member.
	p      *process
	guard  *api.Guard
	entry  *waitqueue.Entry
	news   waitqueue.News // pending notice
	queued bool
	ended  bool // no more notices are sent
	last   Time // arrival of the last message

	// State at the client.
	state   waitqueue.State
	early   []Notice // arrived before the client processed the first answer
	waiting bool     // the thread is waiting for a notice
	closed  bool     // the client has detected the end of the connection, or has given up
}

// newTicket returns a ticket for a client that is about to wait at its member.
func (t *thread) newTicket(a waitqueue.Ask) *ticket {
	c, w := t.c, t.c.w
	x := &ticket{t: t, rec: &Wait{
		ID: len(w.h.Waits), Client: c.id, Caller: c.user, Member: c.at, Ask: a, Closed: Never,
	}}
	w.h.Waits = append(w.h.Waits, x.rec)
	t.ticket = x
	return x
}

// entered reports whether a transaction that puts a key into a wait queue succeeded.
func entered(r *fsm.Result) bool {
	txn, ok := r.Value.(*fsm.TxnResult)
	return ok && r.Err == nil && txn.Succeeded
}

// isIn reports whether the key that was read is the one that was put into the wait queue.
func (x *ticket) isIn(r *mvcc.RangeResult) bool {
	return len(r.KVs) > 0 && r.KVs[0].CreateRevision == x.rec.Made
}

// beginWait starts waiting for a key, as of a revision, once the operation is complete. If the
// answering goroutine is delayed, the wait starts a little later.
func (q *call) beginWait(p *process, asOf int64) {
	begin := func() { q.ticket.begin(q, p, asOf) }
	if p.w.chance(3) {
		begin()
		return
	}
	p.late = append(p.late, begin)
	p.w.after(p.w.exp(10*Millisecond), func() {
		if !p.dead {
			p.deliver(p.allEnter)
		}
	})
}

func (x *ticket) begin(q *call, p *process, asOf int64) {
	w := p.w
	if p.dead || x.closed {
		return
	}
	x.p, x.rec.AsOf = p, asOf
	x.guard, q.op.AsOf = x.t.c.guard(p), p.view.Index
	needs := &api.Need{Reads: []keyrange.Range{keyrange.OfPrefix(x.rec.Prefix)}}
	if err := x.guard.Enter(0, needs); err != nil {
		x.ended = true
		w.cover["wait denied"]++
		if q.op.Kind == opCommand {
			q.reply(Done, nil) // the operation completes without a waiter
		} else {
			q.reply(Failed, err)
		}
		return
	}
	if by := p.view.Access; q.op.Kind == opRange && q.op.Caller.User != "" && by.Enabled() {
		// The guard admitted this caller. Commands were checked before.
		q.op.Caller = x.t.c.certified(by)
	}
	entry, news := p.queues.Wait(x.rec.Ask, asOf, x)
	p.w.tracef("client %d: wait %d of %q at member %d: as of %d: %+v", x.t.c.id, x.rec.ID, x.rec.Key,
		p.m.id, asOf, news)
	x.entry = entry
	if entry != nil {
		p.tickets = append(p.tickets, x)
	} else {
		x.ended = true
	}
	d := w.p.Delay/4 + w.exp(w.p.Delay)
	x.last = w.now + d
	q.op.Answer.News = &news
	q.replyIn(d, Done, nil)
	p.deliver(p.poll) // the hub may have distributed changes in the meantime
}

// Notify implements waitqueue.Waiter. A "gone" notice replaces a pending "ready" notice.
func (x *ticket) Notify(news waitqueue.News) {
	w := x.p.w
	if x.ended {
		w.broken("Q1", "a waiter that has left is told of its ticket")
	}
	x.news = news
	if !x.queued {
		x.queued = true
		w.after(w.exp(w.p.Delay/8), x.flush)
	}
}

// flush sends pending notices.
func (x *ticket) flush() {
	w := x.p.w
	switch {
	case x.p.dead || x.ended:
		return
	case x.p.frozen > w.now:
		w.at(x.p.frozen, x.flush)
		return
	}
	x.queued = false
	if x.guard.ReviewOne() != nil || x.guard.Refused(0) {
		w.cover["wait ended with the right to it"]++
		x.breakOff(w.now + w.exp(w.p.Delay))
		return
	}
	news := x.news
	if news.State == waitqueue.Gone {
		x.leave()
	}
	x.send(news)
}

// leave ends the wait at the member.
func (x *ticket) leave() {
	x.ended = true
	if x.entry == nil || x.p.dead {
		return
	}
	x.entry.Leave()
	x.entry = nil
	x.p.tickets = slices.DeleteFunc(x.p.tickets, func(y *ticket) bool { return y == x })
}

// send sends a notice to the client.
func (x *ticket) send(news waitqueue.News) {
	w := x.t.c.w
	if x.t.c.cut || x.closed {
		x.breakOff(w.now + w.exp(w.p.Timeout))
		return
	}
	x.last = max(x.last, w.now+w.p.Delay/4+w.exp(w.p.Delay))
	n := Notice{Index: x.p.view.Index, News: news}
	w.at(x.last, func() {
		if x.t.c.cut {
			x.breakOff(w.now + w.exp(w.p.Timeout))
			return
		}
		x.arrive(n)
	})
}

// breakOff ends the connection. The client detects this at the given instant.
func (x *ticket) breakOff(at Time) {
	x.leave()
	x.t.c.w.at(at, func() {
		x.close()
		x.rouse()
	})
}

// broken handles the end of the member's process.
func (x *ticket) broken(silent bool) {
	w := x.t.c.w
	at := w.now + w.exp(w.p.Delay)
	if silent {
		at += w.p.Timeout
	}
	x.breakOff(max(at, x.last+1))
}

// close runs when the client detects the end of the connection or gives up. The member detects this
// too, but later if the client is cut off.
func (x *ticket) close() {
	if x.closed {
		return
	}
	w := x.t.c.w
	x.closed, x.rec.Closed = true, w.now
	if x.ended || x.p == nil {
		return
	}
	d := w.p.Delay/4 + w.exp(w.p.Delay)
	if x.t.c.cut {
		d += w.p.Timeout
	}
	w.after(d, func() {
		if !x.p.dead {
			x.p.deliver(x.leave)
		}
	})
}

// first runs when the client processes the answer, which contains the ticket's state.
func (x *ticket) first(op *Op) {
	x.take(Notice{Index: op.AsOf, News: *op.Answer.News})
	for _, n := range x.early {
		x.take(n)
	}
	x.early = nil
}

// arrive runs when a notice arrives at the client.
func (x *ticket) arrive(n Notice) {
	if len(x.rec.Notices) == 0 {
		x.early = append(x.early, n)
		return
	}
	x.take(n)
}

func (x *ticket) take(n Notice) {
	if x.closed || x.t.dead {
		return
	}
	w := x.t.c.w
	w.tracef("client %d: wait %d of %q: told %+v", x.t.c.id, x.rec.ID, x.rec.Key, n.News)
	n.At = w.now
	x.rec.Notices = append(x.rec.Notices, n)
	x.state = n.State
	x.rouse()
}

func (x *ticket) rouse() {
	if x.waiting {
		x.t.wake(x.t.token)
	}
}

// receive waits for the next notice until a deadline in true time.
func (x *ticket) receive(deadline Time) {
	t, w := x.t, x.t.c.w
	notices := len(x.rec.Notices)
	x.waiting = true
	for len(x.rec.Notices) == notices && !x.closed && w.now < deadline {
		token := t.token
		w.at(deadline, func() { t.wake(token) })
		t.park()
	}
	x.waiting = false
}
