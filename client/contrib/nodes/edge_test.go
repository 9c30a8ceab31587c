package nodes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

// TestMetadata checks that a live node is listed with the metadata it joined with, whether or not
// the cluster has a record of the node.
func TestMetadata(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		s := nodes.New(c, "n")
		expect := func(when, want string) {
			t.Helper()
			var got []string
			for _, n := range rig.Must[nodes.View](t)(s.List(ctx)).Nodes {
				got = append(got, n.ID+" "+n.State.String()+" "+string(n.Metadata))
			}
			if list := strings.Join(got, "; "); list != want {
				t.Errorf("%s: listed %q, want %q", when, list, want)
			}
		}
		a := join(t, s, nodes.Config{ID: "a", TTL: time.Minute, Metadata: []byte("1")})
		b := join(t, s, nodes.Config{ID: "b", TTL: time.Minute, Metadata: []byte("2")})
		expect("joined", "a alive 1; b alive 2")
		if err := s.Forget(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		expect("a is up, and not known", "a alive 1; b alive 2")
		if err := a.Release(ctx); err != nil {
			t.Fatal(err)
		}
		expect("a is forgotten", "b alive 2")
		// The recorded metadata of b is from an earlier incarnation.
		if _, err := c.Put(ctx, store.Put{Key: "n/known/b", Value: []byte("old")}); err != nil {
			t.Fatal(err)
		}
		expect("b is known as it was", "b alive 2")
		if err := b.Release(ctx); err != nil {
			t.Fatal(err)
		}
		expect("b is down", "b down old")
	})
}

// TestRetries checks that requests that are refused temporarily are retried with pauses. The caller
// gets the error that ends the retries, even if its node is down.
func TestRetries(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		taken := func() *pb.Response { return rig.Refusal(pb.Reason_REASON_NAME_TAKEN) }
		for name, x := range map[string]struct {
			match  func(*pb.Request) bool
			answer func() *pb.Response
			call   func(ctx context.Context, s *nodes.Set, n *nodes.Node) error
			why    error
		}{
			"primary": {isTake, taken, func(_ context.Context, _ *nodes.Set, n *nodes.Node) error {
				_, err := n.Primary(ctx)
				return err
			}, nodes.ErrDown},
			"join": {rig.Grants, taken, func(short context.Context, s *nodes.Set, _ *nodes.Node) error {
				_, err := s.Join(short, nodes.Config{ID: "m", Wait: true})
				return err
			}, context.Canceled},
			"switch": {isOrder, func() *pb.Response { // simulates a concurrent change
				return &pb.Response{Body: &pb.Response_Txn{Txn: &pb.TxnResponse{}}}
			}, func(short context.Context, s *nodes.Set, _ *nodes.Node) error {
				return s.Switch(short, "n")
			}, context.Canceled},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				short, cancel := context.WithCancel(ctx)
				defer cancel()
				begin := make(chan struct{})
				var n *nodes.Node
				var began time.Time
				c := rig.Through(t, r.Members[0], func(r *pb.Request) bool {
					select {
					case <-begin:
						return x.match(r)
					default:
						return false
					}
				}, func(tries int) *pb.Response {
					switch tries {
					case 1:
						began = time.Now()
					case 8: // by now, the wait is at least a quarter of a second
						if d := time.Since(began); d < 300*time.Millisecond {
							t.Errorf("8 tries within %v", d)
						}
						time.AfterFunc(10*time.Millisecond, func() {
							n.Lease().Close()
							cancel()
						})
					}
					return x.answer()
				})
				s := nodes.New(c, name)
				n = join(t, s, nodes.Config{ID: "n", TTL: time.Minute})
				close(begin)
				if err := x.call(short, s, n); !errors.Is(err, x.why) {
					t.Error(err)
				}
			})
		}
	})
}

// TestTakeAfterChange checks that a node takes the role only if nothing has changed since it read
// the state of the set.
func TestTakeAfterChange(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		put := func(key, value string) {
			if _, err := direct.Put(ctx, store.Put{Key: key, Value: []byte(value)}); err != nil {
				t.Error(err)
			}
		}
		remove := func(key string) {
			if _, err := direct.Delete(ctx, store.Delete{Key: key}); err != nil {
				t.Error(err)
			}
		}
		for name, x := range map[string]struct {
			before, between, after func(key string)
		}{
			"somebody else has the role": {
				func(string) {},
				func(set string) { put(set+"/primary", "other") },
				func(set string) { remove(set + "/primary") },
			},
			"somebody else is ordered": {
				func(string) {},
				func(set string) { put(set+"/order", "other") },
				func(set string) { remove(set + "/order") },
			},
			"somebody else is ordered now": {
				func(set string) { put(set+"/order", "n") },
				func(set string) { put(set+"/order", "other") },
				func(set string) { put(set+"/order", "n") },
			},
			"the order is canceled": {
				func(set string) { put(set+"/order", "n") },
				func(set string) { remove(set + "/order") },
				func(string) {},
			},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				tries, waits := 0, make(chan struct{}, 10)
				b := &rig.Between{
					Instead: func(r *pb.Request) *pb.Response {
						if isTake(r) {
							if tries++; tries == 1 {
								x.between(name)
							}
						}
						return nil
					},
					Seen: func(r *pb.Response) {
						if r.GetWatch() != nil {
							waits <- struct{}{}
						}
					},
				}
				x.before(name)
				n := join(t, nodes.New(b.Serve(t, r.Members[0]), name), nodes.Config{
					ID: "n", TTL: time.Minute,
				})
				got := rig.Async(func() (*nodes.Primacy, error) { return n.Primary(ctx) })
				if name != "the order is canceled" {
					<-waits
				}
				x.after(name)
				if a := <-got; a.Err != nil || a.Value.Err() != nil {
					t.Error(a.Err)
				}
				if tries != 2 {
					t.Errorf("tried %d times", tries)
				}
				rig.Keys(t, direct, name+"/order", 0)
			})
		}
	})
}

// TestLeaseEndsBeforeAnswer checks a grant of the role whose response arrives after the lease has
// ended. The node releases the role and takes it again. If the role cannot be released, the call
// fails.
func TestLeaseEndsBeforeAnswer(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		for name, fails := range map[string]bool{"given back": false, "refused": true} {
			late := true
			b := &rig.Between{
				Instead: func(r *pb.Request) *pb.Response {
					if fails && rig.Revokes(r) {
						return rig.Refused(1)
					}
					return nil
				},
				Seen: func(r *pb.Response) {
					for _, o := range r.GetTxn().GetResponses() {
						if g := o.GetGrant(); g != nil && late {
							late = false
							g.Lease.TtlMs = 0
						}
					}
				},
			}
			c := b.Serve(t, r.Members[0])
			n := join(t, nodes.New(c, name), nodes.Config{ID: "n", TTL: time.Minute})
			p, err := n.Primary(ctx)
			if fails != (err != nil) || !fails && p.Err() != nil || late {
				t.Errorf("%s: primary: %v", name, err)
			}
		}
	})
}

// TestRoleWithoutKey checks that a role whose key was deleted becomes free when its lease ends, and
// not before.
func TestRoleWithoutKey(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		var first *nodes.Primacy
		c := rig.Through(t, r.Members[0], isTake, func(n int) *pb.Response {
			if n == 3 {
				if err := first.Release(ctx); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
		s := nodes.New(direct, "n")
		first = rig.Must[*nodes.Primacy](t)(
			join(t, s, nodes.Config{ID: "a", TTL: time.Minute}).Primary(ctx))
		if _, err := direct.Delete(ctx, store.Delete{Key: "n/primary"}); err != nil {
			t.Fatal(err)
		}
		next := join(t, nodes.New(c, "n"), nodes.Config{ID: "b", TTL: time.Minute})
		if p := rig.Must[*nodes.Primacy](t)(next.Primary(ctx)); first.Err() == nil || p.Err() != nil {
			t.Errorf("first primary: %v, next: %v", first.Err(), p.Err())
		}
	})
}

// TestPrimacyEnds checks that a primary has to stop when its node is down or its role has ended,
// whichever comes first. The primary can find out when and why.
func TestPrimacyEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, x := range map[string]struct {
			end func(*nodes.Node, *nodes.Primacy) error
			why error
		}{
			"node closed": {func(n *nodes.Node, _ *nodes.Primacy) error {
				n.Lease().Close()
				return nil
			}, client.ErrClosed},
			"node released": {func(n *nodes.Node, _ *nodes.Primacy) error {
				return n.Release(ctx)
			}, client.ErrReleased},
			"role closed": {func(_ *nodes.Node, p *nodes.Primacy) error {
				p.Lease().Close()
				return nil
			}, client.ErrClosed},
			"role released": {func(_ *nodes.Node, p *nodes.Primacy) error {
				return p.Release(ctx)
			}, client.ErrReleased},
		} {
			for range 5 {
				n := join(t, nodes.New(c, name), nodes.Config{ID: "n", TTL: time.Minute, Wait: true})
				p := rig.Must[*nodes.Primacy](t)(n.Primary(ctx))
				longer := n.Lease()
				if strings.HasPrefix(name, "node") {
					longer = p.Lease()
				}
				if err := longer.ChangeTTL(ctx, time.Hour); err != nil {
					t.Fatal(err)
				}
				if left := time.Until(p.ValidUntil()); left > time.Minute {
					t.Errorf("%s: valid for %v", name, left)
				}
				if p.Err() != nil || p.Context().Err() != nil {
					t.Errorf("%s: %v", name, p.Err())
				}
				err := x.end(n, p)
				if err != nil || !errors.Is(p.Err(), x.why) {
					t.Errorf("%s: %v, %v", name, err, p.Err())
				}
				<-p.Context().Done()
				<-p.Lease().Context().Done() // now other nodes can take the role
				if err := context.Cause(p.Context()); !errors.Is(err, x.why) {
					t.Errorf("%s: the context ended with %v", name, err)
				}
				if err := p.Release(ctx); err != nil {
					t.Error(err)
				}
				if err := n.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestViewsEnd checks that an iteration over views ends with the first error, or when the program
// stops it.
func TestViewsEnd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		over, cancel := context.WithCancel(ctx)
		cancel()
		n := 0
		for v, err := range nodes.New(c, "n").Watch().Views(over) {
			if n++; !errors.Is(err, context.Canceled) || len(v.Nodes) > 0 {
				t.Errorf("got %+v, %v", v, err)
			}
			if n == 3 {
				break
			}
		}
		if n != 1 {
			t.Errorf("got %d views", n)
		}
	})
}

// TestInvalidID checks that an ID that cannot be part of a key is rejected.
func TestInvalidID(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for _, id := range []string{"", "a/b"} {
			_, err := nodes.New(c, "n").Join(ctx, nodes.Config{ID: id})
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%q joined: %v", id, err)
			}
		}
	})
}

// TestDefaultTTL checks that a node that joins without a TTL gets a TTL of ten seconds, and that
// its role does as well.
func TestDefaultTTL(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		n := join(t, nodes.New(c, "n"), nodes.Config{ID: "n"})
		p := rig.Must[*nodes.Primacy](t)(n.Primary(ctx))
		node, role := n.Lease().Info().TTL, p.Lease().Info().TTL
		if n.ID() != "n" || node != 10*time.Second || role != 10*time.Second {
			t.Errorf("%s has a TTL of %v, the role one of %v", n.ID(), node, role)
		}
	})
}

// TestStates checks that every State has a name.
func TestStates(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for s, want := range map[nodes.State]string{
			nodes.Alive: "alive", nodes.Suspect: "suspect", nodes.Down: "down", 7: "unknown state 7",
		} {
			if got := s.String(); got != want {
				t.Errorf("State(%d) is %q, want %q", s, got, want)
			}
		}
		if n := (&nodes.View{}).Node("x"); n.ID != "x" || n.State != nodes.Down {
			t.Errorf("an unknown node: %+v", n)
		}
	})
}
