package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	native "leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// relayed is a relay in a process of its own.
type relayed struct {
	t    *testing.T
	at   string
	args []string
	log  string

	*process.Process
}

func newRelay(t *testing.T, c *cluster, name string) *relayed {
	t.Helper()
	r := &relayed{
		t: t, at: process.MustFreeAddr(), log: filepath.Join(t.TempDir(), name+".log"),
	}
	r.args = []string{"relay", "--listen-client-urls", "http://" + r.at, "--endpoints"}
	list := ""
	for _, m := range c.members {
		list += "," + m.url
	}
	r.args = append(r.args, list[1:])
	r.launch()
	return r
}

func (r *relayed) launch() {
	r.t.Helper()
	p, err := process.Start(exec.Command(server.Path(r.t), r.args...), r.log, "--- launched")
	if err != nil {
		r.t.Fatal(err)
	}
	r.Process = p
	r.t.Cleanup(func() {
		_ = p.Signal(syscall.SIGKILL) // it may have ended
		_ = p.Wait()
	})
}

// kill ends the relay as a power cut would.
func (r *relayed) kill() {
	r.t.Helper()
	if err := r.Signal(syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	_ = r.Wait() // killed is the only outcome
}

// serves waits until the relay answers.
func (r *relayed) serves() {
	r.t.Helper()
	c := clientOf(r.t, r.at)
	harness.Eventually(r.t, r.at+" serves", func() error {
		if r.Ended() {
			r.t.Fatalf("the relay ended at its start: %v\n%s", r.Wait(), r.Tail())
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		_, err := c.Get(ctx, "ready")
		return err
	})
}

func clientOf(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// relayTTL is of leases that live through the death of a relay; for half of it the machine may
// stand still besides.
const relayTTL = 10 * time.Second

// relayLoad is what goes on through relays while they are killed.
type relayLoad struct {
	c      *native.Client
	leases []*native.Lease
	watch  *native.Watcher
	cache  *cache.Cache
	stop   context.CancelFunc
	all    sync.WaitGroup
	// puts were acknowledged, and of them seen were told of. So often was the key read, from memory
	// or from the cluster.
	puts, seen, reads atomic.Int64
}

func nativeOf(t *testing.T, endpoints ...string) *native.Client {
	t.Helper()
	c, err := native.New(native.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// loadRelays grants leases with a key each, and puts, watches and reads one key, which a cache has,
// too.
func loadRelays(t *testing.T, n int, endpoints ...string) *relayLoad {
	t.Helper()
	c := nativeOf(t, endpoints...)
	l := &relayLoad{c: c}
	for i := range n {
		held, err := c.Grant(soon(t), native.Grant{
			TTL: relayTTL, Keys: []store.KV{{Key: fmt.Sprint("held/", i)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		l.leases = append(l.leases, held)
	}
	w, err := c.Watch(soon(t), store.Watch{Key: "counter"})
	if err != nil {
		t.Fatal(err)
	}
	l.cache, err = cache.Open(soon(t), nativeOf(t, endpoints...),
		[]store.KeyRange{store.Key("counter")}, cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.stop, l.watch = cancel, w
	put := func(n int) bool { // each once, or the watch would tell
		_, err := c.Put(t.Context(), store.Put{Key: "counter", Value: fmt.Append(nil, n)})
		if err != nil {
			t.Errorf("put %d: %v", n, err)
			return false
		}
		l.puts.Add(1)
		return true
	}
	put(0)
	l.all.Go(func() {
		for n := 1; ctx.Err() == nil && put(n); n++ {
		}
	})
	cached := func(ctx context.Context, key string) (store.KV, error) {
		kv, _, err := l.cache.Get(ctx, key)
		return kv, err
	}
	l.all.Go(func() { // by turns, so that memory is not read all the time
		for ctx.Err() == nil && l.read(t, "the cluster", c.Get) && l.read(t, "the cache", cached) {
		}
	})
	go func() {
		for u, err := range w.Updates(t.Context()) {
			if err != nil {
				return // it is closed
			}
			for _, e := range u.Events {
				if n := l.seen.Load(); string(e.KV.Value) != fmt.Sprint(n) {
					t.Errorf("event %d is of put %s", n, e.KV.Value)
				}
				l.seen.Add(1)
			}
		}
	}()
	return l
}

// read reads the key that is put: never what is older than an acknowledged put.
func (l *relayLoad) read(
	t *testing.T, name string, get func(context.Context, string) (store.KV, error),
) bool {
	acked := l.puts.Load()
	kv, err := get(t.Context(), "counter")
	if err != nil {
		t.Errorf("read %s: %v", name, err)
		return false
	}
	if n, err := strconv.ParseInt(string(kv.Value), 10, 64); err != nil || n < acked-1 {
		t.Errorf("%s had %q (%v) after put %d was acknowledged", name, kv.Value, err, acked-1)
		return false
	}
	l.reads.Add(1)
	return true
}

// TestRelayKilled kills relays in turns under load (-rounds). Goal: no lease is lost, no write is
// lost or takes effect twice, no event is missed or told twice, and no read is stale (C1); programs
// of etcd go on; and no lease is valid that the cluster has ended (L1), be it of clients that go on
// at the other relay or of one that has no other.
func TestRelayKilled(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 1)
	relays := []*relayed{newRelay(t, c, "r1"), newRelay(t, c, "r2")}
	for _, r := range relays {
		r.serves()
	}
	load := loadRelays(t, 50, relays[0].at, relays[1].at)
	other := clientOf(t, relays[0].at, relays[1].at)
	g, err := other.Grant(soon(t), int64(relayTTL/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	alive, err := other.KeepAlive(t.Context(), g.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := range *roundsFlag {
		r := relays[i%2]
		alone := nativeOf(t, r.at)
		held := grantAlone(t, alone, fmt.Sprintf("alone/%d", i))
		r.kill()
		neverLate(t, c, "alone/", []*native.Lease{held})
		anyValid(t, c, "held/", load.leases)
		_ = alone.Close() // nobody is there to be told
		r.launch()
		r.serves()
		if _, ok := <-alive; !ok {
			t.Fatal("a lease of etcd's client is lost")
		}
	}
	load.stop()
	load.all.Wait()
	harness.Eventually(t, "all events", func() error {
		if puts, seen := load.puts.Load(), load.seen.Load(); seen < puts {
			return fmt.Errorf("%d of %d", seen, puts)
		}
		return nil
	})
	load.watch.Close()
	t.Logf("%d kills, %d puts, %d reads, %+v", *roundsFlag, load.puts.Load(), load.reads.Load(),
		load.cache.Stats())
	for i, l := range load.leases {
		if l.Err() != nil || !l.Valid() {
			t.Errorf("lease %d is lost: %v", i, l.Err())
		}
	}
	for _, r := range relays {
		_ = r.Signal(syscall.SIGKILL)
	}
	neverLate(t, c, "held/", load.leases)
}

// grantAlone grants a lease that soon ends with a key, again if the answer comes when it has ended.
func grantAlone(t *testing.T, c *native.Client, key string) *native.Lease {
	t.Helper()
	for {
		held, err := c.Grant(soon(t), native.Grant{
			TTL: time.Second, Keys: []store.KV{{Key: key}},
		})
		switch {
		case err == nil:
			return held
		case !errors.Is(err, native.ErrExpired):
			t.Fatal(err)
		}
	}
}

// neverLate looks at keys with a prefix until the validity of their leases has ended: they are
// there as long as their holder may believe in them.
func neverLate(t *testing.T, c *cluster, prefix string, list []*native.Lease) {
	t.Helper()
	for anyValid(t, c, prefix, list) && !t.Failed() {
	}
}

// anyValid looks once, and reports whether one is valid.
func anyValid(t *testing.T, c *cluster, prefix string, list []*native.Lease) (valid bool) {
	t.Helper()
	r, err := c.members[0].admin.Get(soon(t), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	there := make(map[int64]bool)
	for _, kv := range r.Kvs {
		there[kv.Lease] = true
	}
	for _, l := range list {
		if !l.Valid() {
			continue
		}
		valid = true
		if !there[int64(l.ID())] {
			t.Errorf("lease %x is valid, and its key is gone", l.ID())
		}
	}
	return valid
}
