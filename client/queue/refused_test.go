package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// grants calls f with the TTL, in milliseconds, of each lease granted in a transaction.
func grants(f func(ms int64)) func(*pb.Request) bool {
	return func(r *pb.Request) bool {
		for _, o := range r.GetTxn().GetSuccess() {
			if g := o.GetGrant(); g != nil {
				f(g.TtlMs)
			}
		}
		return false
	}
}

// TestPushUnsure checks that items are pushed once, or that the error says that they were not.
// Responses are lost and requests are refused.
func TestPushUnsure(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, done := range map[string]bool{"not/done": false, "done": true} {
			b := &rig.Between{}
			n := 0
			b.Instead = func(r *pb.Request) *pb.Response {
				if !puts(r) {
					return nil
				}
				if n++; n == 1 && done {
					put := r.GetTxn().GetSuccess()[0].GetPut()
					if _, err := direct.Put(ctx, store.Put{
						Key: string(put.Key), Value: put.Value,
					}); err != nil {
						t.Error(err)
					}
				}
				return rig.Unsure(func() {})(n)
			}
			c := b.Serve(t, r.Members[0])
			id, err := queue.New(c, name, queue.Config{}).Push(ctx, []byte("x"), 0)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			kv := rig.Must[store.KV](t)(direct.Get(ctx, name+"/item/"+id))
			if string(kv.Value) != "x" || kv.Version != 1 {
				t.Errorf("%s: pushed %q, %d times", name, kv.Value, kv.Version)
			}
		}
		for _, match := range []func(*pb.Request) bool{rig.Reads, puts} {
			q := queue.New(rig.Through(t, r.Members[0], match, rig.Refused), "q", queue.Config{})
			if id, err := q.Push(ctx, nil, 0); err == nil || id != "" {
				t.Errorf("pushed %q, and it was refused", id)
			}
		}
		q := queue.New(direct, "q", queue.Config{})
		if _, err := q.PushAll(ctx, nil, 0); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("nothing was pushed: %v", err)
		}
	})
}

// TestDelays checks that a delay is at least a tenth of a second. The default in Work is one
// second, and it doubles with each attempt.
func TestDelays(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		var ms []int64
		c := rig.Through(t, r.Members[0], grants(func(ttl int64) { ms = append(ms, ttl) }), nil)
		q := queue.New(c, "q", queue.Config{TTL: time.Minute})
		rig.Must[string](t)(q.Push(ctx, nil, 1))
		if len(ms) != 1 || ms[0] != 100 {
			t.Errorf("pushed with a delay of %v ms", ms)
		}
		i := claim(t, q)
		if err := i.Nack(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if last := ms[len(ms)-1]; last != 100 {
			t.Errorf("given back with a delay of %d ms", last)
		}
		short, end := context.WithCancel(ctx)
		_ = q.Work(short, queue.Work{
			Do:     func(context.Context, *queue.Item) error { return errors.New("no") },
			Failed: func(*queue.Item, error) { end() },
		})
		// There have been two attempts.
		if last := ms[len(ms)-1]; last < 2000 || last > 2500 {
			t.Errorf("given back by Work with a delay of %d ms", last)
		}
	})
}

// TestMaxTime checks that the claim of a hung worker ends after MaxTime, even if its lease stays
// alive.
func TestMaxTime(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		q := queue.New(r.Dial(client.Config{}), "q", queue.Config{TTL: time.Hour, MaxTime: 1})
		push(t, q, "x")
		select {
		case <-claim(t, q).Context().Done():
		case <-rig.Soon(t).Done():
			t.Error("it is kept alive")
		}
	})
}

// TestWorkTells checks that Work reports every item that was not done, and immediately returns an
// item if its context has ended.
func TestWorkTells(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Minute}
		fault := errors.New("a fault")
		for name, x := range map[string]struct {
			match func(*pb.Request) bool
			do    func(ctx context.Context, end func(), i *queue.Item) error
			ready int64
		}{
			"ack refused": {deletes, func(context.Context, func(), *queue.Item) error { return nil }, 0},
			"failed after an ack": {rig.Watches, func(ctx context.Context, _ func(), i *queue.Item) error {
				return errors.Join(fault, i.Ack(ctx))
			}, 0},
			"context ended": {rig.Watches, func(_ context.Context, end func(), _ *queue.Item) error {
				end()
				return fault
			}, 1},
		} {
			push(t, queue.New(direct, name, cfg), "x")
			short, end := context.WithCancel(ctx)
			var reported error
			c := rig.Through(t, r.Members[0], x.match, rig.Refused)
			err := queue.New(c, name, cfg).Work(short, queue.Work{
				Do: func(ctx context.Context, i *queue.Item) error { return x.do(ctx, end, i) },
				Failed: func(_ *queue.Item, err error) {
					reported = err
					end()
				},
				Delay: time.Hour,
			})
			if reported == nil || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: reported %v, ended with %v", name, reported, err)
			}
			s := rig.Must[queue.Stats](t)(queue.New(direct, name, cfg).Stats(ctx))
			if s.Ready != x.ready || s.Delayed != 0 {
				t.Errorf("%s: then there are %+v", name, s)
			}
		}
		q := queue.New(direct, "unreported", cfg)
		push(t, q, "x")
		if err := q.Work(ctx, queue.Work{
			Idle: true, Delay: time.Hour,
			Do: func(context.Context, *queue.Item) error { return fault },
		}); err != nil {
			t.Errorf("without a callback: %v", err)
		}
	})
}

// TestOtherKeys checks that only keys with an ID that starts with a digit are items.
func TestOtherKeys(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for _, id := range []string{"!", "-1", "a"} {
			if _, err := c.Put(ctx, store.Put{Key: "q/item/" + id}); err != nil {
				t.Fatal(err)
			}
		}
		q := queue.New(c, "q", queue.Config{TTL: time.Minute})
		if i, err := q.TryClaim(ctx); i != nil || err != nil {
			t.Errorf("claimed %+v, %v", i, err)
		}
		if s := rig.Must[queue.Stats](t)(q.Stats(ctx)); s != (queue.Stats{}) {
			t.Errorf("counted %+v", s)
		}
	})
}
