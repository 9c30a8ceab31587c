package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// asked is a lease that is to be renewed.
type asked struct {
	ID    lease.ID
	Token lease.Token
}

// columns are streams of a relay at a member.
type columns struct {
	*streams
	link    *channel.Link
	answers chan func() *pb.RelayRenewed
}

func newColumns(n Node, o Options) *columns {
	l := channel.New(nil, 1<<20, nil)
	svc := service(n, o)
	return &columns{
		&streams{store: &store{leases: svc, node: n}}, l, make(chan func() *pb.RelayRenewed, 10),
	}
}

// open opens a stream of a user, "" if there are none.
func (c *columns) open(t *testing.T, n Node, user string) *channel.Channel {
	t.Helper()
	ch, err := c.link.Open(&pb.RelayCall{})
	if err != nil {
		t.Fatal(err)
	}
	ch.SetServer(&stream{
		store: c.store, taking: taking{relay: ch}, open: make(map[uint64]*request),
		ctx:    api.WithIdentity(t.Context(), login{n, user}),
		rights: rights{renewable: new(renewable)},
	})
	return ch
}

// renew renews leases, each by a request of the channel at its place, and says what is answered:
// the TTLs, and the requests that are left to their streams.
func (c *columns) renew(channels []*channel.Channel, leases ...asked) {
	var list []channel.Renewal
	for i, ch := range channels {
		list = append(list, channel.Renewal{
			Channel: ch, Request: uint64(i + 1),
			IDs: []int64{int64(leases[i].ID)}, Tokens: []uint64{uint64(leases[i].Token)},
		})
	}
	c.RenewColumns(list, func(_ []channel.Renewal, f func() *pb.RelayRenewed) { c.answers <- f })
}

// told says what the answers tell that have come.
func (c *columns) told() string {
	renewed, left := "", ""
	for len(c.answers) > 0 {
		r := (<-c.answers)()
		for i, request := range r.Requests {
			renewed += fmt.Sprintf(" %d:%d", request, r.TtlMs[i])
		}
		for _, request := range r.UnansweredRequests {
			left += fmt.Sprint(" ", request)
		}
	}
	return "renewed" + renewed + " left" + left
}

func (c *columns) wants(t *testing.T, what, want string) {
	t.Helper()
	if got := c.told(); got != want {
		t.Errorf("%s: %s, not %s", what, got, want)
	}
}

// Goal: renewals of many streams are answered together, and one that cannot be renewed is left to
// its stream, which has the words for it, and delays no other.
func TestRenewManyStreams(t *testing.T) {
	n := newNode()
	c := newColumns(n, Options{})
	for id := range int64(3) {
		grant(t, c.leases, &pb.GrantRequest{Id: id + 1, TtlMs: 1000 * (id + 1)})
	}
	one, two := c.open(t, n, ""), c.open(t, n, "")
	fresh, err := c.link.Open(&pb.RelayCall{}) // its stream has not begun
	if err != nil {
		t.Fatal(err)
	}
	c.renew([]*channel.Channel{one, two, one, two, fresh},
		asked{ID: 1}, asked{ID: 2}, asked{ID: 9}, asked{ID: 3, Token: 77},
		asked{ID: 3})
	c.wants(t, "some of five", "renewed 1:1000 2:2000 left 3 4 5")
	n.refuse = errors.New("the member stops")
	c.renew([]*channel.Channel{one, fresh}, asked{ID: 1}, asked{ID: 2})
	c.wants(t, "a member that stops", "renewed left 1 2")
	c.renew([]*channel.Channel{fresh}, asked{ID: 1})
	c.wants(t, "no stream", "renewed left 1")
}

// Goal: a lease whose renewal takes long does not hold up others, and is left to its stream.
func TestLateInColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		c := newColumns(n, Options{})
		for id := range int64(3) {
			grant(t, c.leases, &pb.GrantRequest{Id: id + 1, TtlMs: 1000 * (id + 1)})
		}
		n.held[2], n.held[3] = []func(lease.TTL){}, []func(lease.TTL){}
		one := c.open(t, n, "")
		c.renew([]*channel.Channel{one, one, one},
			asked{ID: 1}, asked{ID: 2}, asked{ID: 3})
		n.held[2][0](2000)
		time.Sleep(partly - 1)
		synctest.Wait()
		c.wants(t, "too early", "renewed left")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		c.wants(t, "in time", "renewed 1:1000 2:2000 left 3")
		n.held[3][0](3000)
		time.Sleep(time.Minute)
		c.wants(t, "too late", "renewed left")
	})
}

// Goal: a lease is renewed in columns only for a caller that is known to hold it, and no more once
// users or roles have changed: then its stream asks again. Nobody is renewed for who has not
// logged in.
func TestRightsInColumns(t *testing.T) {
	n := guarded(t)
	c := newColumns(n, Options{})
	owner, other, nobody := c.open(t, n, "owner"), c.open(t, n, "other"), c.open(t, n, "")
	held, _ := n.machine.Lessor().ByName("a/2")
	its := asked{ID: 2, Token: held.Token}
	all := []*channel.Channel{owner, other, nobody}
	c.renew(all, its, its, its)
	c.wants(t, "before it is known", "renewed left 1 2 3")
	know := func() {
		t.Helper()
		s := owner.Server().(*stream)
		r := &pb.RenewRequest{Ids: []int64{2}, Tokens: []uint64{uint64(its.Token)}}
		if _, err := s.leases.renew(s.ctx, r, s.rights.renewable, nil); err != nil {
			t.Fatal(err)
		}
	}
	know()
	c.renew(all, its, its, its)
	c.wants(t, "once it is known", "renewed 1:5000 left 2 3")
	c.renew([]*channel.Channel{owner}, asked{ID: 2})
	c.wants(t, "without the token", "renewed left 1")
	n.mustDo(t, "root", &fsm.RoleGrant{
		Role: "reader", Permission: access.Permission{Kind: access.Read, Key: "b/k"},
	})
	c.renew(all, its, its, its)
	c.wants(t, "after a change of roles", "renewed left 1 2 3")
	know()
	c.renew(all, its, its, its)
	c.wants(t, "once it is known again", "renewed 1:5000 left 2 3")
}

// panicking is a member that fails.
type panicking struct{ *fakeNode }

func (panicking) RenewAll(*replica.Renewals) error { panic("planted") }

// Goal: a fault in one message of a relay does not end the process, and its renewals go on.
func TestPanicInColumns(t *testing.T) {
	n := panicking{newNode()}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	c := newColumns(n, Options{Panics: listen.NewPanics(log)})
	c.renew([]*channel.Channel{c.open(t, n, "")}, asked{ID: 1})
	c.wants(t, "after a panic", "renewed left 1")
}

// Goal: a renewal that a relay has sent in columns first may come behind later requests; nothing
// else may, nor one with the ID of a request that is open, nor over a connection of its own.
func TestLateRenewalIsEntered(t *testing.T) {
	renewal := &pb.Request{Body: &pb.Request_Renew{}}
	put := &pb.Request{Body: &pb.Request_Put{}}
	s := &stream{
		last: 9, open: map[uint64]*request{7: {}}, ctx: context.Background(),
	}
	for _, x := range []struct {
		id      uint64
		relayed bool
		r       *pb.Request
		enters  bool
	}{
		{8, true, renewal, true},
		{8, true, renewal, false},
		{7, true, renewal, false},
		{6, true, put, false},
		{6, false, renewal, false},
		{9, true, renewal, true},
		{10, true, renewal, true},
		{10, true, put, false},
		{11, true, put, true},
	} {
		if s.relay = nil; x.relayed {
			s.relay = new(channel.Channel)
		}
		if err := s.enter(&request{id: x.id}, x.r, time.Now()); (err == nil) != x.enters {
			t.Errorf("%d, relayed %v, %T: %v", x.id, x.relayed, x.r.Body, err)
		}
	}
	if s.last != 11 {
		t.Errorf("the last is %d", s.last)
	}
}
