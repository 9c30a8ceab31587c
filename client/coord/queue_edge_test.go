package coord_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
)

// Goal: an item that Work can neither acknowledge nor give back is not this worker's for as long
// as it lives. Method: the dead letter is larger than the worker's client may send; and Do panics.
func TestWorkLetsGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	ctx := soon(t)
	c, small := r.dial(client.Config{}), r.dial(client.Config{MaxRequestBytes: 1000})
	cfg := coord.QueueConfig{TTL: 3 * time.Second, MaxTries: 1}
	q := coord.NewQueue(c, "q", cfg)
	push(t, q, string(bytes.Repeat([]byte("x"), 2000)))
	var why error
	over, end := context.WithCancel(ctx)
	_ = coord.NewQueue(small, "q", cfg).Work(over, coord.Work{
		Do:     func(context.Context, *coord.Item) error { return errors.New("no") },
		Failed: func(_ *coord.Item, err error) { why = err; end() },
	})
	if !errors.Is(why, client.ErrInvalid) {
		t.Errorf("given back: %v", why)
	}
	keys(t, c, "q/claim/", 0)

	cfg.MaxTries = 5
	q = coord.NewQueue(c, "panics", cfg)
	push(t, q, "")
	func() {
		defer func() { _ = recover() }()
		_ = q.Work(ctx, coord.Work{Do: func(context.Context, *coord.Item) error { panic("no") }})
	}()
	keys(t, c, "panics/claim/", 0)
}

// Goal: what could be pushed can be buried, by who gives it back and by who finds it, by a client
// of the same limit. Method: items of every size around the largest that can be pushed.
func TestLargestItem(t *testing.T) {
	t.Parallel()
	const most = 4000
	r := newRig(t, 1)
	c, ctx := r.dial(client.Config{MaxRequestBytes: most}), soon(t)
	cfg := coord.QueueConfig{MaxTries: 1}
	given, found := coord.NewQueue(c, "given/back", cfg), coord.NewQueue(c, "found", cfg)
	var pushed, refused int
	for size := most - 1000; size <= most; size += 20 {
		payload := bytes.Repeat([]byte("x"), size)
		for _, q := range []*coord.Queue{given, found} {
			_, err := q.Push(ctx, payload, 0)
			if errors.Is(err, client.ErrInvalid) {
				refused++
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			pushed++
			i := claim(t, q)
			if q == given {
				err = i.Nack(ctx, 0)
			} else if err = c.Revoke(ctx, i.Lease().Ref()); err == nil {
				i, err = q.TryClaim(ctx)
			}
			if err != nil || q == found && i != nil {
				t.Fatalf("%d bytes: claimed again %t, %v", size, i != nil, err)
			}
		}
	}
	for _, q := range []*coord.Queue{given, found} {
		pushed -= len(ok[[]coord.ItemInfo](t)(q.Dead(ctx, "", 1000)))
	}
	if pushed != 0 || refused == 0 {
		t.Errorf("%d more pushed than buried, %d were too large", pushed, refused)
	}
}

// Goal: as many items as a call may have can be pushed, delayed or not, however large they are.
func TestLargestBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c, ctx := r.dial(client.Config{}), soon(t)
	q := coord.NewQueue(c, "q", coord.QueueConfig{})
	batch := slices.Repeat([][]byte{bytes.Repeat([]byte("x"), 20_000)}, coord.MaxBatch)
	for _, delay := range []time.Duration{0, time.Minute} {
		if _, err := q.PushAll(ctx, batch, delay); err != nil {
			t.Error(err)
		}
	}
	keys(t, c, "q/item/", 2*coord.MaxBatch)
}

// Goal: a queue whose name is that of another with more behind it is another.
func TestQueueNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c, ctx := r.dial(client.Config{}), soon(t)
	outer := coord.NewQueue(c, "q", coord.QueueConfig{MaxTries: 1})
	for _, name := range []string{"q/item", "q/claim", "q/dead", "q/try"} {
		inner := coord.NewQueue(c, name, coord.QueueConfig{MaxTries: 1})
		push(t, inner, "dead", "claimed", "ready")
		if err := claim(t, inner).Nack(ctx, 0); err != nil {
			t.Fatal(err)
		}
		claim(t, inner)
	}
	if i, err := outer.TryClaim(ctx); i != nil || err != nil {
		t.Errorf("claimed another's: %+v, %v", i, err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	for range 5 {
		push(t, coord.NewQueue(c, "q/item", coord.QueueConfig{}), "more")
	}
	if i, err := outer.Claim(short); i != nil || err == nil {
		t.Errorf("waited for another's: %+v, %v", i, err)
	}
	if s, err := outer.Stats(ctx); err != nil || s != (coord.QueueStats{}) {
		t.Errorf("counted others: %+v, %v", s, err)
	}
	if l, err := outer.List(ctx, "", 100); err != nil || len(l) > 0 {
		t.Errorf("listed others: %+v, %v", l, err)
	}
	push(t, coord.NewQueue(c, "q/item/0", coord.QueueConfig{}), "even so")
	if i, err := outer.TryClaim(ctx); i != nil || err != nil {
		t.Errorf("claimed another's: %+v, %v", i, err)
	}
	if l, err := outer.Dead(ctx, "", 100); err != nil || len(l) > 0 {
		t.Errorf("others' dead: %+v, %v", l, err)
	}
}

// Goal: a delay that is meant to be for ever is, and does not end the worker by a panic.
func TestWorkLongDelay(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	q := coord.NewQueue(r.dial(client.Config{}), "q", coord.QueueConfig{TTL: time.Minute})
	push(t, q, "")
	over, end := context.WithCancel(soon(t))
	_ = q.Work(over, coord.Work{
		Do:     func(context.Context, *coord.Item) error { return errors.New("no") },
		Delay:  math.MaxInt64,
		Failed: func(*coord.Item, error) { end() },
	})
	if s, err := q.Stats(soon(t)); err != nil || s != (coord.QueueStats{Delayed: 1}) {
		t.Errorf("given back: %+v, %v", s, err)
	}
}

// Goal: an item comes back whose worker could not acknowledge it, lets it go, or hangs. Method:
// another claims it.
func TestItemComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	c, ctx := r.dial(client.Config{}), soon(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	const ttl = 300 * time.Millisecond
	for name, tt := range map[string]struct {
		cfg coord.QueueConfig
		end func(*coord.Item)
	}{
		"ack": {coord.QueueConfig{TTL: ttl}, func(i *coord.Item) {
			if err := i.Ack(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("acknowledged: %v", err)
			}
		}},
		"nack": {coord.QueueConfig{TTL: ttl}, func(i *coord.Item) {
			if err := i.Nack(gone, 0); !errors.Is(err, context.Canceled) {
				t.Errorf("given back: %v", err)
			}
		}},
		"close": {coord.QueueConfig{TTL: ttl}, (*coord.Item).Close},
		"hang":  {coord.QueueConfig{TTL: ttl, MaxTime: ttl}, func(*coord.Item) {}},
	} {
		q := coord.NewQueue(c, name, tt.cfg)
		push(t, q, "")
		first := claim(t, q)
		tt.end(first)
		short, done := context.WithTimeout(ctx, 30*time.Second)
		if again, err := q.Claim(short); err != nil || again.ID() != first.ID() {
			t.Errorf("%s: claimed again %v, %v", name, again, err)
		}
		done()
		if first.Context().Err() == nil || !errors.Is(first.Ack(ctx), coord.ErrClaimLost) {
			t.Errorf("%s: the first still has it", name)
		}
	}
	q := coord.NewQueue(c, "later", coord.QueueConfig{TTL: time.Minute})
	push(t, q, "")
	i := claim(t, q)
	if err := i.Ack(gone); err == nil {
		t.Error("acknowledged without a context")
	}
	if err := i.Ack(ctx); err != nil {
		t.Errorf("acknowledged later: %v", err)
	}
}
