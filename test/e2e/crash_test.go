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

// crashTTL is long enough that no lease expires.
const crashTTL = 100_000

// idsPerWriter is the number of lease IDs reserved for each writer.
const idsPerWriter = 1_000_000

// TestCrash (S2) kills a member repeatedly while writers put, delete, grant and revoke. After each
// restart, it compares the member's state with the acknowledged operations. Each writer has one
// in-flight operation, which may have taken effect completely or not at all.
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

// TestCrashCheckNotices checks that TestCrash would detect the loss of any kind of data between
// kill and restart.
func TestCrashCheckNotices(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	list := []*writer{newWriter(0, rand.New(rand.NewPCG(1, 1)))}
	crashRound(t, m, list, 50, 0) // with this seed, these include puts and grants
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

// crashRound lets the writers work until enough operations are acknowledged, and kills the member
// when another d has passed, while they are still working. It returns the number of operations
// acknowledged by then.
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
	<-time.After(d) // so that the crash comes at an arbitrary moment
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

// A pair is the value of a key and the lease it is attached to. It is zero if the key does not
// exist.
type pair struct {
	value string
	lease clientv3.LeaseID
}

// A picture is the content of a writer's part of the store. Every writer has its own keys and lease
// IDs.
type picture struct {
	keys   map[string]pair
	leases map[clientv3.LeaseID]bool
}

func (p picture) clone() picture { return picture{maps.Clone(p.keys), maps.Clone(p.leases)} }

func (p picture) equal(o picture) bool {
	return maps.Equal(p.keys, o.keys) && maps.Equal(p.leases, o.leases)
}

// A writer performs operations sequentially. It tracks the state produced by the acknowledged
// operations, and the state if the in-flight operation took effect.
type writer struct {
	id     int
	rng    *rand.Rand
	next   int // numbers values and leases
	acked  picture
	maybe  picture
	failed error // an unexpected answer
}

func newWriter(id int, rng *rand.Rand) *writer {
	empty := picture{map[string]pair{}, map[clientv3.LeaseID]bool{}}
	return &writer{id: id, rng: rng, acked: empty, maybe: empty.clone()}
}

// step performs one operation, and returns false if the member has stopped.
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

// choose picks the next operation and applies its effect to w.maybe.
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

// grant uses the raw RPC. The call in clientv3 lets the server choose the ID, so a lost answer
// would leave the outcome unknown.
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

// checkAfterCrash compares the member's state with the state that every writer expects. The writers
// then continue from the actual state. It returns the store's revision, which must not be lower
// than before, and any differences.
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

// attachedWrong checks one of the writer's leases: the keys attached to the lease must equal the
// keys that refer to it.
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
		break // one lease is enough; map order picks another one in the next round
	}
	return ""
}

// difference lists acknowledged values that are missing, and present values that were not
// acknowledged. The in-flight operation may be among them.
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
