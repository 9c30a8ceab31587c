package sim

import (
	"slices"

	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
)

// lines are the lines of a process in which somebody waits: what ships (package turn), on the
// process's own hub.
type lines struct {
	turns  *waitqueue.Queues
	places []*standing
	// racing says that the core is about to show a new state.
	racing bool
	// late are those who begin to wait, on goroutines of their own.
	late []func()
}

func (l *lines) init(p *process) {
	l.turns = waitqueue.New(p.hub, func() *mvcc.View {
		v := p.view.KV
		if l.racing {
			p.w.cover["state shown while a line was read"]++
			p.race()
		}
		return v
	})
}

// someEnter lets some of those begin to wait who are late.
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

// allEnter lets all begin to wait who are late.
func (p *process) allEnter() {
	for _, f := range p.late {
		f()
	}
	p.late = nil
}

// leftBehind checks that nobody waits at the process but those whom it knows.
func (p *process) leftBehind() {
	if n := p.turns.Stats().Waiting; n != len(p.places) {
		p.w.broken("Q1", "the lines of a member have places that nobody waits at, or have lost some")
	}
}

// standing is a place in a line at which a client waits at a process: at the member's side
// what internal/api/native has around waitqueue.Queues, at the client's what client.Ticket has, and
// what is on the way between them. What is sent arrives in order, or the connection breaks.
type standing struct {
	t   *thread
	rec *Turn

	// At the member.
	p      *process
	place  *waitqueue.Entry
	news   waitqueue.News // to be sent
	queued bool
	ended  bool // nothing more is sent
	last   Time // when the last message arrives

	// At the client.
	state   waitqueue.State
	early   []waitqueue.News // that came before the client had looked at the first answer
	waiting bool             // the thread waits for news
	closed  bool             // it knows that the connection has ended, or has given up
}

// newStanding is somebody who is about to wait at the client's member.
func (t *thread) newStanding(a waitqueue.Ask) *standing {
	c, w := t.c, t.c.w
	x := &standing{t: t, rec: &Turn{
		ID: len(w.h.Turns), Client: c.id, Member: c.at, Ask: a, Closed: Never,
	}}
	w.h.Turns = append(w.h.Turns, x.rec)
	t.standing = x
	return x
}

// entered reports whether the conditions of the transaction held that puts a key into a line.
func entered(r *fsm.Result) bool {
	txn, ok := r.Value.(*fsm.TxnResult)
	return ok && r.Err == nil && txn.Succeeded
}

// isIn reports whether the key that was read is the one that was put into the line.
func (x *standing) isIn(r *mvcc.RangeResult) bool {
	return len(r.KVs) > 0 && r.KVs[0].CreateRevision == x.rec.Made
}

// stand begins to wait for a key as it was at a revision, when the operation is done: at
// once, or a little later, as the goroutine that answers comes to it.
func (q *call) stand(p *process, asOf int64) {
	begin := func() { q.stands.begin(q, p, asOf) }
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

func (x *standing) begin(q *call, p *process, asOf int64) {
	w := p.w
	if p.dead || x.closed {
		return
	}
	x.p, x.rec.AsOf = p, asOf
	place, news := p.turns.Wait(x.rec.Ask, asOf, x)
	p.w.tracef("client %d: turn %d of %q at member %d: as of %d: %+v", x.t.c.id, x.rec.ID, x.rec.Key,
		p.m.id, asOf, news)
	x.place = place
	if place != nil {
		p.places = append(p.places, x)
	} else {
		x.ended = true
	}
	d := w.p.Delay/4 + w.exp(w.p.Delay)
	x.last = w.now + d
	q.op.Answer.Turn = &news
	q.replyIn(d, Done, nil)
	p.deliver(p.poll) // the hub may have distributed
}

// Told implements waitqueue.Waiter. That the key is gone takes the place of that its turn came.
func (x *standing) Told(news waitqueue.News) {
	w := x.p.w
	if x.ended {
		w.broken("Q1", "somebody who has left is told of his place")
	}
	x.news = news
	if !x.queued {
		x.queued = true
		w.after(w.exp(w.p.Delay/8), x.flush)
	}
}

// flush sends what there is to tell.
func (x *standing) flush() {
	w := x.p.w
	switch {
	case x.p.dead || x.ended:
		return
	case x.p.frozen > w.now:
		w.at(x.p.frozen, x.flush)
		return
	}
	x.queued = false
	news := x.news
	if news.State == waitqueue.Gone {
		x.leave()
	}
	x.send(news)
}

// leave ends the waiting at the member.
func (x *standing) leave() {
	x.ended = true
	if x.place == nil || x.p.dead {
		return
	}
	x.place.Leave()
	x.place = nil
	x.p.places = slices.DeleteFunc(x.p.places, func(y *standing) bool { return y == x })
}

// send brings news to the client.
func (x *standing) send(news waitqueue.News) {
	w := x.t.c.w
	if x.t.c.cut || x.closed {
		x.breakOff(w.now + w.exp(w.p.Timeout))
		return
	}
	x.last = max(x.last, w.now+w.p.Delay/4+w.exp(w.p.Delay))
	w.at(x.last, func() {
		if x.t.c.cut {
			x.breakOff(w.now + w.exp(w.p.Timeout))
			return
		}
		x.arrive(news)
	})
}

// breakOff ends the connection; the client notices at an instant.
func (x *standing) breakOff(at Time) {
	x.leave()
	x.t.c.w.at(at, func() {
		x.close()
		x.rouse()
	})
}

// broken is when the member's process has ended.
func (x *standing) broken(silent bool) {
	w := x.t.c.w
	at := w.now + w.exp(w.p.Delay)
	if silent {
		at += w.p.Timeout
	}
	x.breakOff(max(at, x.last+1))
}

// close is when the client knows that the connection has ended, or gives the waiting up. The
// member learns of that, later if the client is cut off.
func (x *standing) close() {
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

// first is when the client looks at the answer that says where the place stands.
func (x *standing) first(news *waitqueue.News) {
	x.take(*news)
	for _, n := range x.early {
		x.take(n)
	}
	x.early = nil
}

// arrive is when news come to the client.
func (x *standing) arrive(news waitqueue.News) {
	if len(x.rec.Told) == 0 {
		x.early = append(x.early, news)
		return
	}
	x.take(news)
}

func (x *standing) take(news waitqueue.News) {
	if x.closed || x.t.dead {
		return
	}
	w := x.t.c.w
	w.tracef("client %d: turn %d of %q: told %+v", x.t.c.id, x.rec.ID, x.rec.Key, news)
	x.rec.Told = append(x.rec.Told, Telling{w.now, news})
	x.state = news.State
	x.rouse()
}

func (x *standing) rouse() {
	if x.waiting {
		x.t.wake(x.t.token)
	}
}

// receive waits for what comes next until a deadline of true time.
func (x *standing) receive(deadline Time) {
	t, w := x.t, x.t.c.w
	told := len(x.rec.Told)
	x.waiting = true
	for len(x.rec.Told) == told && !x.closed && w.now < deadline {
		token := t.token
		w.at(deadline, func() { t.wake(token) })
		t.park()
	}
	x.waiting = false
}
