package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
	"leasehold.dev/test/inprocess"
)

// wires returns a client whose connections go through lines, one for each member.
func (c cluster) wires(t testing.TB) (*client.Client, []*inprocess.Line) {
	t.Helper()
	var list []*inprocess.Line
	for _, m := range c {
		list = append(list, m.Line())
	}
	return inprocess.Connect(t, client.Config{}, inprocess.Endpoints(list)...), list
}

func setDeaf(list []*inprocess.Line, deaf bool) {
	for _, l := range list {
		l.SetDeaf(deaf)
		if !deaf {
			l.Break()
		}
	}
}

func setCut(list []*inprocess.Line, cut bool) {
	for _, l := range list {
		l.SetCut(cut)
	}
}

// TestLostAnswers: whoever does not learn whether his key was made, or deleted, leaves none
// behind, and can use the name again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	direct := members.connect(t)
	c, list := members.wires(t)
	m := coord.NewMutex(session(t, c), "lost")
	held := must[*coord.Held](t)(m.Lock(ctx)) // the client has asked all it needs for writes
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}

	setDeaf(list, true)
	brief, cancel := context.WithCancel(ctx)
	entering := async(func() (*coord.Held, error) { return m.Lock(brief) })
	keys(t, direct, "lost/", 1) // but he does not know
	cancel()
	if a := <-entering; !errors.Is(a.err, context.Canceled) {
		t.Fatalf("the first: %+v", a)
	}
	setDeaf(list, false)
	keys(t, direct, "lost/", 0)

	held = must[*coord.Held](t)(m.Lock(ctx))
	setDeaf(list, true)
	brief, cancel = context.WithCancel(ctx)
	leaving := async(func() (struct{}, error) { return struct{}{}, held.Unlock(brief) })
	keys(t, direct, "lost/", 0)
	cancel()
	if a := <-leaving; !errors.Is(a.err, context.Canceled) || held.Err() == nil {
		t.Fatalf("the unlock: %v, %v", a.err, held.Err())
	}
	setDeaf(list, false)
	held = must[*coord.Held](t)(m.Lock(ctx))
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	keys(t, direct, "lost/", 0)
}

// TestUnlockUnreachable: an unlock that does not reach the cluster in time is done later.
func TestUnlockUnreachable(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	direct := members.connect(t)
	c, list := members.wires(t)
	held := must[*coord.Held](t)(coord.NewMutex(session(t, c), "far").Lock(ctx))
	setCut(list, true)
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := held.Unlock(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	keys(t, direct, "far/", 1)
	setCut(list, false)
	keys(t, direct, "far/", 0)
}

// TestCompacted: who waits, and who holds, learns what happened while he was away, although the
// cluster has forgotten it.
func TestCompacted(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	direct, e := members.connect(t), members.etcd(t)
	c, list := members.wires(t)
	other := must[*coord.Held](t)(coord.NewMutex(session(t, direct), "gone").Lock(ctx))
	m := coord.NewMutex(session(t, c), "gone")
	waiting := async(func() (*coord.Held, error) { return m.Lock(ctx) })
	keys(t, direct, "gone/", 2)
	forget := func(change func()) {
		t.Helper()
		setCut(list, true)
		change()
		r := must[client.PutResult](t)(direct.Put(ctx, client.Put{Key: "later"}))
		if _, err := e.Compact(ctx, r.Revision); err != nil {
			t.Fatal(err)
		}
		setCut(list, false)
	}
	forget(func() {
		if err := other.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	})
	a := <-waiting
	if a.err != nil {
		t.Fatal(a.err)
	}
	forget(func() {}) // the holder's key is still there
	if !holds(t, direct, a.value) || a.value.Err() != nil {
		t.Fatalf("it is over: %v", a.value.Err())
	}
	forget(func() {
		must[client.DeleteResult](t)(direct.Delete(ctx, client.Delete{Key: a.value.Key()}))
	})
	<-a.value.Context().Done()
	if !errors.Is(a.value.Err(), coord.ErrLost) {
		t.Errorf("the holder: %v", a.value.Err())
	}
}
