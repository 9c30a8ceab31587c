package channel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// asks collects the renewals that come in columns.
type asks struct {
	lists  chan []Renewal
	answer func([]Renewal, func() *pb.RelayRenewed)
}

// RenewColumns implements Renewer.
func (a *asks) RenewColumns(
	list []Renewal, answer func(part []Renewal, f func() *pb.RelayRenewed),
) {
	if a.answer == nil { // it is the same for all of a link
		a.answer = answer
	}
	a.lists <- list
}

// take waits for n renewals, which may come in several messages: one whose lease is not known waits
// for no others.
func (a *asks) take(n int) (list []Renewal) {
	for len(list) < n {
		list = append(list, <-a.lists...)
	}
	return list
}

// answers answers renewals: a lease whose ID is even is renewed.
func (a *asks) answers(list []Renewal) {
	var ttls []int64
	for _, r := range list {
		for _, id := range r.IDs {
			ttl := int64(0)
			if id%2 == 0 {
				ttl = 1000 * id
			}
			ttls = append(ttls, ttl)
		}
	}
	a.answer(list, func() *pb.RelayRenewed {
		return Renewed(&pb.Header{Revision: 7}, list, ttls)
	})
}

// renewing runs f with a relay whose renewals go in columns to a member that collects them.
func renewing(t *testing.T, f func(t *testing.T, relay *Link, calls <-chan served, a *asks)) {
	t.Helper()
	a := new(asks)
	joinedTo(t, 1<<20, a, func(t *testing.T, relay *Link, calls <-chan served) {
		a.lists = make(chan []Renewal, 1000)
		relay.SendRenewals()
		f(t, relay, calls, a)
	})
}

// renew sends a renewal of leases in columns.
func renew(t *testing.T, c *Channel, request uint64, ids ...int64) {
	t.Helper()
	if !tryRenew(c, request, ids...) {
		t.Fatalf("renewal %d does not go in columns", request)
	}
}

func tryRenew(c *Channel, request uint64, ids ...int64) bool {
	r := Renewal{Request: request, IDs: ids, Tokens: make([]uint64, len(ids))}
	for i, id := range ids {
		r.Tokens[i] = uint64(id) + 100
	}
	return c.Renew(fmt.Append(nil, "renewal ", request), r)
}

// hears wants the next message of a channel to be the answer to a renewal.
func hears(t *testing.T, c *Channel, request uint64, ttls ...int64) {
	t.Helper()
	b, err := c.Recv(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &pb.ServerMessage{Responses: []*pb.Response{{
		Id: request, Body: &pb.Response_Renew{Renew: &pb.RenewResponse{
			Header: &pb.Header{Revision: 7}, TtlMs: ttls,
		}},
	}}}
	got := new(pb.ServerMessage)
	if err := proto.Unmarshal(b, got); err != nil || !proto.Equal(got, want) {
		t.Fatalf("the client hears %v, %v; not %v", got, err, want)
	}
}

// Goal: renewals of several channels whose leases are known reach the member in one message, each
// with its leases and tokens, and each client hears what became of its own. The streams of the
// calls get nothing.
func TestRenewalsGoInColumns(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		one, two, three := open(t, relay, "one"), open(t, relay, "two"), open(t, relay, "three")
		at := []served{<-calls, <-calls, <-calls}
		for first := range uint64(2) { // the first time no lease is known
			renew(t, one, 5+first, 2)
			renew(t, two, 6+first, 4, 6, 8)
			renew(t, three, 7+first, 10)
			list := a.take(3)
			for i, want := range []Renewal{
				{Request: 5 + first, IDs: []int64{2}, Tokens: []uint64{102}},
				{Request: 6 + first, IDs: []int64{4, 6, 8}, Tokens: []uint64{104, 106, 108}},
				{Request: 7 + first, IDs: []int64{10}, Tokens: []uint64{110}},
			} {
				if want.Channel = at[i].Channel; fmt.Sprint(list[i]) != fmt.Sprint(want) {
					t.Errorf("renewal %d is %v, not %v", i, list[i], want)
				}
				if len(at[i].pieces) != 0 {
					t.Error("a renewal in columns came by the stream, too")
				}
			}
			a.answers(list)
			hears(t, one, 5+first, 2000)
			hears(t, two, 6+first, 4000, 6000, 8000)
			hears(t, three, 7+first, 10_000)
		}
		renew(t, one, 7, 2)
		renew(t, two, 8, 4)
		renew(t, three, 9, 10)
		if list := <-a.lists; len(list) != 3 {
			t.Errorf("%d renewals in a message", len(list))
		}
	})
}

// Goal: a renewal that the member leaves to the stream comes by the stream, whole, and nothing of
// it is answered before. So does one whose channel was answered in part.
func TestUnansweredRenewals(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		good, bad := open(t, relay, "good"), open(t, relay, "bad")
		synctest.Wait()
		renew(t, good, 1, 2)
		renew(t, bad, 1, 2, 3) // 3 is not renewed
		list := a.take(2)
		a.answers(list)
		a.answers(list) // what was answered is not answered again
		hears(t, good, 1, 2000)
		<-calls
		at := <-calls
		wants(t, at.Channel, []byte("renewal 1"))
		synctest.Wait()
		if len(at.pieces)+len(good.pieces)+len(bad.pieces) != 0 {
			t.Error("a renewal was sent, or answered, twice")
		}
		send(t, at.Channel, []byte("no"))
		wants(t, bad, []byte("no"))
	})
}

// Goal: a client that sends nothing more gets the answers to its renewals: the end of what it sends
// follows those that have none.
func TestEndFollowsRenewals(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		c := open(t, relay, "a")
		at := <-calls
		renew(t, c, 1, 2)
		renew(t, c, 2, 3)
		c.CloseSend()
		list := a.take(2)
		synctest.Wait()
		if at.through {
			t.Fatal("the end came before a renewal was answered")
		}
		if tryRenew(c, 3, 4) {
			t.Error("a renewal goes in columns after the end")
		}
		a.answers(list)
		hears(t, c, 1, 2000)
		wants(t, at.Channel, []byte("renewal 2"))
		if _, err := at.Recv(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the last renewal: %v", err)
		}
		at.End(&pb.RelayEnd{})
	})
}

// Goal: a renewal waits for others a hundredth of its lease's TTL, 150 ms at most, and not at all
// before the TTL is known, also when another lease of the client is known. What else is sent takes
// it along. After another message of the client a lease can be a new one, or have another TTL.
func TestRenewalsWaitForOthers(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		c, other := open(t, relay, "a"), open(t, relay, "b")
		at := (<-calls).Channel
		const first, second = 100, 4 // leases, of which the TTL is as many seconds
		for i, x := range []struct {
			leases []int64
			want   time.Duration
			before bool // the client sends another message before
			along  bool // another client sends a message
		}{
			{leases: []int64{first}},
			{leases: []int64{first}, want: maxLinger},
			{leases: []int64{second}},
			{leases: []int64{second}, want: 40 * time.Millisecond},
			{leases: []int64{first}, want: maxLinger},
			{leases: []int64{first, second}, want: 40 * time.Millisecond},
			{leases: []int64{first, 6}},
			{leases: []int64{first}, along: true},
			{leases: []int64{first}, before: true},
			{leases: []int64{second}},
			{leases: []int64{second}, want: 40 * time.Millisecond},
		} {
			if x.before {
				send(t, c, []byte("a"))
				wants(t, at, []byte("a"))
			}
			began := time.Now()
			renew(t, c, uint64(i+1), x.leases...)
			synctest.Wait()
			if x.along {
				send(t, other, []byte("b"))
			}
			list := <-a.lists
			if took := time.Since(began); took != x.want {
				t.Errorf("renewal %d waits %v, not %v", i, took, x.want)
			}
			a.answers(list)
			var ttls []int64
			for _, id := range x.leases {
				ttls = append(ttls, 1000*id)
			}
			hears(t, c, uint64(i+1), ttls...)
		}
		// One that is in a hurry takes those along that are not.
		renew(t, other, 100, first)
		a.answers(<-a.lists)
		hears(t, other, 100, 1000*first)
		for i := range uint64(10) {
			renew(t, other, i+1, first)
			renew(t, c, i+100, int64(2*i+1000))
			list := <-a.lists
			if len(list) != 2 {
				t.Errorf("%d renewals in a message", len(list))
			}
			a.answers(list)
			hears(t, other, i+1, 1000*first)
			hears(t, c, i+100, int64(2*i+1000)*1000)
		}
	})
}

// Goal: the TTL of an answer makes no renewal wait if the client has sent another message before
// that answer came: it could have changed the TTL. A client with many leases costs no memory.
func TestWhatLeasesAreKnown(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		c := open(t, relay, "a")
		at := (<-calls).Channel
		began := time.Now()
		renew(t, c, 1, 100)
		list := <-a.lists
		send(t, c, []byte("a"))
		wants(t, at, []byte("a"))
		a.answers(list)
		hears(t, c, 1, 100_000)
		renew(t, c, 2, 100)
		a.answers(<-a.lists)
		hears(t, c, 2, 100_000)
		if took := time.Since(began); took != 0 {
			t.Errorf("a renewal waits %v", took)
		}
		for i := range int64(2 * maxTold) {
			renew(t, c, uint64(3+i), 2*i+1000)
			a.answers(<-a.lists)
			hears(t, c, uint64(3+i), 1000*(2*i+1000))
			if n := len(c.idle.told); n > maxTold {
				t.Fatalf("%d leases are known", n)
			}
		}
	})
}

// Goal: renewals stay behind what the client has sent before, and a client that reads no answers is
// held up as it is for other messages.
func TestRenewalsAsOtherMessages(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, _ <-chan served, a *asks) {
		c := open(t, relay, "a")
		synctest.Wait()
		n := uint64(0)
		for ; tryRenew(c, n+1, 2); n++ {
			if n%2 == 0 {
				continue
			}
			list := <-a.lists
			for len(list) < 2 {
				list = append(list, <-a.lists...)
			}
			a.answers(list)
			synctest.Wait()
		}
		if n != maxRenewals {
			t.Errorf("%d renewals without a reader", n)
		}
		hears(t, c, 1, 2000)
		renew(t, c, n+1, 2)
		if tryRenew(c, n+1, 2) {
			t.Error("an ID is used twice at a time")
		}
	})
	// A member that does not take them.
	joined(t, 1<<20, func(t *testing.T, relay *Link, _ <-chan served) {
		c := open(t, relay, "a")
		synctest.Wait()
		if tryRenew(c, 1, 2) {
			t.Error("a renewal goes in columns to a member that takes none")
		}
	})
	// More than one message has room for.
	l := New(nil, 1<<20, nil)
	l.SendRenewals()
	rows := 0
	for range maxRows {
		c := open(t, l, "")
		if tryRenew(c, 1, 2) {
			t.Fatal("a renewal passes the call")
		}
		l.framesLocked(0)
		for i := uint64(1); i < maxRenewals && tryRenew(c, i, 2); i++ {
			rows++
		}
	}
	if m, _, _ := l.next(); rows != maxRows || len(m.Renewals.Ids) != maxRows {
		t.Errorf("%d leases in a message", rows)
	}
}

// Goal: a channel that ends, at either end, takes its renewals with it.
func TestRenewalsOfEndedChannel(t *testing.T) {
	renewing(t, func(t *testing.T, relay *Link, calls <-chan served, a *asks) {
		c, other := open(t, relay, "a"), open(t, relay, "b")
		synctest.Wait()
		renew(t, c, 1, 3)
		renew(t, other, 1, 2)
		c.End(&pb.RelayEnd{})
		for came := false; !came; { // that of c may come alone before
			list := <-a.lists
			a.answers(list)
			came = list[len(list)-1].IDs[0] == 2
		}
		hears(t, other, 1, 2000)
		at := <-calls
		synctest.Wait()
		if b, err := at.Recv(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("of a call that was given up comes %q, %v", bytes.TrimSpace(b), err)
		}
		if tryRenew(c, 2, 2) {
			t.Error("a call that has ended renews")
		}
	})
}

// Goal: who receives may leave, and is called when there is something: a message, the end of the
// other side's, the end of the channel or of the link. What was taken before calls nobody.
func TestRest(t *testing.T) {
	for name, happens := range map[string]func(relay *Link, c *Channel){
		"a message": func(_ *Link, c *Channel) {
			go func() { _ = c.Send(context.Background(), nil) }()
		},
		"no more":  func(_ *Link, c *Channel) { c.CloseSend() },
		"the end":  func(_ *Link, c *Channel) { c.End(&pb.RelayEnd{}) },
		"the link": func(l *Link, _ *Channel) { l.End(errors.New("lost")) },
	} {
		joined(t, 1<<20, func(t *testing.T, relay *Link, calls <-chan served) {
			c := open(t, relay, name)
			at := <-calls
			send(t, c, []byte("before"))
			wants(t, at.Channel, []byte("before"))
			began := time.Now()
			if at.Await(time.Second) || time.Since(began) != time.Second {
				t.Errorf("%s: something is to be received after %v", name, time.Since(began))
			}
			called := make(chan bool, 2)
			if !at.Rest(func() { called <- true }) {
				t.Fatalf("%s: there is something to be received", name)
			}
			synctest.Wait()
			if len(called) != 0 {
				t.Errorf("%s: called for nothing", name)
			}
			if happens(relay, c); name == "the link" {
				at.link.End(errors.New("lost")) // the other end learns of it, too
			}
			<-called
			if !at.Await(time.Second) || at.Rest(func() { called <- true }) {
				t.Errorf("%s: there is nothing to be received", name)
			}
			synctest.Wait()
			if len(called) != 0 {
				t.Errorf("%s: called twice", name)
			}
		})
	}
}
