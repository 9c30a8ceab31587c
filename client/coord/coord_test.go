package coord_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
)

// TestMain says when a test has left a goroutine behind.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}

// cluster is members that run in this process.
type cluster []*inprocess.Member

// newCluster runs n members and waits until each serves.
func newCluster(t testing.TB, n int) cluster {
	t.Helper()
	return inprocess.Run(t, n)
}

// connect returns a client of all members.
func (c cluster) connect(t testing.TB) *client.Client {
	t.Helper()
	return inprocess.Connect(t, client.Config{}, inprocess.Endpoints(c)...)
}

// etcd returns a client of etcd's for all members.
func (c cluster) etcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return inprocess.Etcd(t, inprocess.Endpoints(c)...)
}

// session grants a lease of a minute and returns a session of it.
func session(t testing.TB, c *client.Client) *coord.Session {
	t.Helper()
	l, err := c.Grant(ask(t), client.Grant{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return coord.NewSession(c, l)
}

// ask returns a context that bounds a test.
func ask(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// must returns a function that returns the value, or ends the test for an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// answer is how a call that may wait ended.
type answer[T any] struct {
	value T
	err   error
}

// async makes a call in the background.
func async[T any](f func() (T, error)) <-chan answer[T] {
	c := make(chan answer[T], 1)
	go func() {
		v, err := f()
		c <- answer[T]{v, err}
	}()
	return c
}

// keys waits until there are n keys with a prefix, and returns them.
func keys(t testing.TB, c *client.Client, prefix string, n int) []client.KV {
	t.Helper()
	ctx := ask(t)
	all := client.Range{Key: prefix, End: client.PrefixEnd(prefix)}
	for {
		r, err := c.Range(ctx, all)
		if err != nil {
			t.Fatalf("waiting for %d keys with %q: %v", n, prefix, err)
		}
		if len(r.KVs) == n {
			return r.KVs
		}
		w, err := c.Watch(ctx, client.Watch{Key: all.Key, End: all.End, From: r.Revision + 1})
		if err == nil {
			_, err = w.Next(ctx)
			w.Close()
		}
		if err != nil {
			t.Fatalf("waiting for %d keys with %q, there are %d: %v", n, prefix, len(r.KVs), err)
		}
	}
}
