package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/tier"
)

// crashTTL is long enough that no lease ends by itself.
const crashTTL = 100_000

// idsPerWriter is how many lease ids a writer has for itself.
const idsPerWriter = 1_000_000

// TestCrash (S2) kills a member repeatedly while writers put, delete, grant and revoke, and
// compares its state after each restart with what was acknowledged. Of the one operation that each
// writer had in flight, either outcome is right, as a whole.
func TestCrash(t *testing.T) {
	tier.Campaign(t)
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("reproduce the choices with -seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := startMember(t)
	const writers = 8
	list := make([]*writer, writers)
	for i := range list {
		list[i] = newWriter(i, rand.New(rand.NewPCG(seed, uint64(i)+1)))
	}
	var acked int64
	var revision int64
	for round := range *roundsFlag {
		acked += crashRound(t, m, list, 1, time.Duration(50+rng.IntN(250))*time.Millisecond)
		m.start()
		var wrong []string
		revision, wrong = checkAfterCrash(t, m, list, revision)
		if len(wrong) > 0 {
			t.Fatalf("wrong after kill %d:\n%s", round+1, strings.Join(wrong, "\n"))
		}
	}
	t.Logf("%d kills, %d acknowledged operations, revision %d", *roundsFlag, acked, revision)
}

// The check of TestCrash notices data of every kind that are removed between kill and restart.
func TestCrashCheckNotices(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	list := []*writer{newWriter(0, rand.New(rand.NewPCG(1, 1)))}
	crashRound(t, m, list, 50, 0) // puts and grants are among them, by the seed
	if err := os.RemoveAll(m.data); err != nil {
		t.Fatal(err)
	}
	m.start()
	_, wrong := checkAfterCrash(t, m, list, 1000)
	got := strings.Join(wrong, "\n")
	for _, want := range []string{"key w0/", "lease ", "revision "} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing about a %sin\n%s", want, got)
		}
	}
}

// crashRound lets the writers work until the member is killed under them, d after
// so many operations were acknowledged, and returns how many were in the end.
func crashRound(t *testing.T, m *member, list []*writer, enough int64, d time.Duration) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := m.client()
	defer c.Close()
	var acked atomic.Int64
	var wg sync.WaitGroup
	reached := make(chan struct{})
	for _, w := range list {
		wg.Go(func() {
			for w.step(ctx, c) {
				if acked.Add(1) == enough {
					close(reached)
				}
			}
		})
	}
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatalf("%d acknowledgements", acked.Load())
	}
	<-time.After(d) // the crash may come at any moment
	m.kill()
	cancel()
	wg.Wait()
	for _, w := range list {
		if w.failed != nil {
			t.Fatal(w.failed)
		}
	}
	return acked.Load()
}

// A pair is the value of a key and the lease it is attached to, or neither.
type pair struct {
	value string
	lease clientv3.LeaseID
}

// A picture is what a writer's part of the store looks like. Every writer has
// its own keys and lease ids.
type picture struct {
	keys   map[string]pair
	leases map[clientv3.LeaseID]bool
}

func (p picture) clone() picture { return picture{maps.Clone(p.keys), maps.Clone(p.leases)} }

func (p picture) equal(o picture) bool {
	return maps.Equal(p.keys, o.keys) && maps.Equal(p.leases, o.leases)
}

// A writer does one operation after the other and remembers the picture that
// the acknowledged ones make, and the one if the operation in flight took
// effect.
type writer struct {
	id     int
	rng    *rand.Rand
	next   int // numbers values and leases
	acked  picture
	maybe  picture
	failed error // an answer that should not be
}

func newWriter(id int, rng *rand.Rand) *writer {
	empty := picture{map[string]pair{}, map[clientv3.LeaseID]bool{}}
	return &writer{id: id, rng: rng, acked: empty, maybe: empty.clone()}
}

// step does one operation, and returns false when the member is gone.
func (w *writer) step(ctx context.Context, c *clientv3.Client) bool {
	w.maybe = w.acked.clone()
	do := w.choose()
	if err := do(ctx, c); err != nil {
		var known rpctypes.EtcdError
		if errors.As(err, &known) && ctx.Err() == nil && !errors.Is(err, rpctypes.ErrStopped) {
			w.failed = fmt.Errorf("writer %d: %w", w.id, err)
		}
		return false
	}
	w.acked = w.maybe
	return true
}

type operation func(context.Context, *clientv3.Client) error

// choose picks the next operation and paints its effect into w.maybe.
func (w *writer) choose() operation {
	w.next++
	key := fmt.Sprintf("w%d/%03d", w.id, w.rng.IntN(200))
	leases := slices.Sorted(maps.Keys(w.acked.leases))
	switch n := w.rng.IntN(100); {
	case n < 20 && len(leases) < 50:
		return w.grant(clientv3.LeaseID(w.id*idsPerWriter + w.next))
	case n < 30 && len(leases) > 0:
		return w.revoke(leases[w.rng.IntN(len(leases))])
	case n < 40:
		delete(w.maybe.keys, key)
		return func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Delete(ctx, key)
			return err
		}
	default:
		p := pair{value: fmt.Sprintf("%d-%d", w.id, w.next)}
		if n < 70 && len(leases) > 0 {
			p.lease = leases[w.rng.IntN(len(leases))]
		}
		w.maybe.keys[key] = p
		return func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, key, p.value, clientv3.WithLease(p.lease))
			return err
		}
	}
}

// grant uses the raw call, since clientv3's lets the server choose the id, and the outcome of a
// lost answer could not be determined.
func (w *writer) grant(id clientv3.LeaseID) operation {
	w.maybe.leases[id] = true
	return func(ctx context.Context, c *clientv3.Client) error { return grantWithID(ctx, c, id) }
}

func (w *writer) revoke(id clientv3.LeaseID) operation {
	delete(w.maybe.leases, id)
	maps.DeleteFunc(w.maybe.keys, func(_ string, p pair) bool { return p.lease == id })
	return func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Revoke(ctx, id)
		return err
	}
}

// checkAfterCrash compares the member's state with every writer's pictures, from which the writers
// then continue. It returns the store's revision, which must not be lower than before, and any
// differences.
func checkAfterCrash(
	t *testing.T, m *member, list []*writer, before int64,
) (revision int64, wrong []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := m.client()
	defer c.Close()
	kvs, err := c.Get(ctx, "w", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	leases, err := c.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]picture, len(list))
	for i := range got {
		got[i] = picture{map[string]pair{}, map[clientv3.LeaseID]bool{}}
	}
	for _, kv := range kvs.Kvs {
		i := int(kv.Key[1] - '0')
		got[i].keys[string(kv.Key)] = pair{string(kv.Value), clientv3.LeaseID(kv.Lease)}
	}
	for _, l := range leases.Leases {
		got[l.ID/idsPerWriter].leases[l.ID] = true
	}
	for i, w := range list {
		if !got[i].equal(w.acked) && !got[i].equal(w.maybe) {
			wrong = append(wrong, difference(w.acked, got[i]))
		}
		w.acked = got[i]
		if why := attachedWrong(ctx, t, c, w); why != "" {
			wrong = append(wrong, why)
		}
	}
	if kvs.Header.Revision < before {
		wrong = append(wrong, fmt.Sprintf("revision %d after %d", kvs.Header.Revision, before))
	}
	return kvs.Header.Revision, wrong
}

// attachedWrong asks for one lease of the writer and compares its keys with
// what the keys say.
func attachedWrong(ctx context.Context, t *testing.T, c *clientv3.Client, w *writer) string {
	t.Helper()
	for id := range w.acked.leases {
		r, err := c.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, k := range r.Keys {
			got = append(got, string(k))
		}
		for k, p := range w.acked.keys {
			if p.lease == id {
				want = append(want, k)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) || r.GrantedTTL != crashTTL || r.TTL <= 0 {
			return fmt.Sprintf("lease %d: TTL %d of %d, keys %q, want %q",
				id, r.TTL, r.GrantedTTL, got, want)
		}
		break // any one will do: the next round takes another
	}
	return ""
}

// difference lists values that were acknowledged and are missing, and values that are present but
// were not acknowledged. One operation in flight may be among them.
func difference(want, got picture) string {
	var out string
	for k, p := range want.keys {
		if got.keys[k] != p {
			out += fmt.Sprintf("  key %s: acknowledged %+v, there %+v\n", k, p, got.keys[k])
		}
	}
	for k, p := range got.keys {
		if _, ok := want.keys[k]; !ok {
			out += fmt.Sprintf("  key %s: not acknowledged, there %+v\n", k, p)
		}
	}
	for id := range want.leases {
		if !got.leases[id] {
			out += fmt.Sprintf("  lease %d: acknowledged, not there\n", id)
		}
	}
	for id := range got.leases {
		if !want.leases[id] {
			out += fmt.Sprintf("  lease %d: not acknowledged, there\n", id)
		}
	}
	return out
}
