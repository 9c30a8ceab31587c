package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	native "leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
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

// kill ends the relay as a power cut would, and starts it again.
func (r *relayed) kill() {
	r.t.Helper()
	if err := r.Signal(syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	_ = r.Wait() // killed is the only outcome
	r.launch()
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

// relayLoad is what goes on through relays while they are killed.
type relayLoad struct {
	c      *native.Client
	leases []*native.Lease
	watch  *native.Watcher
	stop   context.CancelFunc
	all    sync.WaitGroup
	// puts were acknowledged, and of them seen were told of.
	puts, seen atomic.Int64
}

// loadRelays grants leases with a key each, and puts and watches one key.
func loadRelays(t *testing.T, n int, endpoints ...string) *relayLoad {
	t.Helper()
	c, err := native.New(native.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l := &relayLoad{c: c}
	for i := range n {
		held, err := c.Grant(soon(t), native.Grant{
			TTL: keeperTTL, Keys: []store.KV{{Key: fmt.Sprint("held/", i)}},
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
	ctx, cancel := context.WithCancel(t.Context())
	l.stop, l.watch = cancel, w
	l.all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ { // each once, or the watch would tell
			_, err := c.Put(t.Context(), store.Put{Key: "counter", Value: fmt.Append(nil, n)})
			if err != nil {
				t.Errorf("put %d: %v", n, err)
				return
			}
			l.puts.Add(1)
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

// TestRelayKilled kills relays in turns under load (-rounds). Goal: no lease is lost, no write is
// lost or takes effect twice, no event is missed or told twice; programs of etcd go on; and when
// both relays are gone no lease is valid that the cluster has ended (L1).
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	relays := []*relayed{newRelay(t, c, "r1"), newRelay(t, c, "r2")}
	for _, r := range relays {
		r.serves()
	}
	load := loadRelays(t, 50, relays[0].at, relays[1].at)
	other := clientOf(t, relays[0].at, relays[1].at)
	g, err := other.Grant(soon(t), int64(keeperTTL/time.Second))
	if err != nil {
		t.Fatal(err)
	}
	alive, err := other.KeepAlive(t.Context(), g.ID)
	if err != nil {
		t.Fatal(err)
	}
	for i := range *roundsFlag {
		relays[i%2].kill()
		relays[i%2].serves()
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
	t.Logf("%d kills, %d puts", *roundsFlag, load.puts.Load())
	for i, l := range load.leases {
		if l.Err() != nil || !l.Valid() {
			t.Errorf("lease %d is lost: %v", i, l.Err())
		}
	}
	for _, r := range relays {
		_ = r.Signal(syscall.SIGKILL)
	}
	neverLate(t, c, load.leases)
}

// neverLate looks at keys until the validity of their leases has ended: they are there as long as
// their holder may believe in them.
func neverLate(t *testing.T, c *cluster, list []*native.Lease) {
	t.Helper()
	for valid := true; valid; {
		valid = false
		r, err := c.members[0].admin.Get(soon(t), "held/", clientv3.WithPrefix(),
			clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		there := make(map[int64]bool)
		for _, kv := range r.Kvs {
			there[kv.Lease] = true
		}
		for _, l := range list {
			if l.Valid() {
				valid = true
				if !there[int64(l.ID())] {
					t.Errorf("lease %x is valid, and its key is gone", l.ID())
				}
			}
		}
	}
}
