// Package rig supports tests of packages built on the client. It runs a cluster in the test
// process, provides clients whose connections a test can cut, and contains other helpers.
package rig

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
)

// Rig is a cluster in the test process, with clients whose connections a test can cut.
type Rig struct {
	// Members are the members of the cluster.
	Members []*inprocess.Member

	t testing.TB

	mu    sync.Mutex // guards the following fields
	lines map[*client.Client][]*inprocess.Line
}

// New starts n members, which run until the test ends.
func New(t testing.TB, n int) *Rig {
	t.Helper()
	return &Rig{
		t: t, Members: inprocess.Run(t, n), lines: make(map[*client.Client][]*inprocess.Line),
	}
}

// Dial returns a client that connects to all members over its own lines.
func (r *Rig) Dial(c client.Config) *client.Client {
	r.t.Helper()
	var lines []*inprocess.Line
	for _, m := range r.Members {
		lines = append(lines, m.Line())
	}
	out := inprocess.Connect(r.t, c, inprocess.Endpoints(lines)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[out] = lines
	return out
}

// Cut disconnects a client from all members.
func (r *Rig) Cut(c *client.Client) { r.set(c, true) }

// Mend reconnects a client.
func (r *Rig) Mend(c *client.Client) { r.set(c, false) }

func (r *Rig) set(c *client.Client, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines[c] {
		l.SetCut(cut)
	}
}

// Lose drops one of the next few responses to a client and closes the connection.
func (r *Rig) Lose(c *client.Client) {
	n := 1 + rand.IntN(4)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines[c] {
		l.Lose(n)
	}
}

// Soon returns a context that limits how long a test can take.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Must returns a function that takes a value and an error, and returns the value or, if there is an
// error, ends the test.
func Must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Blames reports whether an error names the conflicting lease.
func Blames(err error, id lease.ID) bool {
	return strings.Contains(err.Error(), strconv.FormatInt(int64(id), 16))
}

// Compact compacts all revisions except the latest.
func (r *Rig) Compact() {
	r.t.Helper()
	c := inprocess.Etcd(r.t, inprocess.Endpoints(r.Members)...)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	now, err := c.Get(ctx, "x")
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := c.Compact(ctx, now.Header.Revision); err != nil {
		r.t.Fatal(err)
	}
}

// Answer is the outcome of a call made by Async.
type Answer[T any] struct {
	Value T
	Err   error
}

// Async runs f in the background.
func Async[T any](f func() (T, error)) <-chan Answer[T] {
	c := make(chan Answer[T], 1)
	go func() {
		v, err := f()
		c <- Answer[T]{v, err}
	}()
	return c
}

// Keys waits until n keys have a given prefix, and returns them.
func Keys(t testing.TB, c *client.Client, prefix string, n int) []store.KV {
	t.Helper()
	ctx := Soon(t)
	all := store.Prefix(prefix).Range()
	for {
		r, err := c.Range(ctx, all)
		if err != nil {
			t.Fatalf("waiting for %d keys with %q: %v", n, prefix, err)
		}
		if len(r.KVs) == n {
			return r.KVs
		}
		w, err := c.Watch(ctx, store.Watch{Key: all.Key, End: all.End, From: r.Revision + 1})
		if err == nil {
			_, err = w.Next(ctx)
			w.Close()
		}
		if err != nil {
			t.Fatalf("waiting for %d keys with %q, there are %d: %v", n, prefix, len(r.KVs), err)
		}
	}
}
