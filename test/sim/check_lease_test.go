package sim

import (
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRenewalOfNextIncarnation checks that a renewal that began in one incarnation and was
// acknowledged by the next promises nothing about the first (T28). In seed 60294 of commit 0571f21,
// a paused member granted an expired ID again before it processed the renewal.
func TestRenewalOfNextIncarnation(t *testing.T) {
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
			t.Errorf("granted again: %t; reported as early: %t", again, early)
		}
	}
}

// TestRenewalWithinEntry checks the TTL promised by a renewal that is answered while an entry is
// applied. If the entry has commands from different members, the promised TTL may be one that the
// lease had between two of them, but no other. Found by seed 701695 of commit b4c7869.
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

// TestPromisedFromTheMail checks that a TTL counts from the clock reading if a member is delayed
// between reading its clock and applying a grant. The member reads its clock after taking the mail
// that makes it apply the grant. In seed 304, the core was delayed by 156 ms.
func TestPromisedFromTheMail(t *testing.T) {
	const taken, applied = Second, Second + 150*Millisecond
	for until, early := range map[Time]bool{
		taken + 5001*Millisecond: false, taken + 4990*Millisecond: true,
	} {
		b := newHand()
		op := b.op(1, opCommand, taken-4*Millisecond, applied+4*Millisecond)
		op.Command = grant(7, 5000, "")
		e := b.entry(applied, op.Command)
		e.Taken, op.Fsm = taken, e.Results[0]
		b.expire(until, 7)
		found := false
		for _, v := range Check(b.h, handLimits).Violations {
			found = found || v.ID == "L1"
		}
		if found != early {
			t.Errorf("expired at %v: reported as early: %t", until, found)
		}
	}
}

// checkpoint adds a checkpoint of lease 7.
func (b *hand) checkpoint(at Time, remaining lease.TTL) {
	b.entry(at, &fsm.Checkpoint{
		Term: b.term, Leases: []lease.Checkpoint{{ID: 7, Token: 1, Remaining: remaining}},
	})
}

// TestCheckSilent checks that a silent lease must be checkpointed in time, and repeatedly.
func TestCheckSilent(t *testing.T) {
	l := handLimits
	l.Silence = 8000
	for at, late := range map[[2]Time]bool{
		{9 * Second, 17 * Second}:  false,
		{12 * Second, 17 * Second}: true,
		{9 * Second, 19 * Second}:  true,
		{9 * Second, 22 * Second}:  true,
	} {
		b := newHand()
		b.do(1, 1*Second, 1*Second+4*Millisecond, grant(7, 24_000, ""))
		b.checkpoint(at[0], 16_000)
		b.checkpoint(at[1], 8_000)
		b.expire(25500*Millisecond, 7)
		r := Check(b.h, l)
		if late != (len(r.Violations) == 1 && r.Violations[0].ID == "L7") {
			t.Errorf("checkpointed at %v: %v", at, r.Violations)
		}
	}
}

// TestCheckRestarts checks the time left for a silent lease after a restart of all members. It
// cannot exceed the time left before the restart plus the time since the last checkpoint.
func TestCheckRestarts(t *testing.T) {
	l := handLimits
	l.Silence = 8000
	for last, late := range map[lease.TTL]bool{14_000: false, 21_500: true} {
		b := newHand()
		b.do(1, 1*Second, 1*Second+4*Millisecond, grant(7, 30_000, ""))
		b.checkpoint(9*Second, 22_000)
		b.checkpoint(17*Second, last)
		b.h.Healthy = []Stretch{{0, 20 * Second}, {22 * Second, 60 * Second}}
		for _, up := range []bool{false, true} {
			for id := range uint64(2) {
				at := 20 * Second
				if up {
					at = 21 * Second
				}
				b.h.Restarts = append(b.h.Restarts, Restart{At: at, Member: id + 1, Up: up, Crash: !up})
			}
		}
		b.role(21*Second, 1, false)
		b.term++
		b.role(25*Second, 2, true)
		end := 25*Second + Time(last)*Millisecond
		for at := 25 * Second; at < end; at += 4 * Second {
			b.checkpoint(at, lease.TTL((end-at)/Millisecond))
		}
		b.expire(end+100*Millisecond, 7)
		r := Check(b.h, l)
		if late != (len(r.Violations) == 1 && r.Violations[0].ID == "L7") {
			t.Errorf("%d ms were left in the last checkpoint: %v", last, r.Violations)
		}
	}
}
