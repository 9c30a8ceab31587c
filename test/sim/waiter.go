package sim

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// This file contains the client program that uses wait queues. It implements locks, semaphores and
// read/write locks like those of client/lock.

// idempotency generates the idempotency keys of a thread's writes.
type idempotency struct {
	once fsm.Once // the last write
	open bool
}

// reader is the value of a reader's key.
const reader = "r"

// wanted draws the kind of ticket to wait for. The caller adds the key.
func (w *world) wanted() (a waitqueue.Ask, value string) {
	switch w.rng.IntN(6) {
	case 0:
		return waitqueue.Ask{Prefix: "mrw/", Permits: 1}, "w"
	case 1, 2:
		return waitqueue.Ask{Prefix: "mrw/", Permits: 1, Skips: true, IgnoredValue: reader}, reader
	case 3:
		return waitqueue.Ask{Prefix: "mtwo/", Permits: 2}, ""
	default:
		return waitqueue.Ask{Prefix: fmt.Sprintf("m%d/", w.rng.IntN(2)), Permits: 1}, ""
	}
}

// waiter waits in wait queues, using successive leases.
func (t *thread) waiter() {
	w := t.c.w
	var n idempotency
	for {
		s := t.grant(lease.Terms{TTL: w.ttl(), KeepKeys: w.chance(6)})
		if s == nil {
			continue
		}
		for left := 1 + w.rng.IntN(6); left > 0 && s.alive(); left-- {
			t.waitInQueue(&n, s, left)
			t.think()
		}
		switch {
		case w.chance(2):
			t.revoke(s)
		case w.chance(2):
			s.end() // drops the remaining beliefs
		default:
			s.rest()
		}
	}
}

// waitInQueue enters a wait queue, waits for a permit, holds the permit for a while, and leaves.
func (t *thread) waitInQueue(n *idempotency, s *session, i int) {
	w := t.c.w
	a, value := w.wanted()
	a.Key = fmt.Sprintf("%s%x", a.Prefix, int64(s.terms.ID))
	if w.chance(2) {
		a.Key = fmt.Sprintf("%s.%d", a.Key, i)
	}
	x := t.enter(n, s, a, value)
	if x == nil {
		s.rest() // the key may have been put anyway
		return
	}
	defer func() { t.ticket.close() }()
	switch w.rng.IntN(16) {
	case 0: // the client gives up or is stopped
		t.follow(s, w.now+w.exp(w.p.Think), waitqueue.Ready)
		s.rest()
	case 1:
		t.follow(s, w.now+w.exp(w.p.Think), waitqueue.Ready)
		t.revoke(s)
	case 2: // detach the key
		t.follow(s, w.now+w.exp(w.p.Think), waitqueue.Ready)
		t.command(&fsm.Put{Key: a.Key, Value: []byte(value)})
	default:
		if t.follow(s, Never, waitqueue.Ready) == waitqueue.Ready {
			t.holdPermit(s, x)
		}
		if w.chance(2) {
			t.ticket.close()
		}
		if t.leaveQueue(n, x) && w.chance(2) {
			return
		}
		s.rest()
	}
	t.follow(s, w.now+Second, waitqueue.Gone)
}

// enter puts a key into a wait queue and waits there. A single transaction puts the key and draws
// the ticket's token. enter returns nil if the key may not exist.
func (t *thread) enter(n *idempotency, s *session, a waitqueue.Ask, value string) *ticket {
	c := &fsm.Txn{
		Compare: []fsm.Compare{{Key: a.Key, Target: fsm.TargetCreate, Relation: fsm.Equal}},
		Then: []fsm.Op{
			{Put: &fsm.Put{Key: a.Key, Value: []byte(value), Lease: s.terms.ID}}, {Draw: true},
		},
		Else: []fsm.Op{{Range: &fsm.Range{Key: a.Key}}},
	}
	op := t.onceOnly(n, c, &a)
	if op == nil || !entered(&op.Fsm) || op.Answer.News == nil {
		return nil
	}
	x := t.ticket
	x.rec.Made = op.Fsm.Revision
	x.rec.Token = op.Fsm.Value.(*fsm.TxnResult).Responses[1].(lease.Token)
	x.first(op)
	return x
}

// onceOnly sends a write with an idempotency key until it is answered. If a is not nil, it then
// waits in the queue. It returns nil if it gives up.
func (t *thread) onceOnly(n *idempotency, c fsm.Command, a *waitqueue.Ask) *Op {
	w := t.c.w
	for !n.open {
		op := t.command(&fsm.OpenSession{Nonce: w.rng.Uint64()})
		if denial(op.Fsm.Err) {
			t.think()
		}
		if op.Outcome == Done && op.Fsm.Err == nil {
			n.once = fsm.Once{Session: op.Fsm.Value.(fsm.Session)}
			n.open = true
		}
	}
	n.once.Number++
	n.once.Settled = n.once.Number // earlier writes were answered or abandoned
	once := n.once
	once.Command = c
	for range 6 {
		var x *ticket
		if a != nil {
			x = t.newTicket(*a)
		}
		op := t.doAndWait(&Op{Kind: opCommand, Request: Request{Command: &once}}, x)
		switch {
		case op.Outcome == Done && errors.Is(op.Fsm.Err, fsm.ErrSessionNotFound):
			n.open = false
			return nil
		case op.Outcome == Done:
			return op
		case x != nil:
			x.close()
		}
	}
	return nil
}

// follow waits until the ticket reaches the given state or is gone, the session's lease has ended,
// or a deadline has passed. It returns the ticket's state.
func (t *thread) follow(s *session, until Time, state waitqueue.State) waitqueue.State {
	w := t.c.w
	// The key is deleted together with the lease, whose end the process detects without a request.
	give := w.now + 3*Time(s.terms.TTL)*Millisecond + 20*Second
	move := w.now + w.exp(60*w.p.Think)
	for t.ticket.state < state && w.now < min(until, give) {
		switch x := t.ticket; {
		case x.closed:
			t.again(x)
		case w.now >= move:
			w.cover["wait resumed at another member"]++
			move = w.now + w.exp(60*w.p.Think)
			x.close()
			t.move()
		case s.ended && state == waitqueue.Ready && w.chance(2):
			return x.state
		default:
			x.receive(min(until, give, move, w.now+Second))
		}
	}
	return t.ticket.state
}

// again resumes the wait of an old ticket, with a new ticket at the client's current member.
func (t *thread) again(old *ticket) {
	x := t.newTicket(old.rec.Ask)
	x.rec.Made, x.rec.Token, x.state = old.rec.Made, old.rec.Token, old.state
	read := Request{Range: &fsm.Range{Key: x.rec.Key}}
	op := t.doAndWait(&Op{Kind: opRange, Request: read}, x)
	switch {
	case op.Outcome != Done || op.Err != nil:
		x.close()
	case op.Answer.News == nil || op.Answer.News.State == waitqueue.None:
		x.close()
		x.state = waitqueue.Gone
	default:
		t.c.w.cover["wait resumed after a break"]++
		x.first(op)
	}
}

// holdPermit holds a permit for a while if the session's lease is still valid. The lease must be
// checked because the process may have been paused since the notice (T16).
func (t *thread) holdPermit(s *session, x *ticket) {
	w := t.c.w
	kind := beliefLock
	if x.rec.Permits > 1 || x.rec.Prefix == "mrw/" {
		kind = beliefPermit
	}
	if s.believe(kind, x.rec.Prefix, x.rec.Made) == nil {
		w.cover["permit came too late"]++
		return
	}
	w.cover["permit held"]++
	t.follow(s, w.now+w.exp(2*w.p.Think), waitqueue.Gone)
	s.release(kind, x.rec.Prefix)
}

// leaveQueue deletes the key and reports whether it was certainly deleted.
func (t *thread) leaveQueue(n *idempotency, x *ticket) bool {
	return t.onceOnly(n, &fsm.Txn{
		Compare: []fsm.Compare{{
			Key: x.rec.Key, Target: fsm.TargetCreate, Relation: fsm.Equal, Number: x.rec.Made,
		}},
		Then: []fsm.Op{{Delete: &fsm.DeleteRange{Key: x.rec.Key}}},
	}, nil) != nil
}
