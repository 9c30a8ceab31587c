package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestFigures measures a shard with a very large number of leases: the members' memory, the time
// the API server needs to fill its watch cache, how long writes are unavailable after the leader is
// killed, and the cost of updates by as many nodes as -nodes sets. With -etcd it alternates with an
// etcd shard.
func TestFigures(t *testing.T) {
	tier.Campaign(t)
	if *figuresFlag == 0 {
		t.Skip("run it with -figures 130000")
	}
	ca := certs.New(t)
	other := startStore(t, ca, "other", 1)
	shards := []*store{startStore(t, ca, "leasehold", 3)}
	if *etcdFlag != "" {
		shards = append(shards, startStore(t, ca, "etcd", 3, *etcdFlag))
	}
	for _, shard := range shards {
		fill(t, shard, *figuresFlag)
		for _, m := range shard.members {
			t.Logf("%s: %s", m.name, resident(t, m.PID()))
		}
	}
	for round := range 3 {
		for _, shard := range shards {
			api := figures(t, ca, other, shard)
			if round == 0 {
				ns := newNodes(t, api.client().CoordinationV1().Leases(namespace), *nodesFlag)
				ctx, stop := context.WithCancel(t.Context())
				ns.run(ctx)
				ns.during(shard.name+": updates", func() {
					<-time.After(interval)
					costs(t, ns, shard, api, 2*interval)
				})
				stop()
				ns.wait.Wait()
			}
			api.kill()
		}
	}
}

func figures(t *testing.T, ca *certs.Authority, other, shard *store) *apiserver {
	t.Helper()
	began := time.Now()
	api := startAPIServer(t, ca, other, "--etcd-servers-overrides", "coordination.k8s.io/leases#"+shard.urls(";"),
		"--etcd-compaction-interval", "5m", "--vmodule", "reflector=3")
	ready := time.Since(began)
	t.Logf("%s: the watch cache of leases was filled in %v; the API server was ready after %v",
		shard.name, api.filled("leases"), ready)
	leases := api.client().CoordinationV1().Leases(namespace)
	for range 2 {
		shard.serves()
		gap := failover(t, shard, func(ctx context.Context) error {
			l, err := leases.Get(ctx, "node-000000", metav1.GetOptions{})
			if err == nil {
				l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
				_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
			}
			return err
		})
		t.Logf("%s: the leader was killed: no update for %v", shard.name, gap)
	}
	return api
}

// filled returns how long the API server took to fill a watch cache, which it logs with --vmodule
// reflector=3.
func (a *apiserver) filled(resource string) (took time.Duration) {
	a.t.Helper()
	harness.Eventually(a.t, "the watch cache is filled", func() error {
		text, err := os.ReadFile(a.log)
		if err != nil {
			return err
		}
		var times [2]time.Time
		for line := range strings.Lines(string(text)) {
			for i, what := range []string{"Listing and watching", "Caches populated"} {
				fields := strings.Fields(line)
				if strings.Contains(line, what) && strings.Contains(line, `"storage/cacher.go:/`+resource+`"`) {
					if times[i], err = time.Parse("15:04:05.000000", fields[1]); err != nil {
						return err
					}
				}
			}
		}
		if took = times[1].Sub(times[0]); times[1].IsZero() || took < 0 {
			return errors.New("it has not said so")
		}
		return nil
	})
	return took
}

// fill writes leases to a store in the same form as the API server.
func fill(t *testing.T, s *store, n int) {
	t.Helper()
	encoder := scheme.Codecs.EncoderForVersion(
		protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), coordination.SchemeGroupVersion)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !t.Failed(); i = next.Add(1) - 1 {
				name := fmt.Sprintf("node-%06d", i)
				var value strings.Builder
				err := encoder.Encode(&coordination.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, CreationTimestamp: metav1.Now()},
					Spec: coordination.LeaseSpec{
						HolderIdentity: &name, LeaseDurationSeconds: ptr.To(int32(40)),
						RenewTime: &metav1.MicroTime{Time: time.Now()},
					},
				}, &value)
				if err == nil {
					_, err = s.admin.Put(t.Context(), "/registry/leases/"+namespace+"/"+name, value.String())
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// resident returns the resident memory of a process (Linux only).
func resident(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmRSS") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return "unknown"
}

// failover kills the leader during a series of updates and returns the longest time between two
// successful updates. It restarts the member.
func failover(t *testing.T, s *store, update func(context.Context) error) (gap time.Duration) {
	t.Helper()
	var kill sync.WaitGroup
	leader, last := s.leader(), time.Now()
	for i, after := 0, 0; after < 20; i++ {
		if i == 20 {
			kill.Go(leader.kill)
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := update(ctx)
		cancel()
		if err != nil {
			continue
		}
		gap, last = max(gap, time.Since(last)), time.Now()
		if i > 20 {
			after++
		}
	}
	kill.Wait()
	s.launch(leader)
	return gap
}
