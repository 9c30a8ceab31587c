package sim

import (
	"errors"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// retrier writes with idempotency keys. It retries unanswered writes, and sometimes repeats
// answered ones, possibly at another member. At random points, it declares that all writes so far
// have settled, even if it has abandoned some of them and copies are still in flight.
func (t *thread) retrier() {
	w := t.c.w
	for {
		t.think()
		open := t.command(&fsm.OpenSession{Nonce: w.rng.Uint64()})
		if open.Outcome != Done || open.Err != nil || open.Fsm.Err != nil {
			continue
		}
		c := fsm.Once{Session: open.Fsm.Value.(fsm.Session), Settled: 1}
		own := &unrenewed{}
		for left := 1 + w.rng.IntN(40); left > 0; left-- {
			t.think()
			c.Number++
			c.Command = w.numbered(own)
			next := c // a proposed command must not be modified
			r, ok := t.insistOnce(&next)
			if !ok {
				break
			}
			own.learn(r)
			if w.chance(2) {
				c.Settled = c.Number + 1
			}
		}
	}
}

// insistOnce sends a write until it is answered, sometimes repeats it, and returns the answer. ok
// is false if the cluster does not know the session.
func (t *thread) insistOnce(c *fsm.Once) (r fsm.Result, ok bool) {
	w := t.c.w
	for {
		op := t.command(c)
		switch {
		case op.Outcome == Done && errors.Is(op.Fsm.Err, fsm.ErrSessionNotFound):
			return fsm.Result{}, false
		case op.Outcome == Done && !w.chance(5):
			return op.Fsm, true
		case op.Outcome != Done && w.chance(8):
			return fsm.Result{}, true // the client gives up
		}
	}
}

// unrenewed is a lease that the retrier's commands act on. It is never renewed. token is 0 while
// there is no lease.
type unrenewed struct {
	id     lease.ID
	token  lease.Token
	secret lease.Secret
}

// learn records an answer.
func (l *unrenewed) learn(r fsm.Result) {
	switch info, ok := r.Value.(*lease.Info); {
	case ok && info.ID == l.id:
		l.token = info.Token
	case errors.Is(r.Err, lease.ErrNotFound):
		l.token = 0
	}
}

// numbered draws a write with an effect that reveals a repetition: it increments a version or a
// token, or it deletes a key that a repetition would no longer find.
func (w *world) numbered(own *unrenewed) fsm.Command {
	key := string(rune('0' + w.rng.IntN(3)))
	put := &fsm.Put{Key: "c" + key, Value: w.value(), PrevKV: w.chance(2)}
	switch w.rng.IntN(11) {
	case 0:
		return &fsm.DeleteRange{Key: put.Key, PrevKV: true}
	case 1:
		return &fsm.Txn{Then: []fsm.Op{{Range: &fsm.Range{Key: put.Key}}, {Put: put}, {Draw: true}}}
	case 2:
		put.IgnoreValue, put.Value = true, nil
	case 3, 4, 5:
		return w.succeeding(own)
	}
	return put
}

// succeeding draws a command on a lease. If there is no lease, the command is a grant.
func (w *world) succeeding(own *unrenewed) fsm.Command {
	if own.token == 0 {
		own.id, own.secret = lease.ID(w.rng.Int64N(1<<40)+1), w.secret()
		return &fsm.Grant{Terms: lease.Terms{ID: own.id, TTL: w.ttl(), Secret: own.secret}}
	}
	switch w.rng.IntN(4) {
	case 0:
		return &fsm.ChangeTTL{ID: own.id, Token: own.token, TTL: w.ttl()}
	case 1:
		return &fsm.HandOver{ID: own.id, Token: own.token, Owner: "heir", Secret: own.secret}
	default:
		return &fsm.Resume{ID: own.id, Secret: own.secret}
	}
}
