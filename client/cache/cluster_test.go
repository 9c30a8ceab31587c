package cache_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
)

// TestMain fails if a test leaks a goroutine.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}

// cluster is a list of members in the test process.
type cluster []*inprocess.Member

func newCluster(t testing.TB, n int) cluster {
	t.Helper()
	return inprocess.Run(t, n)
}

func (c cluster) endpoints() []string { return inprocess.Endpoints(c) }

// connect returns a client of the given endpoints.
func connect(t testing.TB, endpoints ...string) *client.Client {
	t.Helper()
	return inprocess.Connect(t, client.Config{}, endpoints...)
}

// etcd returns an etcd client. The etcd API has no notion of caches.
func (c cluster) etcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return inprocess.Etcd(t, c.endpoints()...)
}

// open opens a cache for all keys with a prefix.
func open(t testing.TB, c *client.Client, prefix string, o cache.Options) *cache.Cache {
	t.Helper()
	if o.TTL == 0 {
		o.TTL = 20 * time.Second
	}
	out, err := cache.Open(timeout(t), c, []store.KeyRange{store.Prefix(prefix)}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = out.Close(ctx) // the cluster may be gone
	})
	return out
}

// timeout returns a context that limits how long a test can take.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// must returns a function that passes its value through, or fails the test if there is an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// eventually polls ok until it returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := timeout(t)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("timed out waiting: %s", what)
		}
	}
}

// keeps reads a key repeatedly until the cache keeps it. The cache must be empty. A response is not
// kept during an invalidation, or if its term differs from the term in which the cache was opened.
func keeps(t testing.TB, c *cache.Cache, key string) {
	t.Helper()
	eventually(t, "the cache keeps "+key, func() bool {
		value(t, c, key)
		return c.Stats().Entries > 0
	})
}

// value returns the value of a key, or "-" if the key does not exist.
func value(t testing.TB, r cache.Reader, key string) string {
	t.Helper()
	kv, ok, err := cache.Found(r.Get(timeout(t), key))
	switch {
	case err != nil:
		t.Fatalf("get %q: %v", key, err)
	case !ok:
		return "-"
	}
	return string(kv.Value)
}

// values returns all keys with a prefix and their values.
func values(t testing.TB, r cache.Reader, prefix string) (out string) {
	t.Helper()
	p := store.Prefix(prefix)
	res, err := r.Range(timeout(t), p)
	if err != nil {
		t.Fatalf("range %q: %v", prefix, err)
	}
	for _, kv := range res.KVs {
		out += kv.Key[len(prefix):] + string(kv.Value) + " "
	}
	return out
}

func put(t testing.TB, c *client.Client, key, value string) {
	t.Helper()
	must[store.PutResult](t)(c.Put(timeout(t), store.Put{Key: key, Value: []byte(value)}))
}
