package sim

import (
	"testing"

	"leasehold.dev/internal/fsm"
)

// A renewal that began in one life of a lease and is acknowledged in the next one of its ID
// promised nothing about the first (T28); without the second it did. Seed 60294 of commit
// 0571f21 had a member that stood still, and then granted again what had expired
// before it looked at the renewal.
func TestRenewalOfNextLife(t *testing.T) {
	for _, again := range []bool{true, false} {
		b := newHand()
		b.do(1, Second, Second+4*Millisecond, grant(7, 5000, ""))
		op := b.op(1, OpRenew, 5*Second, 6300*Millisecond)
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
