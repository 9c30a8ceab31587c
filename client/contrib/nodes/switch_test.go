package nodes_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestOrderedItself checks that AwaitSwitch returns once an order names another node, but not if an
// order names the primary itself.
func TestOrderedItself(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		waits := make(chan struct{}, 10)
		b := &rig.Between{Seen: func(r *pb.Response) {
			if w := r.GetWatch(); w != nil && len(w.Events) == 0 {
				waits <- struct{}{}
			}
		}}
		n := join(t, nodes.New(b.Serve(t, r.Members[0]), "n"), nodes.Config{ID: "n", TTL: time.Minute})
		p := rig.Must[*nodes.Primacy](t)(n.Primary(ctx))
		order := func(id string) {
			if _, err := direct.Put(ctx, store.Put{Key: "n/order", Value: []byte(id)}); err != nil {
				t.Fatal(err)
			}
		}
		order("n")
		result := rig.Async(func() (any, error) { return nil, p.AwaitSwitch(ctx) })
		for range 2 {
			select {
			case a := <-result:
				t.Fatalf("ordered itself: got %v", a.Err)
			case <-waits:
			}
			order("n")
		}
		order("other")
		if a := <-result; a.Err != nil {
			t.Error(a.Err)
		}
	})
}

// TestLeadListens checks that the context of Lead's function ends when a switch is ordered, and not
// earlier, even if the primary could not listen for a while. Lead returns no error if its function
// returns immediately.
func TestLeadListens(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		ordered := make(chan struct{})
		c := rig.Through(t, r.Members[0], rig.Reads, func(n int) *pb.Response {
			switch n {
			case 1, 2:
				return rig.Refused(n)
			case 3:
				_, err := direct.Put(ctx, store.Put{Key: "n/order", Value: []byte("other")})
				if err != nil {
					t.Error(err)
				}
				close(ordered)
			}
			return nil
		})
		n := join(t, nodes.New(c, "n"), nodes.Config{ID: "n", TTL: time.Minute})
		err := n.Lead(ctx, func(ctx context.Context, _ *nodes.Primacy) error {
			<-ctx.Done()
			select {
			case <-ordered:
				return context.Cause(ctx)
			default:
				return errors.New("nothing was ordered")
			}
		})
		if !errors.Is(err, nodes.ErrSwitched) {
			t.Errorf("led until %v", err)
		}
		n = join(t, nodes.New(direct, "m"), nodes.Config{ID: "n", TTL: time.Minute})
		for range 5 {
			err := n.Lead(ctx, func(context.Context, *nodes.Primacy) error { return nil })
			if err != nil {
				t.Errorf("without waiting: %v", err)
			}
		}
	})
}

// TestSwitchOrders checks that an order replaces an earlier one. It is stored once, and again if
// another order has replaced it.
func TestSwitchOrders(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		s := nodes.New(direct, "n")
		first := rig.Must[*nodes.Primacy](t)(
			join(t, s, nodes.Config{ID: "a", TTL: time.Minute}).Primary(ctx))
		b := join(t, s, nodes.Config{ID: "b", TTL: time.Minute})
		put := func(id string) {
			if _, err := direct.Put(ctx, store.Put{Key: "n/order", Value: []byte(id)}); err != nil {
				t.Fatal(err)
			}
		}
		put("a")
		given, looks, waits := new(atomic.Int32), new(atomic.Int32), make(chan struct{}, 10)
		between := &rig.Between{
			Instead: func(r *pb.Request) *pb.Response {
				if isOrder(r) {
					given.Add(1)
				}
				if rig.Watches(r) {
					looks.Add(1)
				}
				return nil
			},
			Seen: func(r *pb.Response) {
				if w := r.GetWatch(); w != nil && len(w.Events) == 0 {
					waits <- struct{}{}
				}
			},
		}
		c := between.Serve(t, r.Members[0])
		switched := rig.Async(func() (any, error) { return nil, nodes.New(c, "n").Switch(ctx, "b") })
		for n := int32(1); n <= 2; n++ {
			select {
			case <-waits:
			case <-time.After(20 * time.Second):
				t.Fatal("it does not wait")
			}
			kv := rig.Must[store.KV](t)(direct.Get(ctx, "n/order"))
			if given.Load() != n || string(kv.Value) != "b" || kv.Lease != b.Lease().ID() {
				t.Errorf("%d orders were stored, the last one for %q on lease %x", given.Load(), kv.Value, kv.Lease)
			}
			if n == 1 {
				put("a")
			}
		}
		join(t, s, nodes.Config{ID: "c", TTL: time.Minute}) // an unrelated change
		if err := first.Release(ctx); err != nil {
			t.Fatal(err)
		}
		rig.Must[*nodes.Primacy](t)(b.Primary(ctx))
		if a := <-switched; a.Err != nil || given.Load() != 2 {
			t.Errorf("%d orders were stored, %v", given.Load(), a.Err)
		}
		if n := looks.Load(); n > 3 { // the last read happens when the role is free
			t.Errorf("it looked %d times", n)
		}
	})
}

// TestSwitchDown checks that a switch ends if its target goes down.
func TestSwitchDown(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		s := nodes.New(direct, "n")
		rig.Must[*nodes.Primacy](t)(join(t, s, nodes.Config{ID: "a", TTL: time.Minute}).Primary(ctx))
		b := join(t, s, nodes.Config{ID: "b", TTL: time.Minute})
		waits := make(chan struct{}, 10)
		between := &rig.Between{Seen: func(r *pb.Response) {
			if r.GetWatch() != nil {
				waits <- struct{}{}
			}
		}}
		c := between.Serve(t, r.Members[0])
		switched := rig.Async(func() (any, error) { return nil, nodes.New(c, "n").Switch(ctx, "b") })
		<-waits
		if err := b.Release(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case a := <-switched:
			if !errors.Is(a.Err, nodes.ErrDown) {
				t.Error(a.Err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Switch is still waiting")
		}
	})
}
