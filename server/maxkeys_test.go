package server

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/test/virtual"
)

// Goal: a lease has no more keys than its member allows, by etcd's API too, however they are
// attached; what it has can be written again, and one that is deleted makes room. Method: a bound
// of three.
func TestMostKeysOfALease(t *testing.T) { virtual.Test(t, testMostKeysOfALease) }

func testMostKeysOfALease(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Lease.MaxKeys = 3
	r := run(t, c)
	l, err := r.client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	on := clientv3.WithLease(l.ID)
	put := func(key string) error {
		_, err := r.client.Put(t.Context(), key, "v", on)
		return err
	}
	for i := range 3 {
		if err := put(fmt.Sprint("k", i)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "3 keys") ||
			!strings.Contains(err.Error(), "--lease-max-keys") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a put", put("more"))
	_, err = r.client.Txn(t.Context()).Then(
		clientv3.OpPut("free", "v"), clientv3.OpPut("more", "v", on)).Commit()
	refused("a transaction", err)
	s, err := concurrency.NewSession(r.client, concurrency.WithLease(l.ID))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Orphan()
	refused("a lock", concurrency.NewMutex(s, "lock").Lock(t.Context()))
	if err := put("k0"); err != nil {
		t.Errorf("a key that it has: %v", err)
	}
	if _, err := r.client.Delete(t.Context(), "k0"); err != nil {
		t.Fatal(err)
	}
	if err := put("more"); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
	if r.get(t, "free") != "none" {
		t.Error("a transaction that was refused has written")
	}
}
