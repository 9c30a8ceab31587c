package cache_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/client/cache"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/test/inprocess"
)

// TestEtcdServices checks that every cache sees the writes of etcd's lock and election services as
// soon as they are acknowledged. Like the rest of the etcd API, these services have no notion of
// caches (C1, T20).
func TestEtcdServices(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		var caches []*cache.Cache
		for _, e := range cl.endpoints() {
			caches = append(caches, open(t, connect(t, e), "s/", cache.Options{}))
		}
		etcd := cl.etcd(t)
		conn, err := grpc.NewClient(cl[1].Endpoint(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(inprocess.Dialer(t)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		locks, elections := v3lockpb.NewLockClient(conn), v3electionpb.NewElectionClient(conn)
		id := int64(must[*clientv3.LeaseGrantResponse](t)(etcd.Grant(timeout(t), 60)).ID)
		seen := func(what, want string) {
			t.Helper()
			for i, c := range caches {
				// the second read is answered from memory unless the leader was still busy
				for range 2 {
					got := strings.ReplaceAll(values(t, c, "s/"), fmt.Sprintf("%x", id), "ID")
					if got != want {
						t.Errorf("%s: cache %d has %q, want %q", what, i, got, want)
					}
				}
			}
		}
		seen("nothing", "")
		held, err := locks.Lock(timeout(t), &v3lockpb.LockRequest{Name: []byte("s/l"), Lease: id})
		if err != nil {
			t.Fatal(err)
		}
		seen("locked", "l/ID ")
		if _, err := locks.Unlock(timeout(t), &v3lockpb.UnlockRequest{Key: held.Key}); err != nil {
			t.Fatal(err)
		}
		seen("unlocked", "")
		won, err := elections.Campaign(timeout(t), &v3electionpb.CampaignRequest{
			Name: []byte("s/e"), Lease: id, Value: []byte("1"),
		})
		if err != nil {
			t.Fatal(err)
		}
		seen("elected", "e/ID1 ")
		if _, err := elections.Proclaim(timeout(t), &v3electionpb.ProclaimRequest{
			Leader: won.Leader, Value: []byte("2"),
		}); err != nil {
			t.Fatal(err)
		}
		seen("proclaimed", "e/ID2 ")
		resign := &v3electionpb.ResignRequest{Leader: won.Leader}
		if _, err := elections.Resign(timeout(t), resign); err != nil {
			t.Fatal(err)
		}
		seen("resigned", "")
	})
}
