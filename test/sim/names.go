package sim

import (
	"encoding/binary"
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// This file contains the client programs that hold names, write only while they hold them, and hand
// over names together with their leases.

// lockDelay draws a lock delay, which is usually 0.
func (w *world) lockDelay() lease.TTL {
	if !w.chance(3) {
		return 0
	}
	return lease.TTL(w.between(100*Millisecond, 4*Second) / Millisecond)
}

// secret draws a secret.
func (w *world) secret() (s lease.Secret) {
	binary.LittleEndian.PutUint64(s[:], w.rng.Uint64()|1)
	return s
}

// namer competes for a name, like a server that registers itself.
func (t *thread) namer() {
	w := t.c.w
	for {
		terms := lease.Terms{
			Name: fmt.Sprintf("n%d", w.rng.IntN(2)), TTL: w.ttl(), LockDelay: w.lockDelay(),
			Owner: fmt.Sprintf("o%d", t.c.id), Labels: map[string]string{"a": "1", "b": "2"},
		}
		if w.chance(2) {
			terms.Secret = w.secret()
		}
		if s := t.grant(terms); s != nil {
			t.holdName(s)
		} else {
			t.putByName(terms.Name, 0)
			t.think()
		}
	}
}

// putByName attaches a key to the lease with a name, whichever client holds it. If token is not 0,
// the request includes it.
func (t *thread) putByName(name string, token lease.Token) {
	w := t.c.w
	op := t.command(&fsm.Put{
		Key: fmt.Sprintf("n/%s%d", name, w.rng.IntN(3)), Value: w.value(), LeaseName: name,
		LeaseToken: token,
	})
	switch {
	case op.Outcome != Done:
	case op.Fsm.Err == nil:
		w.cover["put by name"]++
	default:
		w.cover["put by name refused"]++
	}
}

// holdName holds a name for a while, writes keys that only the holder may write, and gives up the
// name in one of several ways.
func (t *thread) holdName(s *session) {
	w := t.c.w
	if w.chance(3) {
		s.rest()
	}
	for range w.rng.IntN(6) {
		t.think()
		t.fenced(s)
		if w.chance(2) {
			t.putByName(s.terms.Name, lease.Token(w.rng.IntN(2))*s.token)
		}
	}
	switch w.rng.IntN(6) {
	case 0:
		t.revoke(s)
	case 1, 2:
		t.handOver(s)
	case 3:
		t.abandon(s)
	case 4:
		s.rest()
		t.renewLate(s)
	default: // the lease is renewed at random times
		s.rest()
		for !s.ended && !w.chance(6) {
			t.sleep(w.exp(Time(s.terms.TTL) * Millisecond / 2))
			t.renew(s)
		}
	}
	if w.chance(2) {
		t.sleep(w.exp(Time(s.terms.TTL) * Millisecond))
		t.fenced(s) // continue like a holder that was paused while it worked
		t.putByName(s.terms.Name, s.token)
	}
	if s.asked != nil && w.chance(2) {
		t.command(s.asked) // simulate a delayed retry of the request
	}
}

// fenced writes a key that only the holder of a name may write. The condition is checked when the
// write is applied, regardless of what the client believes (T4).
func (t *thread) fenced(s *session) {
	w := t.c.w
	value := fmt.Appendf(w.value(), "@%d", s.token)
	put := fsm.Op{Put: &fsm.Put{Key: "f/" + s.terms.Name, Value: value}}
	op := t.command(&fsm.Txn{Compare: []fsm.Compare{s.holds()}, Then: []fsm.Op{put}})
	if txn, ok := op.Fsm.Value.(*fsm.TxnResult); ok && op.Outcome == Done {
		if txn.Succeeded {
			w.cover["fenced write"]++
		} else {
			w.cover["fenced write refused"]++
		}
	}
}

// holds returns the condition that the session's token holds its name.
func (s *session) holds() fsm.Compare {
	return fsm.Compare{
		Key: s.terms.Name, Target: fsm.TargetNameToken, Relation: fsm.Equal,
		Number: int64(s.token),
	}
}

// handOver hands the lease over to another owner. The new owner is in the same process and keeps
// the lease alive, or it knows the secret and resumes the lease as soon as it can.
func (t *thread) handOver(s *session) {
	w := t.c.w
	s.end()
	c := &fsm.HandOver{
		ID: s.terms.ID, Token: s.token, Owner: fmt.Sprintf("o%d", w.rng.IntN(100)),
		Secret: w.secret(),
	}
	w.abandoned = append(w.abandoned, abandonedLease{c.ID, c.Secret})
	if s.terms.Name != "" && w.chance(2) {
		c.ID, c.Name = 0, s.terms.Name
	}
	w.resumers.notify(w)
	for range 3 {
		op := t.command(c)
		if op.Outcome != Done {
			continue
		}
		if info := granted(&op.Fsm); info != nil {
			w.cover["lease handed over"]++
			if next := t.c.begin(info, lease.Instant(op.LocalStart/Millisecond)); next != nil {
				t.holdName(next)
			}
		}
		return
	}
}

// abandonedLease contains what a process needs to resume a lease.
type abandonedLease struct {
	id     lease.ID
	secret lease.Secret
}

// abandon leaves the lease for another client to resume. The old holder may continue until it
// detects the new one.
func (t *thread) abandon(s *session) {
	w := t.c.w
	if s.terms.Secret == (lease.Secret{}) {
		return
	}
	w.abandoned = append(w.abandoned, abandonedLease{s.terms.ID, s.terms.Secret})
	w.resumers.notify(w)
	for range w.rng.IntN(6) { // another client also keeps it alive, without using its token
		t.do(&Op{Kind: opRenew, Request: Request{Lease: s.terms.ID}})
	}
	for !s.ended && !w.chance(4) {
		t.think()
		t.fenced(s)
	}
	s.end()
}

// resumer resumes leases that other clients have abandoned.
func (t *thread) resumer() {
	w := t.c.w
	for {
		w.resumers.wait(t, w.exp(w.p.Think))
		n := len(w.abandoned)
		if n == 0 {
			continue
		}
		e := w.abandoned[n-1-w.rng.IntN(min(n, 3))]
		if w.chance(4) {
			e.secret[8]++ // now the secret is wrong
		}
		op := t.command(&fsm.Resume{ID: e.id, Secret: e.secret})
		if op.Outcome != Done {
			continue
		}
		info := granted(&op.Fsm)
		if info == nil {
			continue
		}
		w.cover["lease resumed"]++
		if s := t.c.begin(info, lease.Instant(op.LocalStart/Millisecond)); s != nil {
			t.holdName(s)
		}
	}
}

// changeTTL changes the TTL. The client may never receive the outcome.
func (t *thread) changeTTL(s *session) {
	w := t.c.w
	ttl := w.ttl()
	if w.chance(4) {
		s.rest()
	}
	for range 1 + w.rng.IntN(2) {
		if s.alive(); s.ended {
			return
		}
		s.k.set.Shorten(s.terms.ID, ttl)
		s.refresh()
		s.k.wake(w.now)
		sent := s.instant()
		op := t.command(&fsm.ChangeTTL{ID: s.terms.ID, Token: s.token, TTL: ttl})
		s.k.advance()
		switch info := granted(&op.Fsm); {
		case op.Outcome != Done:
			continue
		case info == nil:
			s.k.set.Refused(s.terms.ID, ttl)
		case !s.ended:
			w.cover["TTL changed"]++
			s.terms.TTL = ttl
			s.k.set.Confirmed(s.terms.ID, ttl, ttl, sent)
			s.k.settle(s.terms.ID)
			// The leader may not have applied the change yet.
			if w.p.Renewing.Beside && w.chance(2) {
				t.renewBeside(s)
			} else {
				t.renew(s)
			}
		}
		return
	}
	s.ttlUnknown = true
	w.cover["TTL in doubt"]++
}

// touch renews the lease and writes in the same transaction.
func (t *thread) touch(s *session, put *fsm.Put) {
	s.k.advance()
	b, held := s.k.set.Ask(s.terms.ID)
	c := &fsm.Touch{ID: s.terms.ID, Token: s.token}
	op := t.command(&fsm.Txn{Then: []fsm.Op{{Touch: c}, {Put: put}}})
	if !held {
		return
	}
	renewed := *op
	if info := granted(&op.Fsm); info != nil {
		renewed.TTL = info.TTL
	}
	renewed.Lease, renewed.Err = s.terms.ID, op.Fsm.Err
	s.k.renewed(b.Seq, &renewed)
	if op.Outcome == Done && op.Fsm.Err == nil {
		s.k.c.w.cover["lease renewed by a transaction"]++
	}
}
