package coord_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
)

// rig is a cluster in this process, and clients whose connections a test can cut.
type rig struct {
	t       testing.TB
	members cluster

	mu    sync.Mutex // guards what follows
	lines map[*client.Client][]*inprocess.Line
}

// newRig runs n members until the test ends.
func newRig(t testing.TB, n int) *rig {
	t.Helper()
	return &rig{
		t: t, members: newCluster(t, n), lines: make(map[*client.Client][]*inprocess.Line),
	}
}

// dial returns a client of all members, through lines of its own.
func (r *rig) dial(c client.Config) *client.Client {
	r.t.Helper()
	var lines []*inprocess.Line
	for _, m := range r.members {
		lines = append(lines, m.Line())
	}
	out := inprocess.Connect(r.t, c, inprocess.Endpoints(lines)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[out] = lines
	return out
}

// cut cuts a client off.
func (r *rig) cut(c *client.Client) { r.set(c, true) }

// mend ends a cut.
func (r *rig) mend(c *client.Client) { r.set(c, false) }

func (r *rig) set(c *client.Client, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines[c] {
		l.SetCut(cut)
	}
}

// lose loses an answer to a client, one of the next few, and breaks the connection with it.
func (r *rig) lose(c *client.Client) {
	n := 1 + rand.IntN(4)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines[c] {
		l.Lose(n)
	}
}

// soon returns a context that bounds a test.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func ok[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// blames reports whether an error says which lease is in the way.
func blames(err error, id lease.ID) bool {
	return strings.Contains(err.Error(), strconv.FormatInt(int64(id), 16))
}
