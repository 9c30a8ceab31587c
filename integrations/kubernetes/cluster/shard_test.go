package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestShard runs three members that store coordination.k8s.io/leases for an API server. Another
// store keeps everything else.
func TestShard(t *testing.T) {
	tier.Campaign(t)
	ca := certs.New(t)
	other, shard := startStore(t, ca, "other", 1), startStore(t, ca, "shard", 3)
	api := startAPIServer(t, ca, other, "--etcd-servers-overrides",
		"coordination.k8s.io/leases#"+shard.urls(";"))
	exercise(t, api, shard, *nodesFlag)
	if got := shard.count("/registry/leases/" + namespace + "/"); got != int64(*nodesFlag) {
		t.Errorf("the shard has %d node leases; want %d", got, *nodesFlag)
	}
	if got := other.count("/registry/leases/"); got != 0 {
		t.Errorf("the other store has %d leases; want 0", got)
	}
}

// TestOnlyStore runs three members that store everything for an API server.
func TestOnlyStore(t *testing.T) {
	tier.Campaign(t)
	ca := certs.New(t)
	s := startStore(t, ca, "store", 3)
	api := startAPIServer(t, ca, s, "--event-ttl", "10s")
	const n = 500
	exercise(t, api, s, n)
	pages(t, api, n)
	expires(t, api)
}

// pages reads the node leases in pages and checks that all pages have the same resource version,
// even though leases are being written.
func pages(t *testing.T, api *apiserver, n int) {
	t.Helper()
	leases := api.client().CoordinationV1().Leases(namespace)
	var page metav1.ListOptions
	var read int
	var revision string
	for page.Limit = 100; ; {
		l, err := leases.List(t.Context(), page)
		if err != nil {
			t.Fatal(err)
		}
		if revision == "" {
			revision = l.ResourceVersion
		}
		if l.ResourceVersion != revision {
			t.Errorf("a page has resource version %s, the first one %s", l.ResourceVersion, revision)
		}
		if read += len(l.Items); l.Continue == "" {
			break
		}
		page.Continue = l.Continue
		l.Items[0].Labels = map[string]string{"read": "true"}
		if _, err := leases.Update(t.Context(), &l.Items[0], metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if read != n {
		t.Errorf("the pages have %d leases; want %d", read, n)
	}
}

// expires waits until an event expires. The API server keeps events for --event-ttl.
func expires(t *testing.T, api *apiserver) {
	t.Helper()
	events := api.client().CoreV1().Events("default")
	e, err := events.Create(t.Context(), &core.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "test"},
		InvolvedObject: core.ObjectReference{Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the event expires", func() error {
		_, err := events.Get(t.Context(), e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %v", err)
	})
}

// exercise lets n nodes renew their leases every 10 s while members and the API server are killed,
// and the store is restored from a snapshot.
func exercise(t *testing.T, api *apiserver, s *store, n int) {
	t.Helper()
	leases := api.client().CoordinationV1().Leases(namespace)
	ns := newNodes(t, leases, n)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	inf := informer(ctx, t, api.client())
	w := &watcher{t: t, leases: leases, seen: map[int64]bool{}}
	var watching sync.WaitGroup
	watching.Go(func() { w.run(ctx) })
	working, rest := context.WithCancel(ctx)
	defer rest()
	ns.run(working)

	ns.during("warm-up", func() {})
	first := s.revision()
	ns.during("undisturbed", func() { costs(t, ns, s, api, 20*time.Second) })
	ns.during("leader killed", func() { bounce(s, s.leader()) })
	ns.during("leader killed again", func() { bounce(s, s.leader()) })
	ns.during("API server killed", func() {
		api.kill()
		api.launch()
		api.ready()
	})
	harness.Eventually(t, "the API server compacts", func() error {
		_, err := s.admin.Get(ctx, "k", clientv3.WithRev(first))
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("revision %d is still there", first)
		}
		return nil
	})
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	var saved []int32
	ns.during("snapshot", func() {
		saved = ns.numbers()
		err := s.ctl("--endpoints", s.members[0].client, "snapshot", "save", snapshot)
		if err != nil {
			t.Fatal(err)
		}
	})
	ns.during("restore", func() {
		s.killAll()
		ns.rewind(saved)
		s.restore(snapshot)
	})
	ns.during("after the restore", func() {})
	rest()
	ns.wait.Wait()
	converges(t, inf, leases, n)
	ns.check()
	w.check(ns.acked)
	stop()
	watching.Wait()
}

// bounce kills a member and restarts it once another member leads.
func bounce(s *store, m *member) {
	m.kill()
	s.leader()
	s.launch(m)
	s.serves()
}

// costs logs the CPU time per update that the members and the API server use.
func costs(t *testing.T, ns *nodes, s *store, api *apiserver, d time.Duration) {
	t.Helper()
	processes := []*process.Process{api.Process}
	for _, m := range s.members {
		processes = append(processes, m.Process)
	}
	var before []time.Duration
	for _, p := range processes {
		before = append(before, cpu(t, p))
	}
	acks := ns.acks.Load()
	<-time.After(d)
	acks = ns.acks.Load() - acks
	var members time.Duration
	for i, p := range processes {
		before[i] = cpu(t, p) - before[i]
		if i > 0 {
			members += before[i]
		}
	}
	t.Logf("CPU per update, watches and idle work included: all members %v, API server %v (%.0f updates/s)",
		members/time.Duration(acks), before[0]/time.Duration(acks), float64(acks)/d.Seconds())
}

// cpu returns the CPU time used by a process (Linux only).
func cpu(t *testing.T, p *process.Process) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	const user, system, tick = 11, 12, 10 * time.Millisecond // see proc(5)
	var sum time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
