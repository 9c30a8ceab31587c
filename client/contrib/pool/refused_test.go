package pool_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

// Requests that tests answer in place of the member.

var one = pool.Spec{First: 1, Last: 1}

// TestRefused makes the cluster refuse each request of each call in turn, counted by type. The call
// must return the error and stop.
func TestRefused(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, x := range map[string]struct {
			match func(*pb.Request) bool
			nth   int
			call  func(c *client.Client, p *pool.Pool) error
		}{
			"create": {rig.Txns, 1, func(c *client.Client, _ *pool.Pool) error {
				_, err := pool.Create(ctx, c, "create", one)
				return err
			}},
			"open": {rig.Reads, 1, func(c *client.Client, _ *pool.Pool) error {
				_, err := pool.Open(ctx, c, "open")
				return err
			}},
			"acquire, keys that are held": {rig.Txns, 1, func(_ *client.Client, p *pool.Pool) error {
				_, err := p.Acquire(ctx, pool.Request{})
				return err
			}},
			"acquire, the lease": {rig.Grants, 1, func(_ *client.Client, p *pool.Pool) error {
				_, err := p.Acquire(ctx, pool.Request{})
				return err
			}},
			"acquire, which waits": {rig.Watches, 1, func(_ *client.Client, p *pool.Pool) error {
				acquire(t, p, pool.Request{TTL: time.Minute})
				_, err := p.Acquire(ctx, pool.Request{Wait: true})
				return err
			}},
			"release": {rig.Revokes, 1, func(_ *client.Client, p *pool.Pool) error {
				return acquire(t, p, pool.Request{TTL: time.Minute}).Release(ctx)
			}},
			"list": {rig.Lists, 1, func(_ *client.Client, p *pool.Pool) error {
				_, err := p.List(ctx)
				return err
			}},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				rig.Must[*pool.Pool](t)(pool.Create(ctx, direct, name, one))
				c := rig.Through(t, r.Members[0], x.match, func(n int) *pb.Response {
					if n == x.nth {
						return rig.Refused(n)
					}
					return nil
				})
				var p *pool.Pool
				if name != "open" {
					p = rig.Must[*pool.Pool](t)(pool.Open(ctx, c, name))
				}
				if err := x.call(c, p); !errors.Is(err, client.ErrPermissionDenied) {
					t.Error(err)
				}
			})
		}
	})
}

// TestCreateUnsure checks that a pool is created only once even if a response is lost. If the
// outcome is unknown, the error says so.
func TestCreateUnsure(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, do := range map[string]func(){
			"not done": func() {},
			"done":     func() { rig.Must[*pool.Pool](t)(pool.Create(ctx, direct, "done", one)) },
		} {
			c := rig.Through(t, r.Members[0], rig.Txns, rig.Unsure(do))
			p := rig.Must[*pool.Pool](t)(pool.Create(ctx, c, name, one))
			acquire(t, p, pool.Request{})
			rig.Must[*pool.Pool](t)(pool.Open(ctx, direct, name))
		}
		c := rig.Through(t, r.Members[0], rig.Txns, func(n int) *pb.Response {
			if a := rig.Unsure(func() {})(n); a != nil {
				return a
			}
			return rig.Refused(n)
		})
		p, err := pool.Create(ctx, c, "refused", one)
		if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("created %+v, %v", p, err)
		}
	})
}

// TestOpenBroken checks that Open rejects a pool with an invalid Spec.
func TestOpenBroken(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for _, value := range []string{`{`, `{"first": 2, "last": 1}`} {
			if _, err := c.Put(ctx, store.Put{Key: "p/ids", Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
			if p, err := pool.Open(ctx, c, "p"); p != nil || err == nil {
				t.Errorf("opened %s: %+v, %v", value, p, err)
			}
		}
	})
}

// TestOthersAreQuicker checks that Acquire without Wait fails only if no ID is free, and not
// because other owners were faster.
func TestOthersAreQuicker(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		tries := 0
		c := rig.Through(t, r.Members[0], rig.Grants, func(n int) *pb.Response {
			if tries = n; n <= 8 {
				return rig.Refusal(pb.Reason_REASON_NAME_TAKEN)
			}
			return nil
		})
		rig.Must[*pool.Pool](t)(pool.Create(ctx, direct, "p", pool.Spec{First: 1, Last: 9}))
		p := rig.Must[*pool.Pool](t)(pool.Open(ctx, c, "p"))
		if acquire(t, p, pool.Request{}); tries != 9 {
			t.Errorf("tried %d times, want 9", tries)
		}
		// A caller that gives up between two attempts gets its context's error.
		short, end := context.WithCancel(ctx)
		c = rig.Through(t, r.Members[0], rig.Grants, func(n int) *pb.Response {
			if n == 80 { // by now, the wait is at least a quarter of a second
				time.AfterFunc(10*time.Millisecond, end)
			}
			return rig.Refusal(pb.Reason_REASON_NAME_TAKEN)
		})
		p = rig.Must[*pool.Pool](t)(pool.Open(ctx, c, "p"))
		if l, err := p.Acquire(short, pool.Request{}); !errors.Is(err, context.Canceled) {
			t.Errorf("acquired %+v, %v", l, err)
		}
	})
}

// TestWaits checks that a caller that waits for any ID, or for a specific one, is woken when it
// becomes free. Other IDs do not wake the caller.
func TestWaits(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, want := range map[string]string{"any": "", "one": "1"} {
			p := rig.Must[*pool.Pool](t)(pool.Create(ctx, direct, name, pool.Spec{
				IDs: []string{"1", "10"},
			}))
			first := acquire(t, p, pool.Request{Want: "1", TTL: time.Minute})
			second := acquire(t, p, pool.Request{Want: "10", TTL: time.Minute})
			waits, looks := make(chan struct{}, 10), new(atomic.Int32)
			b := &rig.Between{
				Instead: func(r *pb.Request) *pb.Response {
					ops := r.GetTxn().GetSuccess()
					if rig.Reads(r) || len(ops) > 0 && ops[0].GetReadRange() != nil {
						looks.Add(1)
					}
					all := len(r.GetReadRange().GetRangeEnd()) > 0 || len(r.GetWatch().GetRangeEnd()) > 0
					if all && want != "" {
						t.Errorf("waiting for one ID, it requests %v", r)
					}
					return nil
				},
				Seen: func(r *pb.Response) {
					if w := r.GetWatch(); w != nil && len(w.Events) == 0 {
						waits <- struct{}{}
					}
				},
			}
			c := b.Serve(t, r.Members[0])
			p = rig.Must[*pool.Pool](t)(pool.Open(ctx, c, name))
			looks.Store(0)
			got := rig.Async(func() (*pool.Loan, error) {
				return p.Acquire(ctx, pool.Request{Want: want, Wait: true})
			})
			<-waits
			last := first
			if want != "" {
				if err := second.Release(ctx); err != nil {
					t.Fatal(err)
				}
			} else {
				last = second
			}
			if err := last.Release(ctx); err != nil {
				t.Fatal(err)
			}
			if a := <-got; a.Err != nil || a.Value.ID() != last.ID() {
				t.Errorf("%s: acquired %+v, %v", name, a.Value, a.Err)
			}
			if n, want := looks.Load(), int32(2); n != want {
				t.Errorf("%s: looked %d times, want %d", name, n, want)
			}
		}
	})
}

// TestHolderUnknown checks that Acquire returns ErrNoneFree even if it cannot determine the holder.
func TestHolderUnknown(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		acquire(t, rig.Must[*pool.Pool](t)(pool.Create(ctx, direct, "p", one)),
			pool.Request{TTL: time.Minute})
		c := rig.Through(t, r.Members[0], func(r *pb.Request) bool {
			return r.GetDescribe() != nil
		}, rig.Refused)
		_, err := rig.Must[*pool.Pool](t)(pool.Open(ctx, c, "p")).Acquire(ctx, pool.Request{Want: "1"})
		if !errors.Is(err, pool.ErrNoneFree) || strings.Contains(err.Error(), "lease") {
			t.Error(err)
		}
	})
}

// TestNotNoted checks that an ID is leased even if the record of its owner cannot be written. If
// the caller has given up in the meantime, the ID is released.
func TestNotNoted(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, gone := range map[string]bool{"stays": false, "gone": true} {
			short, end := context.WithCancel(ctx)
			c := rig.Through(t, r.Members[0], func(r *pb.Request) bool {
				ops := r.GetTxn().GetSuccess()
				return len(r.GetTxn().GetCompare()) == 0 && len(ops) > 0 && ops[0].GetPut() != nil
			}, func(n int) *pb.Response {
				if gone {
					end()
				}
				return rig.Refused(n)
			})
			p := rig.Must[*pool.Pool](t)(pool.Create(ctx, c, name, one))
			l, err := p.Acquire(short, pool.Request{TTL: time.Hour})
			if gone != (err != nil) || gone != (l == nil) {
				t.Errorf("%s: acquired %+v, %v", name, l, err)
			}
			held := 1
			if gone {
				held = 0
			}
			rig.Keys(t, direct, name+"/held/", held)
			end()
		}
	})
}

// TestTerms checks that the default TTL is ten seconds and that the lease has the pool's
// quarantine.
func TestTerms(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		p := rig.Must[*pool.Pool](t)(pool.Create(ctx, c, "p", pool.Spec{
			IDs: []string{"a", "b"}, Quarantine: time.Hour,
		}))
		for ttl, want := range map[time.Duration]time.Duration{
			0: 10 * time.Second, time.Minute: time.Minute,
		} {
			l := acquire(t, p, pool.Request{TTL: ttl, Owner: "me"})
			i := l.Lease().Info()
			if i.TTL != want || i.LockDelay != time.Hour || i.Owner != "me" || l.ValidUntil().IsZero() {
				t.Errorf("lease %+v, valid until %v", i, l.ValidUntil())
			}
		}
		list := rig.Must[[]pool.Entry](t)(p.List(ctx))
		slices.SortFunc(list, func(a, b pool.Entry) int { return int(a.Remaining - b.Remaining) })
		if len(list) != 2 || list[0].Remaining > 10*time.Second || list[1].Remaining <= 10*time.Second ||
			list[0].Quarantined || list[0].Token == 0 {
			t.Errorf("listed %+v", list)
		}
	})
}
