package queue_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/rig"
)

// Goal: an item that Work can neither acknowledge nor give back is not this worker's for as long
// as it lives. Method: the dead letter is larger than the worker's client may send; and Do panics.
func TestWorkLetsGo(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1)
	ctx := rig.Soon(t)
	c, small := r.Dial(client.Config{}), r.Dial(client.Config{MaxRequestBytes: 1000})
	cfg := queue.Config{TTL: 3 * time.Second, MaxTries: 1}
	q := queue.New(c, "q", cfg)
	push(t, q, string(bytes.Repeat([]byte("x"), 2000)))
	var why error
	over, end := context.WithCancel(ctx)
	_ = queue.New(small, "q", cfg).Work(over, queue.Work{
		Do:     func(context.Context, *queue.Item) error { return errors.New("no") },
		Failed: func(_ *queue.Item, err error) { why = err; end() },
	})
	if !errors.Is(why, client.ErrInvalid) {
		t.Errorf("given back: %v", why)
	}
	rig.Keys(t, c, "q/claim/", 0)

	cfg.MaxTries = 5
	q = queue.New(c, "panics", cfg)
	push(t, q, "")
	func() {
		defer func() { _ = recover() }()
		_ = q.Work(ctx, queue.Work{Do: func(context.Context, *queue.Item) error { panic("no") }})
	}()
	rig.Keys(t, c, "panics/claim/", 0)
}

// Goal: what could be pushed can be buried, by who gives it back and by who finds it, by a client
// of the same limit. Method: items of every size around the largest that can be pushed.
func TestLargestItem(t *testing.T) {
	t.Parallel()
	const most = 4000
	r := rig.New(t, 1)
	c, ctx := r.Dial(client.Config{MaxRequestBytes: most}), rig.Soon(t)
	cfg := queue.Config{MaxTries: 1}
	given, found := queue.New(c, "given/back", cfg), queue.New(c, "found", cfg)
	var pushed, refused int
	for size := most - 1000; size <= most; size += 20 {
		payload := bytes.Repeat([]byte("x"), size)
		for _, q := range []*queue.Queue{given, found} {
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
	for _, q := range []*queue.Queue{given, found} {
		pushed -= len(rig.Must[[]queue.Info](t)(q.Dead(ctx, "", 1000)))
	}
	if pushed != 0 || refused == 0 {
		t.Errorf("%d more pushed than buried, %d were too large", pushed, refused)
	}
}

// Goal: as many items as a call may have can be pushed, delayed or not, however large they are.
func TestLargestBatch(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1)
	c, ctx := r.Dial(client.Config{}), rig.Soon(t)
	q := queue.New(c, "q", queue.Config{})
	batch := slices.Repeat([][]byte{bytes.Repeat([]byte("x"), 20_000)}, queue.MaxBatch)
	for _, delay := range []time.Duration{0, time.Minute} {
		if _, err := q.PushAll(ctx, batch, delay); err != nil {
			t.Error(err)
		}
	}
	rig.Keys(t, c, "q/item/", 2*queue.MaxBatch)
}

// Goal: a queue whose name is that of another with more behind it is another.
func TestQueueNames(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1)
	c, ctx := r.Dial(client.Config{}), rig.Soon(t)
	outer := queue.New(c, "q", queue.Config{MaxTries: 1})
	for _, name := range []string{"q/item", "q/claim", "q/dead", "q/try"} {
		inner := queue.New(c, name, queue.Config{MaxTries: 1})
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
		push(t, queue.New(c, "q/item", queue.Config{}), "more")
	}
	if i, err := outer.Claim(short); i != nil || err == nil {
		t.Errorf("waited for another's: %+v, %v", i, err)
	}
	if s, err := outer.Stats(ctx); err != nil || s != (queue.Stats{}) {
		t.Errorf("counted others: %+v, %v", s, err)
	}
	if l, err := outer.List(ctx, "", 100); err != nil || len(l) > 0 {
		t.Errorf("listed others: %+v, %v", l, err)
	}
	push(t, queue.New(c, "q/item/0", queue.Config{}), "even so")
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
	r := rig.New(t, 1)
	q := queue.New(r.Dial(client.Config{}), "q", queue.Config{TTL: time.Minute})
	push(t, q, "")
	over, end := context.WithCancel(rig.Soon(t))
	_ = q.Work(over, queue.Work{
		Do:     func(context.Context, *queue.Item) error { return errors.New("no") },
		Delay:  math.MaxInt64,
		Failed: func(*queue.Item, error) { end() },
	})
	if s, err := q.Stats(rig.Soon(t)); err != nil || s != (queue.Stats{Delayed: 1}) {
		t.Errorf("given back: %+v, %v", s, err)
	}
}

// Goal: an item comes back whose worker could not acknowledge it, lets it go, or hangs. Method:
// another claims it.
func TestItemComesBack(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1)
	c, ctx := r.Dial(client.Config{}), rig.Soon(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	const ttl = 300 * time.Millisecond
	for name, tt := range map[string]struct {
		cfg queue.Config
		end func(*queue.Item)
	}{
		"ack": {queue.Config{TTL: ttl}, func(i *queue.Item) {
			if err := i.Ack(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("acknowledged: %v", err)
			}
		}},
		"nack": {queue.Config{TTL: ttl}, func(i *queue.Item) {
			if err := i.Nack(gone, 0); !errors.Is(err, context.Canceled) {
				t.Errorf("given back: %v", err)
			}
		}},
		"close": {queue.Config{TTL: ttl}, (*queue.Item).Close},
		"hang":  {queue.Config{TTL: ttl, MaxTime: ttl}, func(*queue.Item) {}},
	} {
		q := queue.New(c, name, tt.cfg)
		push(t, q, "")
		first := claim(t, q)
		tt.end(first)
		short, done := context.WithTimeout(ctx, 30*time.Second)
		if again, err := q.Claim(short); err != nil || again.ID() != first.ID() {
			t.Errorf("%s: claimed again %v, %v", name, again, err)
		}
		done()
		if first.Context().Err() == nil || !errors.Is(first.Ack(ctx), queue.ErrLost) {
			t.Errorf("%s: the first still has it", name)
		}
	}
	q := queue.New(c, "later", queue.Config{TTL: time.Minute})
	push(t, q, "")
	i := claim(t, q)
	if err := i.Ack(gone); err == nil {
		t.Error("acknowledged without a context")
	}
	if err := i.Ack(ctx); err != nil {
		t.Errorf("acknowledged later: %v", err)
	}
}
