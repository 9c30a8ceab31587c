package sim

import (
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// A renewal that began in one life of a lease and is acknowledged in the next one of its ID
// promised nothing about the first (T28); without the second it did. Seed 60294 of commit
// 0571f21 had a member that stood still, and then granted again what had expired
// before it looked at the renewal.
func TestRenewalOfNextLife(t *testing.T) {
	for _, again := range []bool{true, false} {
		b := newHand()
		b.do(1, Second, Second+4*Millisecond, grant(7, 5000, ""))
		op := b.op(1, opRenew, 5*Second, 6300*Millisecond)
		op.Lease, op.TTL = 7, 5000
		b.expire(6100*Millisecond, 7)
		if again {
			b.do(2, 6150*Millisecond, 6250*Millisecond, grant(7, 5000, ""))
			b.do(2, 7*Second, 7*Second+4*Millisecond, &fsm.Revoke{ID: 7})
		}
		early := false
		for _, v := range Check(b.h, handLimits).Violations {
			early = early || v.ID == "L1"
			if again {
				t.Errorf("%v %s: %s", v.At, v.ID, v.What)
			}
		}
		if early == again {
			t.Errorf("granted again: %t; found to be early: %t", again, early)
		}
	}
}

// A renewal that is answered while an entry is applied may promise the TTL that the lease
// had between two commands of that entry, which came by different members; another one it
// may not. Seed 701695 of commit b4c7869.
func TestRenewalWithinEntry(t *testing.T) {
	for ttl, want := range map[lease.TTL]bool{5000: true, 9000: true, 2000: true, 8000: false} {
		b := newHand()
		b.do(1, Second, Second+4*Millisecond, grant(7, 5000, ""))
		token := b.m.Lessor().LastToken()
		longer := &fsm.ChangeTTL{ID: 7, Token: token, TTL: 9000}
		shorter := &fsm.ChangeTTL{ID: 7, Token: token, TTL: 2000}
		first := b.op(1, opCommand, 2*Second, 2*Second+8*Millisecond)
		second := b.op(2, opCommand, 2*Second, 2*Second+8*Millisecond)
		e := b.entry(2*Second+4*Millisecond, longer, shorter)
		first.Command, first.Fsm = longer, e.Results[0]
		second.Command, second.Fsm = shorter, e.Results[1]
		renewal := b.op(1, opRenew, 2*Second, 2*Second+8*Millisecond)
		renewal.Lease, renewal.TTL = 7, ttl
		b.do(1, 3*Second, 3*Second+4*Millisecond, &fsm.Revoke{ID: 7})
		had := true
		for _, v := range Check(b.h, handLimits).Violations {
			had = had && !strings.Contains(v.What, "a TTL that it did not have then")
		}
		if had != want {
			t.Errorf("TTL %d: the checker says that the lease had it: %t", ttl, had)
		}
	}
}
