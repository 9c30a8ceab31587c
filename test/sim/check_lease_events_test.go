package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// fenced returns a write that succeeds only if the token holds the name.
func fenced(name string, token lease.Token) *fsm.Txn {
	return &fsm.Txn{
		Compare: []fsm.Compare{{Key: name, Target: fsm.TargetNameToken, Number: int64(token)}},
		Then:    []fsm.Op{{Put: put("f/"+name, fmt.Sprintf("v%d@%d", token, token), 0)}},
	}
}

// resumed returns a correct history. Lease 7, with a lock delay, is handed over, gets a shorter
// TTL, is resumed by another process, and expires at 13 s. Each holder's write is conditional on
// holding the name. The first holder's write comes too late.
func resumed() *hand {
	b := newHand()
	ms := func(at Time) (Time, Time) { return at * Millisecond, at*Millisecond + 4*Millisecond }
	do := func(client int, at Time, c fsm.Command) *Op {
		from, to := ms(at)
		return b.do(client, from, to, c)
	}
	do(1, 1000, &fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 9000, Name: "n", LockDelay: 2000}})
	do(1, 1500, fenced("n", 1))
	do(1, 2000, &fsm.HandOver{ID: 7, Token: 1, Owner: "o", Secret: lease.Secret{1}})
	do(1, 2100, fenced("n", 1)) // too late
	do(2, 2200, fenced("n", 2))
	do(2, 2500, &fsm.ChangeTTL{ID: 7, Token: 2, TTL: 5000})
	do(3, 4000, &fsm.Resume{ID: 7, Secret: lease.Secret{1}})
	op := b.renew(3, 8*Second, 8*Second+2*Millisecond, 7)
	op.Request.Token = 3
	op = b.renew(2, 8100*Millisecond, 8102*Millisecond, 7)
	op.Request.Token, op.TTL, op.Err = 2, 0, lease.ErrNotFound
	b.expire(13100*Millisecond, 7)
	do(4, 13500, grant(8, 4000, "n")) // its lock delay is running
	b.expire(15200*Millisecond, 7)
	do(4, 15500, grant(8, 4000, "n"))
	do(4, 15600, fenced("n", 4))
	do(4, 16000, &fsm.Revoke{ID: 8})
	events := b.op(5, opEvents, 16100*Millisecond, 16102*Millisecond)
	events.After, events.Last = 2, 8
	events.Answer.Events, _ = eventsAfter(b.m.View().LeaseEvents, 2)
	for i, until := range []Time{2000, 9000, 12900} {
		x := b.believe(i+1, beliefName, "n", []Time{1004, 2004, 4004}[i]*Millisecond, until*Millisecond)
		x.Lease, x.Token = 7, lease.Token(i+1)
	}
	return b
}

// TestCheckHeirs checks that a correct history has no violations. In it, the second of three
// holders continues until it detects that the third has resumed the lease. This is allowed.
func TestCheckHeirs(t *testing.T) {
	r := Check(resumed().h, handLimits)
	for _, v := range r.Violations {
		t.Errorf("%v %s: %s", v.At, v.ID, v.What)
	}
	for _, s := range []string{
		seenHandedOver, seenResumed, seenShorter, seenReleased, seenOldToken, seenNameHeld,
	} {
		if r.Seen[s] == 0 {
			t.Errorf("not seen: %s", s)
		}
	}
}

// TestCheckHeirsBad checks that each broken promise is detected and attributed to its invariant.
func TestCheckHeirsBad(t *testing.T) {
	for _, c := range []struct {
		id, name string
		spoil    func(*hand)
	}{
		{"L4", "who handed over goes on", func(b *hand) { b.h.Beliefs[0].Until = 2100 * Millisecond }},
		{"L1", "a delay ends early", func(b *hand) {
			b.h.Log[9].At = 15 * Second
		}},
		{"L1", "a shorter TTL is not kept", func(b *hand) { b.h.Log[7].At = 12900 * Millisecond }},
		{"L1", "a renewal promises the TTL of before", func(b *hand) { b.h.Ops[7].TTL = 9000 }},
		{"L3", "a renewal with an old token succeeds", func(b *hand) {
			b.h.Ops[8].TTL, b.h.Ops[8].Err = 5000, nil
		}},
		{"S1", "a renewal with the token is refused", func(b *hand) {
			b.h.Ops[7].TTL, b.h.Ops[7].Err = 0, lease.ErrNotFound
		}},
		{"L5", "an old token writes", func(b *hand) {
			c := fenced("n", 1)
			c.Compare = nil
			b.do(1, 17*Second, 17*Second+4*Millisecond, c)
		}},
		{"L5", "a hand-over gives no new token", func(b *hand) {
			info := *b.h.Ops[2].Fsm.Value.(*lease.Info)
			info.Token = 1
			b.h.Log[2].Results[0].Value, b.h.Ops[2].Fsm.Value = &info, &info
		}},
		{"L6", "no lock delay", func(b *hand) { b.h.Log[7].Ended[0].Gone = true }},
		{"W1", "an event is not told", func(b *hand) {
			op := b.h.Ops[len(b.h.Ops)-1]
			op.Answer.Events = slices.Delete(slices.Clone(op.Answer.Events), 1, 2)
		}},
		{"W1", "the last event is not told", func(b *hand) {
			op := b.h.Ops[len(b.h.Ops)-1]
			op.Answer.Events = op.Answer.Events[:5]
		}},
		{"W1", "an event says another token", func(b *hand) {
			ev := slices.Clone(b.h.Log[2].Events)
			ev[0].Info.Token = 1
			b.h.Log[2].Events = ev
		}},
		{"W1", "an event is of another revision", func(b *hand) {
			ev := slices.Clone(b.h.Log[9].Events)
			ev[0].Revision++
			b.h.Log[9].Events = ev
		}},
	} {
		t.Run(c.id+" "+c.name, func(t *testing.T) {
			b := resumed()
			c.spoil(b)
			var got []string
			for _, v := range Check(b.h, handLimits).Violations {
				if v.ID == c.id {
					return
				}
				got = append(got, fmt.Sprintf("%s: %s", v.ID, v.What))
			}
			t.Errorf("not found; found %d others:\n%s", len(got), strings.Join(got, "\n"))
		})
	}
}
