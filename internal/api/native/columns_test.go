package native

import (
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
		&streams{store: &store{leases: svc.leases, node: n}}, l, make(chan func() *pb.RelayRenewed, 10),
	}
}

// open opens a stream of a user, "" if there are none.
func (c *columns) open(t *testing.T, n Node, user string) *channel.Channel {
	t.Helper()
	ch, err := c.link.Open(&pb.RelayCall{})
	if err != nil {
		t.Fatal(err)
	}
	ch.SetServer(c.serving(t, n, user))
	return ch
}

// serving returns a stream of a user.
func (c *columns) serving(t *testing.T, n Node, user string) *stream {
	return &stream{
		store: c.store, open: make(map[uint64]*request),
		ctx:       api.WithIdentity(t.Context(), login{n, user}),
		renewable: new(renewable),
	}
}

// renew renews leases, each by a request of the channel at its place, and says what is answered:
// the TTLs, and the requests that are left to their streams.
func (c *columns) renew(channels []*channel.Channel, leases ...asked) {
	var list []channel.Renewal
	for i, ch := range channels {
		list = append(list, renewalOf(ch, i, leases[i]))
	}
	c.take(list)
}

// renewLists is renew for one channel and requests of several leases.
func (c *columns) renewLists(ch *channel.Channel, lists ...[]asked) {
	var list []channel.Renewal
	for i, leases := range lists {
		list = append(list, renewalOf(ch, i, leases...))
	}
	c.take(list)
}

func (c *columns) take(list []channel.Renewal) {
	c.RenewColumns(list, func(_ []channel.Renewal, f func() *pb.RelayRenewed) { c.answers <- f })
}

func renewalOf(ch *channel.Channel, place int, leases ...asked) channel.Renewal {
	r := channel.Renewal{Channel: ch, Request: uint64(place + 1)}
	for _, l := range leases {
		r.IDs, r.Tokens = append(r.IDs, int64(l.ID)), append(r.Tokens, uint64(l.Token))
	}
	return r
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
		grant(t, unary{c.store}, &pb.GrantRequest{Id: id + 1, TtlMs: 1000 * (id + 1)})
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

// lateColumns returns streams of a relay at a member that keeps the renewals of leases 2 to 4,
// whose TTLs are as many seconds; lease 1 is renewed at once.
func lateColumns(t *testing.T) (*columns, *fakeNode, *channel.Channel) {
	t.Helper()
	n := newNode()
	c := newColumns(n, Options{})
	for id := range lease.ID(4) {
		grant(t, unary{c.store}, &pb.GrantRequest{Id: int64(id) + 1, TtlMs: 1000 * (int64(id) + 1)})
		if id > 0 {
			n.held[id+1] = []func(lease.TTL){}
		}
	}
	return c, n, c.open(t, n, "")
}

// Goal: a lease whose renewal takes long does not hold up others, whether they are in its message
// or are known at another time, and is answered when it is known. Only a request of which a part is
// known is left to its stream, which can tell of a part.
func TestLateInColumns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, one := lateColumns(t)
		c.renewLists(one, []asked{{ID: 1}}, []asked{{ID: 2}}, []asked{{ID: 3}},
			[]asked{{ID: 1}, {ID: 4}}, []asked{{ID: 9}})
		n.held[2][0](2000)
		time.Sleep(partly - 1)
		synctest.Wait()
		c.wants(t, "too early", "renewed left")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		c.wants(t, "in time", "renewed 1:1000 2:2000 left 4 5")
		n.held[4][0](4000)
		time.Sleep(partly)
		synctest.Wait()
		if n := len(c.answers); n > 0 {
			t.Errorf("%d answers of what was left to its stream", n)
		}
		n.held[3][0](3000)
		c.wants(t, "when it is known", "renewed 3:3000 left")
		time.Sleep(time.Minute)
		c.wants(t, "too late", "renewed left")
	})
}

// slowNode is a member whose confirm rounds take long.
type slowNode struct {
	*fakeNode
	round time.Duration
}

// RenewAll implements Renewer.
func (n slowNode) RenewAll(r *replica.Renewals) error {
	time.AfterFunc(n.round, func() { _ = n.fakeNode.RenewAll(r) }) // it never fails
	return nil
}

// Goal: if a confirm round takes long, so that nothing is known of a message, its renewals are
// answered when it has ended, and none goes a second time. One that takes longer than the round
// holds up the others no more than partly.
func TestSlowRoundInColumns(t *testing.T) {
	for _, round := range []time.Duration{partly + 1, 50 * time.Millisecond, keepUnknown - 1} {
		for _, late := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, n, one := lateColumns(t)
				c.node = slowNode{n, round}
				delete(n.held, 2)
				delete(n.held, 3)
				all := []*channel.Channel{one, c.open(t, n, ""), one}
				leases := []asked{{ID: 2}, {ID: 3}, {ID: 4}}
				if !late {
					all, leases = all[:2], leases[:2]
				}
				c.renew(all, leases...)
				time.Sleep(round - 1)
				synctest.Wait()
				c.wants(t, "before the round has ended", "renewed left")
				time.Sleep(time.Nanosecond)
				if late {
					time.Sleep(partly - 1)
				}
				synctest.Wait()
				if late && round == keepUnknown-1 {
					c.wants(t, "after the round, at the end of the time", "renewed 1:2000 2:3000 left 3")
					return
				}
				c.wants(t, "after the round", "renewed 1:2000 2:3000 left")
				if late {
					n.held[4][0](4000)
					c.wants(t, "when the last is known", "renewed 3:4000 left")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				c.wants(t, "later", "renewed left")
			})
		}
	}
}

// Goal: renewals of which nothing becomes known are left to their streams in time, which say so to
// the client.
func TestRoundWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, n, one := lateColumns(t)
		all := []*channel.Channel{one, one}
		c.renew(all, asked{ID: 2}, asked{ID: 3})
		time.Sleep(keepUnknown - 1)
		synctest.Wait()
		c.wants(t, "in time", "renewed left")
		time.Sleep(partly)
		synctest.Wait()
		c.wants(t, "without an end", "renewed left 1 2")
		n.held[2][0](2000)
		n.held[3][0](3000)
		time.Sleep(time.Minute)
		c.wants(t, "too late", "renewed left")
	})
}

// ends are one end of a stream between a relay and a member.
type ends struct {
	in, out chan *channel.Message
	over    <-chan struct{}
}

// Send implements channel.Stream.
func (e ends) Send(m *channel.Message) error {
	select {
	case e.out <- m:
		return nil
	case <-e.over:
		return io.EOF
	}
}

// Recv implements channel.Stream.
func (e ends) Recv() (*channel.Message, error) {
	select {
	case m := <-e.in:
		return m, nil
	case <-e.over:
		return nil, io.EOF
	}
}

// Goal: a confirm round that takes long ends no relay, however many leases its clients renew: from
// some number on they are left to their streams soon. Method: leases that would be too many if they
// were kept, in as many messages as they take.
func TestManyLeasesInSlowRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		c := newColumns(slowNode{n, time.Hour}, Options{})
		up, down := make(chan *channel.Message, 1), make(chan *channel.Message, 1)
		relay := channel.New(ends{down, up, t.Context().Done()}, 1<<20, nil)
		relay.SendRenewals()
		member := channel.New(ends{up, down, t.Context().Done()}, 1<<20,
			func(ch *channel.Channel, _ *pb.RelayCall) func() {
				go ch.SetServer(c.serving(t, n, ""))
				return nil
			})
		member.TakeRenewals(c)
		for _, l := range []*channel.Link{relay, member} {
			go func() { _ = l.Run(t.Context()) }() // it ends with the test
		}
		const calls, requests, each = 11, 50, 1000
		for range calls {
			ch, err := relay.Open(&pb.RelayCall{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i := range uint64(requests) {
				r := channel.Renewal{Request: i, IDs: make([]int64, each), Tokens: make([]uint64, each)}
				if !ch.Renew(nil, r) {
					t.Fatal("a renewal does not go in columns")
				}
				synctest.Wait()
			}
			time.Sleep(partly)
		}
		time.Sleep(time.Minute)
		for _, l := range []*channel.Link{relay, member} {
			select {
			case <-l.Done():
				t.Error("the relay was ended")
			default:
			}
		}
	})
}

// Goal: a lease is renewed in columns only for a caller that is known to hold it, and no more once
// users or roles have changed: then its stream asks again. Nobody is renewed for who has not
// logged in. That is so also of a renewal without a token: it is made with the one under which the
// caller is known to hold the lease, so that it renews no lease that has become another's.
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
		if _, err := s.leases.renew(s.ctx, r, s.renewable, nil); err != nil {
			t.Fatal(err)
		}
	}
	know()
	c.renew(all, its, its, its)
	c.wants(t, "once it is known", "renewed 1:5000 left 2 3")
	c.renew(all, asked{ID: 2}, asked{ID: 2}, asked{ID: 2})
	c.wants(t, "without the token", "renewed 1:5000 left 2 3")
	n.mustDo(t, "root", &fsm.RoleGrant{
		Role: "reader", Permission: access.Permission{Kind: access.Read, Key: "b/k"},
	})
	c.renew(all, its, its, its)
	c.wants(t, "after a change of roles", "renewed left 1 2 3")
	c.renew([]*channel.Channel{owner}, asked{ID: 2})
	c.wants(t, "without the token after a change of roles", "renewed left 1")
	know()
	c.renew(all, its, its, its)
	c.wants(t, "once it is known again", "renewed 1:5000 left 2 3")
	// The lease becomes another's, under its ID.
	n.mustDo(t, "root", &fsm.Revoke{ID: 2})
	n.mustDo(t, "root", &fsm.Grant{Terms: lease.Terms{ID: 2, TTL: 5000, Principal: "other"}})
	c.renew([]*channel.Channel{owner, owner}, its, asked{ID: 2})
	c.wants(t, "of another", "renewed left 1 2")
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
