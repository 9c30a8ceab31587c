package cluster

import (
	"context"
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

// TestFigures measures a shard of very many leases: the members' memory, how long the API server needs
// to fill its watch cache, and how long it cannot write when the leader is killed. With -server ETCD
// -serve "" the shard is etcd's.
func TestFigures(t *testing.T) {
	tier.Campaign(t)
	if *figuresFlag == 0 {
		t.Skip("run it with -figures 130000")
	}
	ca := certs.New(t)
	other, shard := startStore(t, ca, "other", 1), startStore(t, ca, "shard", 3)
	fill(t, shard, *figuresFlag)
	for _, m := range shard.members {
		t.Logf("%s: %s", m.name, resident(t, m.PID()))
	}
	api := startAPIServer(t, ca, other, "--etcd-servers-overrides",
		"coordination.k8s.io/leases#"+shard.urls(";"), "--etcd-compaction-interval", "5m")
	leases := api.client().CoordinationV1().Leases(namespace)
	for range 3 {
		api.kill()
		began := time.Now()
		api.launch()
		harness.Eventually(t, "the watch cache serves", func() error {
			l, err := leases.List(t.Context(), metav1.ListOptions{Limit: 1, ResourceVersion: "0"})
			if err == nil && len(l.Items) == 0 {
				return fmt.Errorf("no leases")
			}
			return err
		})
		t.Logf("the watch cache has %d leases %v after the API server's start", *figuresFlag, time.Since(began))
		api.ready()
	}
	for range 5 {
		shard.serves()
		gap := failover(t, shard, func(ctx context.Context) error {
			l, err := leases.Get(ctx, "node-000000", metav1.GetOptions{})
			if err == nil {
				l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
				_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
			}
			return err
		})
		t.Logf("the leader was killed: no update for %v", gap)
	}
}

// fill puts leases into a store, as the API server writes them.
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

// resident returns how much memory a process has (Linux).
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

// failover kills the leader while updates follow each other, and returns the longest time between two
// that succeeded. It starts the member again.
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
