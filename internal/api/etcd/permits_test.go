package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// hereNode is a member whose state can lag behind the leader's.
type hereNode struct {
	*fakeNode
	looks  atomic.Int32 // calls of InspectHere
	rounds atomic.Int32 // calls of Inspect
	behind atomic.Bool
}

func (n *hereNode) here() *lease.Lessor {
	if n.behind.Load() {
		return fsm.New(fsm.Config{}).Lessor()
	}
	return n.machine.Lessor()
}

func (n *hereNode) InspectHere(_ context.Context, f func(*lease.Lessor, uint64)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks.Add(1)
	f(n.here(), n.machine.Index())
	return nil
}

func (n *hereNode) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	n.rounds.Add(1)
	return n.fakeNode.Inspect(ctx, f)
}

func (n *hereNode) Renew(id lease.ID, by *access.State, to api.Renewed) error {
	if n.behind.Load() && to.Holder() != nil {
		decided, err := fsm.Authorizer{State: n.View().Access}.MayRenew(n.here(), id)
		if !decided {
			err = api.ErrUndecided
		}
		to.Renewed(id, 0, err)
		return nil
	}
	return n.fakeNode.Renew(id, by, to)
}

// TestWhoMayKeepAlive checks that a caller cannot renew a lease unless it is allowed to write all
// keys of the lease.
func TestWhoMayKeepAlive(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	for _, x := range []struct {
		user string
		id   int64
		want error
	}{
		{"", 1, rpctypes.ErrUserEmpty},
		{"alice", 1, nil},
		{"alice", 2, rpctypes.ErrPermissionDenied},
		{"root", 2, nil},
	} {
		s, err := c.LeaseKeepAlive(as(t, x.user))
		if err != nil {
			t.Fatal(err)
		}
		keep(t, s, x.id)
		if _, err := s.Recv(); !errors.Is(rpctypes.Error(err), x.want) {
			t.Errorf("%d by %q: %v, not %v", x.id, x.user, err, x.want)
		}
	}
	s, err := c.LeaseKeepAlive(as(t, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, 1)
	wantKept(t, s, 1, 60)
	n.do(t, &fsm.UserRevokeRole{User: "alice", Role: "a"})
	keep(t, s, 1)
	if _, err := s.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		t.Errorf("after the role was taken away: %v", err)
	}
}

// TestWhoMayKeepOwnedAlive checks that a lease that belongs to a user can be renewed by that user,
// regardless of its keys. A caller that cannot renew a lease cannot abandon it either.
func TestWhoMayKeepOwnedAlive(t *testing.T) {
	n := newTenants(t)
	n.abandoned = make(chan []lease.ID, 1)
	for id, x := range map[lease.ID]lease.Terms{
		3: {Principal: "alice"}, 4: {Principal: "root"}, 5: {Name: "n"},
	} {
		x.ID, x.TTL = id, 60_000
		n.do(t, &fsm.Grant{Terms: x})
		n.do(t, &fsm.Put{Key: "a" + string(rune('0'+id)), Lease: id})
	}
	n.do(t, &fsm.Put{Key: "c3", Lease: 3})
	c := serve(t, n, trusting(n))
	for _, other := range []int64{2, 4, 5} {
		s, err := c.LeaseKeepAlive(as(t, "alice"))
		if err != nil {
			t.Fatal(err)
		}
		keep(t, s, 3)
		wantKept(t, s, 3, 60)
		keep(t, s, other)
		if _, err := s.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
			t.Errorf("%d: %v", other, err)
		}
		if got := <-n.abandoned; !slices.Equal(got, []lease.ID{3}) {
			t.Errorf("abandoned %v", got)
		}
	}
}

// TestKeepAliveUndecided checks that the core decides immediately about leases whose permissions
// are quick to check. An unknown lease is looked up at the leader. A lease with many keys and no
// principal is checked separately, and again after roles change.
func TestKeepAliveUndecided(t *testing.T) {
	n := newTenants(t)
	for id, owner := range map[lease.ID]string{3: "alice", 4: "root", 5: ""} {
		n.do(t, &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000, Principal: owner}})
	}
	for i := range 17 {
		n.do(t, &fsm.Put{Key: fmt.Sprint("a", i), Lease: 5})
	}
	here := &hereNode{fakeNode: n}
	c := serve(t, here, trusting(n))
	s, err := c.LeaseKeepAlive(as(t, "alice"))
	if err != nil {
		t.Fatal(err)
	}
	looks := func(id, ttl int64, least int) {
		t.Helper()
		here.looks.Store(0)
		for range 3 {
			keep(t, s, id)
			wantKept(t, s, id, ttl)
		}
		if n := int(here.looks.Load()); n < least || n > 0 && least == 0 {
			t.Errorf("%d looks for three renewals of %d, want at least %d", n, id, least)
		}
	}
	looks(3, 60, 0)
	looks(5, 60, 1)
	here.behind.Store(true)
	looks(3, 60, 3)
	looks(99, 0, 3)
	keep(t, s, 4)
	if _, err := s.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		t.Errorf("a new lease of root's: %v", err)
	}
	if s, err = c.LeaseKeepAlive(as(t, "alice")); err != nil {
		t.Fatal(err)
	}
	here.behind.Store(false)
	looks(5, 60, 1)
	n.do(t, &fsm.UserRevokeRole{User: "alice", Role: "a"})
	keep(t, s, 5)
	if _, err := s.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		t.Errorf("many keys, after the role was taken away: %v", err)
	}
}

// TestManyKeysCheckCached checks that the permission check for a lease with many keys is cached for
// a while, but not after users or roles change.
func TestManyKeysCheckCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTenants(t)
		n.do(t, &fsm.Grant{Terms: lease.Terms{ID: 5, TTL: 60_000}})
		n.do(t, &fsm.Put{Key: "a5", Lease: 5})
		p := &permits{service: &leaseService{node: n}}
		ctx := api.WithIdentity(t.Context(), loginAs{n, "alice"})
		looked := func(want bool) {
			t.Helper()
			if got := p.recentlyChecked(n.View(), api.CallerOf(ctx), 5); got != want {
				t.Errorf("the keys count as looked at: %v", got)
			}
		}
		look := func() {
			t.Helper()
			if errs, err := p.check(ctx, []lease.ID{5}); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
		}
		looked(false)
		look()
		looked(true)
		time.Sleep(permitTime)
		looked(false)
		look()
		n.do(t, &fsm.RoleAdd{Name: "b"})
		looked(false)
	})
}

// TestUndecidedTogether checks that any number of undecided renewals takes one lookup on this
// member and one on the leader.
func TestUndecidedTogether(t *testing.T) {
	n := newTenants(t)
	here := &hereNode{fakeNode: n}
	ids, want := []lease.ID{99}, []error{lease.ErrNotFound}
	for id := lease.ID(10); id < 60; id++ {
		owner, err := "alice", error(nil)
		if id%2 == 0 {
			owner, err = "root", access.ErrPermissionDenied
		}
		n.do(t, &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000, Principal: owner}})
		ids, want = append(ids, id), append(want, err)
	}
	here.behind.Store(true)
	p := &permits{service: &leaseService{node: here}}
	errs, err := p.check(api.WithIdentity(t.Context(), loginAs{n, "alice"}), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if !errors.Is(errs[i], want[i]) || (errs[i] == nil) != (want[i] == nil) {
			t.Errorf("lease %d: %v, want %v", id, errs[i], want[i])
		}
	}
	if looks, rounds := here.looks.Load(), here.rounds.Load(); looks != 1 || rounds != 1 {
		t.Errorf("%d looks here and %d at the leader", looks, rounds)
	}
}

// mutedNode is a member whose core does not respond.
type mutedNode struct {
	*fakeNode
	asked, left chan struct{}
}

func (n *mutedNode) InspectHere(ctx context.Context, _ func(*lease.Lessor, uint64)) error {
	close(n.asked)
	<-ctx.Done()
	close(n.left)
	return context.Cause(ctx)
}

// TestNoCheckAfterStreamEnd checks that a stream looks up no leases after it has ended, no matter
// what the core does.
func TestNoCheckAfterStreamEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &mutedNode{newTenants(t), make(chan struct{}), make(chan struct{})}
		p := &permits{service: &leaseService{node: n}}
		p.ctx, p.cancel = context.WithCancel(t.Context())
		k := &keepAlive{wake: make(chan struct{}, 1)}
		p.undecided(&renewal{owner: k, id: 1})
		<-n.asked
		p.close()
		select {
		case <-n.left:
		default:
			t.Error("the stream ends before what looks at leases for it")
		}
		p.undecided(&renewal{owner: k, id: 1}) // another lookup would close n.asked again
		synctest.Wait()
		if p.looking && p.unsure != nil {
			t.Error("a late renewal is looked at")
		}
	})
}
