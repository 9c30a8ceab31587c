package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
)

func put(t testing.TB, c *client.Client, key, value string) int64 {
	t.Helper()
	r, err := c.Put(soon(t), store.Put{Key: key, Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Revision
}

// number returns the value of a relay's gauge.
func (r *running) number(t testing.TB, name string) int {
	t.Helper()
	n, err := strconv.Atoi(r.metric(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMergedWatches checks that merged watches receive each event once and in order from their
// start, no matter when they begin and end, with many writes per revision and many revisions (W1).
// Watches over streams and calls, from the current or an earlier revision, are compared with
// everything written.
func TestMergedWatches(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		writer := inprocess.Connect(t, client.Config{}, m[0].Endpoint())
		first := put(t, writer, "k", "first")
		var clients []*client.Client
		for range 3 {
			clients = append(clients, inprocess.Connect(t, client.Config{}, r.endpoint))
		}
		// These watches outlast all the others. They share a watch, which the others join.
		held, release := context.WithCancel(soon(t))
		for range 2 {
			w, err := clients[0].Watch(held, store.Watch{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				defer w.Close()
				for err == nil {
					_, err = w.Next(held)
				}
			}()
		}
		shared := func() int { return r.number(t, "leasehold_relay_shared_watches") }
		harness.Eventually(t, "watches are merged", func() error {
			if shared() == 0 {
				return errors.New("none")
			}
			return nil
		})
		const rounds, watchers = 15, 12
		stop := make(chan struct{})
		var all sync.WaitGroup
		var written sync.Map // by revision
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				value := fmt.Sprint(n)
				if n%50 == 49 {
					value += string(bytes.Repeat([]byte("v"), 70<<10)) // too large to be shared
				}
				written.Store(put(t, writer, "k", value), value)
			}
		})
		var watching sync.WaitGroup
		for i := range watchers {
			watching.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 0))
				for range rounds {
					follow(t, clients[i%len(clients)], &written, rng, first)
				}
			})
		}
		watching.Wait()
		release()
		close(stop)
		all.Wait()
		harness.Eventually(t, "the relay has no watches left", func() error {
			if n := r.number(t, "leasehold_relay_watches"); n != 0 || shared() != 0 {
				return fmt.Errorf("%d watches, %d shared", n, shared())
			}
			return nil
		})
	})
}

// follow watches until it has received some events, and compares them with what was written.
func follow(t *testing.T, c *client.Client, written *sync.Map, rng *rand.Rand, first int64) {
	ctx := soon(t)
	ask := store.Watch{Key: "k"}
	if rng.IntN(3) == 0 {
		now, err := c.Get(ctx, "k")
		if err != nil {
			t.Error(err)
			return
		}
		ask.From = max(first, now.ModRevision-rng.Int64N(300))
	}
	w, err := c.Watch(ctx, ask)
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Close()
	last := ask.From - 1
	for n := 0; n < 20+rng.IntN(200); {
		u, err := w.Next(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		for _, e := range u.Events {
			n++
			at := e.KV.ModRevision
			if last > 0 && at != last+1 {
				t.Errorf("from %d: revision %d after %d", ask.From, at, last)
			}
			if v, ok := written.Load(at); ok && v != string(e.KV.Value) {
				t.Errorf("revision %d: wrong event", at)
			}
			last = at
		}
	}
}

// equalWatches opens watches of a key in separate calls and waits until they have started.
func equalWatches(
	t testing.TB, ctx context.Context, conn *grpc.ClientConn, key string, n int,
) (list []pb.StoreService_WatchClient) {
	t.Helper()
	for range n {
		w, err := pb.NewStoreServiceClient(conn).Watch(ctx, &pb.WatchRequest{Key: []byte(key)})
		if err == nil {
			_, err = w.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, w)
	}
	return list
}

// TestMergedSlowReader checks that a client that does not read does not delay other clients. When
// it resumes reading, it receives everything: small and large events, and fragmented revisions.
func TestMergedSlowReader(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		writer := inprocess.Connect(t, client.Config{}, m[0].Endpoint())
		slow := dial(t, r.endpoint)
		lazy := equalWatches(t, soon(t), slow, "k", 4) // all on one connection, which soon blocks
		quick := equalWatches(t, soon(t), dial(t, r.endpoint), "k", 2)
		const events = 160
		var want []int64
		for i := range events {
			size := 2 << 10
			if i%40 == 39 {
				size = 300 << 10
			}
			at := put(t, writer, "k", string(bytes.Repeat([]byte("v"), size)))
			want = append(want, at)
			for _, w := range quick {
				for got := int64(0); got < at; {
					u, err := w.Recv()
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range u.Events {
						got = e.Kv.ModRevision
					}
				}
			}
		}
		var reading sync.WaitGroup
		for i, w := range lazy {
			reading.Go(func() {
				for n := 0; n < events; {
					u, err := w.Recv()
					if err != nil {
						t.Errorf("watch %d, after %d events: %v", i, n, err)
						return
					}
					for _, e := range u.Events {
						if n >= events || e.Kv.ModRevision != want[n] {
							t.Errorf("watch %d: event %d has revision %d", i, n, e.Kv.ModRevision)
							return
						}
						n++
					}
				}
			})
		}
		reading.Wait()
	})
}

// users creates users that can read the key k, and enables access control. It returns root's
// client.
func users(t *testing.T, m *inprocess.Member, names ...string) *clientv3.Client {
	t.Helper()
	ctx := soon(t)
	open := inprocess.Etcd(t, m.Endpoint())
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(open.UserAdd(ctx, "root", "p"))
	do(open.UserGrantRole(ctx, "root", "root"))
	do(open.RoleAdd(ctx, "relay"))
	for _, n := range append(names, "passer") {
		do(open.UserAdd(ctx, n, "p"))
		do(open.RoleAdd(ctx, n))
		do(open.RoleGrantPermission(ctx, n, "k", "", clientv3.PermissionType(clientv3.PermReadWrite)))
		do(open.UserGrantRole(ctx, n, n))
	}
	do(open.UserGrantRole(ctx, "passer", "relay"))
	do(open.AuthEnable(ctx))
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint()}, Username: "root", Password: "p",
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(inprocess.Dialer(t))},
	})
	do(root, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// as logs a user in and returns a context for its calls.
func as(t *testing.T, conn *grpc.ClientConn, name string) context.Context {
	t.Helper()
	r, err := etcdserverpb.NewAuthClient(conn).Authenticate(soon(t),
		&etcdserverpb.AuthenticateRequest{Name: name, Password: "p"})
	if err != nil {
		t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(soon(t), "token", r.Token)
}

// TestMergedRights checks that only watches of the same principal are merged. A watch that loses
// its permission receives only that error, and the other watches continue (A1).
func TestMergedRights(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		root := users(t, m[0], "a", "b")
		r := start(t, relay.Config{
			Endpoints: inprocess.Endpoints(m), User: "passer", Password: "p",
		})
		conn := dial(t, r.endpoint)
		a, b := as(t, conn, "a"), as(t, conn, "b")
		of := map[string][]pb.StoreService_WatchClient{
			"a": equalWatches(t, a, conn, "k", 3), "b": equalWatches(t, b, conn, "k", 3),
		}
		harness.Eventually(t, "two shared watches", func() error {
			if n := r.number(t, "leasehold_relay_shared_watches"); n != 2 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		next := func(w pb.StoreService_WatchClient) (string, error) {
			u, err := w.Recv()
			if err != nil {
				return "", err
			}
			return string(u.Events[0].Kv.Value), nil
		}
		ctx := soon(t)
		for i, value := range []string{"both", "b only"} {
			if i == 1 {
				if _, err := root.RoleRevokePermission(ctx, "a", "k", ""); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := root.Put(ctx, "k", value); err != nil {
				t.Fatal(err)
			}
			for who, list := range of {
				for _, w := range list {
					got, err := next(w)
					if denied := who == "a" && i == 1; denied {
						if status.Code(err) != codes.PermissionDenied {
							t.Errorf("%s received %q, %v", who, got, err)
						}
					} else if got != value || err != nil {
						t.Errorf("%s received %q, %v", who, got, err)
					}
				}
			}
		}
	})
}
