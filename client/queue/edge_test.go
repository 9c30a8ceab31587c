package queue_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestWorkReleasesItem checks that an item does not remain claimed for the lifetime of the worker
// if Work can neither acknowledge nor return it. This happens if its dead letter is too large to
// send, or if Do panics.
func TestWorkReleasesItem(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
		if err := q.Work(ctx, queue.Work{Idle: true}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("work without Do: %v", err)
		}

		cfg.MaxTries = 5
		q = queue.New(c, "panics", cfg)
		push(t, q, "")
		func() {
			defer func() { _ = recover() }()
			_ = q.Work(ctx, queue.Work{Do: func(context.Context, *queue.Item) error { panic("no") }})
		}()
		rig.Keys(t, c, "panics/claim/", 0)
	})
}

// TestLargestItem checks that any item that can be pushed can also be moved to the dead letters by
// a client with the same size limit. The item moves when it is returned, or when a worker finds
// that its claim has ended.
func TestLargestItem(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
	})
}

// TestLargestBatch checks that a full batch can be pushed, with or without a delay and however
// large its items are.
func TestLargestBatch(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
	})
}

// TestQueueNames checks that queues are independent even if the name of one is a prefix of
// another's.
func TestQueueNames(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
		for _, name := range []string{"q/item/0", "q/claim/7/x", "a/q/dead/0a", "q/item/x/try/9"} {
			_, err := queue.New(c, name, queue.Config{}).Push(ctx, nil, 0)
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("a queue %q, whose keys are another's: %v", name, err)
			}
		}
		push(t, queue.New(c, "item/0", queue.Config{}), "of no other")
		if i, err := outer.TryClaim(ctx); i != nil || err != nil {
			t.Errorf("claimed another's: %+v, %v", i, err)
		}
		if l, err := outer.Dead(ctx, "", 100); err != nil || len(l) > 0 {
			t.Errorf("others' dead: %+v, %v", l, err)
		}
	})
}

// TestWorkLongDelay checks that an infinite delay never ends and does not make the worker panic.
func TestWorkLongDelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
	})
}

// TestItemComesBack checks that an item becomes available again if its worker cannot acknowledge
// it, releases it, or hangs.
func TestItemComesBack(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
			if first.Context().Err() == nil || !errors.Is(first.Ack(ctx), client.ErrLost) {
				t.Errorf("%s: the first still has it", name)
			}
		}
		q := queue.New(c, "later", queue.Config{TTL: time.Minute})
		push(t, q, "")
		i := claim(t, q)
		if err := i.Ack(gone); err == nil {
			t.Error("acknowledged without a context")
		}
		if i.Context().Err() == nil {
			t.Error("the claim of an item that could not be acknowledged is kept alive")
		}
		if err := i.Ack(ctx); err != nil {
			t.Errorf("acknowledged later: %v", err)
		}
	})
}

// TestCallsFail checks that every call with a context that has ended returns an error that contains
// the name of the queue.
func TestCallsFail(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		q := queue.New(c, "some", queue.Config{})
		push(t, q, "1", "2")
		item := claim(t, q)
		ctx, end := context.WithCancel(rig.Soon(t))
		end()
		for name, call := range map[string]func() error{
			"push": func() error {
				_, err := q.Push(ctx, nil, 0)
				return err
			},
			"claim": func() error {
				_, err := q.Claim(ctx)
				return err
			},
			"try": func() error {
				_, err := q.TryClaim(ctx)
				return err
			},
			"count": func() error {
				_, err := q.Stats(ctx)
				return err
			},
			"list": func() error {
				_, err := q.List(ctx, "", 1)
				return err
			},
			"dead": func() error {
				_, err := q.Dead(ctx, "", 1)
				return err
			},
			"requeue": func() error {
				_, err := q.Requeue(ctx, "a")
				return err
			},
			"discard": func() error {
				_, err := q.Discard(ctx, "a")
				return err
			},
			"ack":  func() error { return item.Ack(ctx) },
			"nack": func() error { return item.Nack(ctx, time.Second) },
			"work": func() error {
				return q.Work(ctx, queue.Work{Do: func(context.Context, *queue.Item) error { return nil }})
			},
		} {
			if err := call(); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestPages checks that lists contain as many items as requested, but at least one, and only items
// of this queue. A list can continue after an ID.
func TestPages(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for _, key := range []string{"q/item/0/x", "q/dead/0/x"} {
			if _, err := c.Put(ctx, store.Put{Key: key, Value: []byte("another's")}); err != nil {
				t.Fatal(err)
			}
		}
		q := queue.New(c, "q", queue.Config{MaxTries: 1})
		push(t, q, "1", "2", "3", "4", "5", "6")
		for l, err := range c.List(ctx, leases.Filter{}) {
			t.Errorf("items that nobody claims and that wait for nothing made a lease: %+v, %v", l, err)
		}
		for range 3 {
			if err := claim(t, q).Nack(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		for name, page := range map[string]func(context.Context, string, int) ([]queue.Info, error){
			"4 5 6": q.List, "1 2 3": q.Dead,
		} {
			all := rig.Must[[]queue.Info](t)(page(ctx, "", 100))
			if got := payloads(all); got != name {
				t.Fatalf("all are %q, want %q", got, name)
			}
			for _, limit := range []int{-1, 0, 1} {
				list := rig.Must[[]queue.Info](t)(page(ctx, all[0].ID, limit))
				if got := payloads(list); got != name[2:3] {
					t.Errorf("behind the first, at most %d: %q", limit, got)
				}
			}
			if list := rig.Must[[]queue.Info](t)(page(ctx, all[2].ID, 100)); len(list) > 0 {
				t.Errorf("behind the last: %q", payloads(list))
			}
		}
	})
}

func payloads(list []queue.Info) string {
	var all []string
	for _, i := range list {
		all = append(all, string(i.Payload))
	}
	return strings.Join(all, " ")
}

func TestStateString(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for s, want := range []string{
			"unknown state 0", "ready", "claimed", "delayed", "dead", "unknown state 5",
		} {
			if got := queue.State(s).String(); got != want {
				t.Errorf("%d is %q", s, got)
			}
		}
	})
}
