package server

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// alone collects the outcomes of single renewals, and batched collects the outcomes of batches.
type (
	alone   struct{ errs []error }
	batched struct{ errs []error }
)

func (*alone) Holder() *access.Caller { return nil }

func (o *alone) Renewed(_ lease.ID, _ lease.TTL, err error) { o.errs = append(o.errs, err) }

func (o *batched) RenewedOne(_ int, _ lease.TTL, err error) { o.errs = append(o.errs, err) }

func (o *batched) RenewedTogether() { o.errs = append(o.errs, nil) }

func (o *batched) RenewedGroups() { o.errs = append(o.errs, nil) }

// TestRenewalsWait checks that the total number of leases in waiting renewals is bounded, and that
// further renewals are rejected. When the core stops, waiting renewals are answered.
func TestRenewalsWait(t *testing.T) {
	n := &node{core: &core{inbox: newInbox()}}
	var one alone
	var all batched
	batch := func(size int) *replica.Renewals {
		return &replica.Renewals{IDs: make([]lease.ID, size), Owner: &all}
	}
	if err := n.Renew(1, nil, &one); err != nil {
		t.Fatal(err)
	}
	if err := n.RenewAll(batch(3)); err != nil {
		t.Fatal(err)
	}
	if err := n.RenewAll(batch(maxQueued - 3)); !errors.Is(err, api.ErrTooManyRequests) {
		t.Errorf("one too many: %v", err)
	}
	if err := n.RenewAll(batch(maxQueued - 4)); err != nil {
		t.Errorf("as many as may wait: %v", err)
	}
	if err := n.Renew(1, nil, &one); !errors.Is(err, api.ErrTooManyRequests) {
		t.Errorf("no room: %v", err)
	}
	n.stop()
	if err := n.RenewAll(batch(1)); !errors.Is(err, api.ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	if len(one.errs) != 1 || len(all.errs) != maxQueued-1 {
		t.Fatalf("%d and %d outcomes", len(one.errs), len(all.errs))
	}
	for _, err := range append(one.errs, all.errs...) {
		if !errors.Is(err, replica.ErrLeaderChanged) {
			t.Fatalf("a renewal that waits at the stop: %v", err)
		}
	}
	if n.inbox.renewing != 0 {
		t.Errorf("%d renewals wait after all were taken", n.inbox.renewing)
	}
}

// TestRoundsHaveRoom checks that renewals from clients leave room for rounds from relays. If a
// relay's round had no outcome, all its clients would have to renew their leases individually.
func TestRoundsHaveRoom(t *testing.T) {
	n := &node{core: &core{inbox: newInbox()}}
	if err := n.RenewAll(&replica.Renewals{IDs: make([]lease.ID, maxQueued)}); err != nil {
		t.Fatal(err)
	}
	round := func() error {
		r := &replica.Renewals{}
		r.Number, r.Renew = 1, make([]lease.GroupID, replica.MaxGroups)
		return n.RenewAll(r)
	}
	rounds := 0
	for round() == nil && rounds < maxQueued {
		rounds++
	}
	if want := maxQueued / replica.MaxGroups; rounds < want || rounds > want+1 {
		t.Errorf("%d rounds have room, want %d", rounds, want)
	}
	if n.RenewAll(&replica.Renewals{IDs: make([]lease.ID, 1)}) == nil {
		t.Error("a renewal has room that is for rounds")
	}
}

// TestManyRequestsTakeSeveralSteps checks that the core takes a bounded number of requests per
// step, in order, and immediately starts another step for the rest. It takes all messages from
// caches in one step, because later reads must not overtake them.
func TestManyRequestsTakeSeveralSteps(t *testing.T) {
	const n = 2*maxTaken + 5
	b := newInbox()
	b.put(func(m *mail) {
		for i := range n {
			m.Proposals = append(m.Proposals, &replica.Proposal{Owner: i})
			m.Reads = append(m.Reads, &replica.Read{Owner: i})
			m.Caches = append(m.Caches, shell.CacheMail{})
			m.Together = append(m.Together, &replica.Renewals{IDs: make([]lease.ID, 2)})
			m.renewing += 2
		}
	})
	var got, mail shell.Mail
	for steps := range 5 {
		<-b.wake
		mail = b.take(mail)
		if len(mail.Proposals) > maxTaken || len(mail.Reads) > maxTaken ||
			2*len(mail.Together) > maxTaken || steps == 0 && len(mail.Caches) != n {
			t.Fatalf("step %d takes %d commands, %d reads, %d batches, and %d of caches", steps,
				len(mail.Proposals), len(mail.Reads), len(mail.Together), len(mail.Caches))
		}
		got.Proposals = append(got.Proposals, mail.Proposals...)
		got.Reads = append(got.Reads, mail.Reads...)
		got.Together = append(got.Together, mail.Together...)
	}
	if len(b.wake) > 0 || b.renewing != 0 || len(got.Together) != n {
		t.Errorf("%d leases and %d batches are left", b.renewing, n-len(got.Together))
	}
	for i := range n {
		if got.Proposals[i].Owner != i || got.Reads[i].Owner != i {
			t.Fatalf("number %d is another", i)
		}
	}
}

// TestGather checks that the core yields before each step, but not for a while after a yield that
// took long.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yields, takes := 0, time.Duration(0)
		g := gather{yield: func() { yields++; time.Sleep(takes) }}
		steps := func(n, want int) {
			t.Helper()
			yields = 0
			for range n {
				g.wait()
			}
			if yields != want {
				t.Errorf("%d yields in %d steps, want %d", yields, n, want)
			}
		}
		steps(100, 100)
		takes = longYield
		steps(100, 1)
		time.Sleep(gatherPause*longYield - 1)
		steps(1, 0)
		time.Sleep(time.Nanosecond)
		takes = longYield - 1
		steps(100, 100)
	})
}
