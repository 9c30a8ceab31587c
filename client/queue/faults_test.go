package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// Requests that tests answer in place of the member.
func claims(r *pb.Request) bool  { return rig.Does(r, (*pb.Op).GetGrant) }
func deletes(r *pb.Request) bool { return rig.Does(r, (*pb.Op).GetDeleteRange) }
func pages(r *pb.Request) bool   { return rig.Does(r, (*pb.Op).GetReadRange) && !claims(r) }

// refusedOnce refuses the first matching request.
func refusedOnce(n int) *pb.Response {
	if n == 1 {
		return rig.Refused(n)
	}
	return nil
}

// TestDeadLetterUnsure checks that a dead letter is removed only once even if the response is lost,
// and that a failure to remove one is an error.
func TestDeadLetterUnsure(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		type answers = func(int) *pb.Response
		for name, x := range map[string]struct {
			answer func(end, take func()) answers
			n      int
			fails  bool
		}{
			"not done": {func(_, _ func()) answers { return rig.Unsure(func() {}) }, 1, false},
			"done":     {func(_, take func()) answers { return rig.Unsure(take) }, 1, false},
			"done late": {func(_, take func()) answers {
				first := rig.Unsure(func() {})
				return func(n int) *pb.Response {
					if n == 3 {
						take()
					}
					return first(n)
				}
			}, 1, false},
			"refused":  {func(_, _ func()) answers { return rig.Refused }, 0, true},
			"given up": {func(end, _ func()) answers { return rig.Unsure(end) }, 0, true},
		} {
			q := queue.New(direct, name, queue.Config{MaxTries: 1, TTL: time.Minute})
			push(t, q, "x")
			if err := claim(t, q).Nack(ctx, 0); err != nil {
				t.Fatal(err)
			}
			id := rig.Must[[]queue.Info](t)(q.Dead(ctx, "", 1))[0].ID
			short, end := context.WithCancel(ctx)
			c := rig.Through(t, r.Members[0], deletes, x.answer(end, func() {
				rig.Must[int](t)(q.Requeue(ctx, id))
			}))
			n, err := queue.New(c, name, queue.Config{}).Requeue(short, id)
			if n != x.n || (err != nil) != x.fails {
				t.Errorf("%s: requeued %d, %v", name, n, err)
			}
			end()
			want := queue.Stats{Ready: int64(x.n), Dead: int64(1 - x.n)}
			if s := rig.Must[queue.Stats](t)(q.Stats(ctx)); s != want {
				t.Errorf("%s: then there are %+v, want %+v", name, s, want)
			}
		}
	})
}

// TestDeadLetterBounds checks that a call removes no more dead letters than its limit, and that no
// item is requeued if there are no new IDs.
func TestDeadLetterBounds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		q := queue.New(r.Dial(client.Config{}), "q", queue.Config{})
		_, err := q.Discard(ctx, make([]string, queue.MaxBatch+1)...)
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("too many at once: %v", err)
		}
		if n, err := q.Discard(ctx, make([]string, queue.MaxBatch)...); n != 0 || err != nil {
			t.Errorf("as many as may be: %d, %v", n, err)
		}
		c := rig.Through(t, r.Members[0], rig.Reads, refusedOnce)
		if _, err := queue.New(c, "q", queue.Config{}).Requeue(ctx, "0a"); err == nil {
			t.Error("requeued without new IDs")
		}
	})
}

// TestStatsReads checks that items are counted at a single revision and without reading them. A
// failed read is an error.
func TestStatsReads(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx, cfg := rig.Soon(t), queue.Config{TTL: time.Minute}
		c := rig.Through(t, r.Members[0], func(r *pb.Request) bool {
			for _, o := range r.GetTxn().GetSuccess() {
				if g := o.GetReadRange(); g != nil && (!g.CountOnly || g.Revision == 0) {
					t.Errorf("it reads %v", g)
				}
			}
			return false
		}, nil)
		q := queue.New(c, "q", cfg)
		push(t, q, "1", "2")
		claim(t, queue.New(r.Dial(client.Config{}), "q", cfg))
		if s := rig.Must[queue.Stats](t)(q.Stats(ctx)); s != (queue.Stats{Ready: 1, Claimed: 1}) {
			t.Errorf("counted %+v", s)
		}
		for _, match := range []func(*pb.Request) bool{rig.Reads, pages} {
			c := rig.Through(t, r.Members[0], match, rig.Refused)
			if s, err := queue.New(c, "q", queue.Config{}).Stats(ctx); err == nil {
				t.Errorf("counted %+v, and could not read", s)
			}
		}
	})
}

// many pushes more items than fit into a page, with the given delay.
func many(t *testing.T, q *queue.Queue, delay time.Duration) {
	t.Helper()
	for range 3 {
		rig.Must[[]string](t)(q.PushAll(rig.Soon(t), make([][]byte, queue.MaxBatch), delay))
	}
}

// TestPagesOfReady checks that a worker finds an item behind many unavailable ones, and reads as
// few pages as possible.
func TestPagesOfReady(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, cfg := r.Dial(client.Config{}), queue.Config{TTL: time.Minute}
		for name, x := range map[string]struct {
			second   func(int) *pb.Response // response to the request for the second page
			requests int
			fails    bool
		}{
			"found": {func(int) *pb.Response { return nil }, 2, false},
			"compacted": {func(int) *pb.Response {
				return rig.Refusal(pb.Reason_REASON_COMPACTED)
			}, 4, false},
			"refused": {rig.Refused, 2, true},
		} {
			q := queue.New(direct, name, cfg)
			many(t, q, time.Hour)
			push(t, q, "ready")
			read := 0
			c := rig.Through(t, r.Members[0], pages, func(n int) *pb.Response {
				if read = n; n == 2 {
					return x.second(n)
				}
				return nil
			})
			i, err := queue.New(c, name, cfg).TryClaim(rig.Soon(t))
			if (err != nil) != x.fails || err == nil && (i == nil || string(i.Payload()) != "ready") {
				t.Errorf("%s: claimed %v, %v", name, i, err)
			}
			if read != x.requests {
				t.Errorf("%s: %d pages were read, want %d", name, read, x.requests)
			}
		}
		read := 0
		c := rig.Through(t, r.Members[0], pages, func(n int) *pb.Response { read = n; return nil })
		q := queue.New(c, "none", cfg)
		many(t, q, time.Hour)
		if i, err := q.TryClaim(rig.Soon(t)); i != nil || err != nil || read != 2 {
			t.Errorf("claimed %v, %v, after %d pages", i, err, read)
		}
		read = 0
		c = rig.Through(t, r.Members[0], pages, func(n int) *pb.Response { read = n; return nil })
		q = queue.New(c, "many", cfg)
		many(t, q, 0)
		if claim(t, q); read != 1 {
			t.Errorf("%d pages were read for the first item", read)
		}
	})
}

// TestPushBetweenPages checks that an item that is pushed while a worker is between two pages of
// the queue is not missed.
func TestPushBetweenPages(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, cfg := r.Dial(client.Config{}), queue.Config{TTL: time.Minute}
		q := queue.New(direct, "q", cfg)
		many(t, q, time.Hour)
		c := rig.Through(t, r.Members[0], pages, func(n int) *pb.Response {
			if n == 2 {
				push(t, q, "just now")
			}
			return nil
		})
		if i := claim(t, queue.New(c, "q", cfg)); string(i.Payload()) != "just now" {
			t.Errorf("claimed %q", i.Payload())
		}
	})
}

// TestWaitingRefused checks that a waiting worker continues if its history was compacted, and
// returns any other error of its watch.
func TestWaitingRefused(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Minute}
		c := rig.Through(t, r.Members[0], rig.Watches, func(n int) *pb.Response {
			if n == 1 {
				push(t, queue.New(direct, "q", cfg), "x")
				return rig.Refusal(pb.Reason_REASON_COMPACTED)
			}
			return nil
		})
		if i := claim(t, queue.New(c, "q", cfg)); string(i.Payload()) != "x" {
			t.Errorf("claimed %q", i.Payload())
		}
		c = rig.Through(t, r.Members[0], rig.Watches, rig.Refused)
		if i, err := queue.New(c, "q", cfg).Claim(ctx); err == nil {
			t.Errorf("claimed %+v", i)
		}
	})
}

// TestWaitingEnds checks that a worker that is already waiting continues if its history is
// compacted, returns other errors, and closes its watch.
func TestWaitingEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Minute}
		for name, x := range map[string]struct {
			news  func(*pb.Response) // modifies the first events
			claim func(int) *pb.Response
			fails bool
		}{
			"claimed": {nil, nil, false},
			"compacted": {func(r *pb.Response) {
				r.Body = rig.Refusal(pb.Reason_REASON_COMPACTED).Body
			}, nil, false},
			"refused":       {func(r *pb.Response) { r.Body = rig.Refused(1).Body }, nil, true},
			"claim refused": {nil, refusedOnce, true},
		} {
			watching, ended := make(chan struct{}, 10), make(chan struct{}, 10)
			changed, tried := false, 0
			b := &rig.Between{
				Instead: func(r *pb.Request) *pb.Response {
					if r.GetCancel() != 0 {
						ended <- struct{}{}
					}
					if claims(r) && x.claim != nil {
						tried++
						return x.claim(tried)
					}
					return nil
				},
				Seen: func(r *pb.Response) {
					switch w := r.GetWatch(); {
					case w != nil && len(w.Events) == 0:
						watching <- struct{}{}
					case w != nil && x.news != nil && !changed:
						changed = true
						x.news(r)
					}
				},
			}
			q := queue.New(b.Serve(t, r.Members[0]), name, cfg)
			got := rig.Async(func() (*queue.Item, error) { return q.Claim(ctx) })
			<-watching
			push(t, queue.New(direct, name, cfg), "x")
			if a := <-got; (a.Err != nil) != x.fails || a.Err == nil && string(a.Value.Payload()) != "x" {
				t.Errorf("%s: claimed %+v, %v", name, a.Value, a.Err)
			}
			if x.news == nil {
				<-ended
			}
		}
	})
}

// TestCrowd checks that a worker that loses races waits longer, up to a limit, and waits less again
// after it wins.
func TestCrowd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		cfg := queue.Config{TTL: time.Minute}
		other := queue.New(r.Dial(client.Config{}), "q", cfg)
		racing := true
		c := rig.Through(t, r.Members[0], claims, func(n int) *pb.Response {
			if racing {
				i := claim(t, other)
				if n == 2 { // the second time, the item is acknowledged as well
					if err := i.Ack(rig.Soon(t)); err != nil {
						t.Error(err)
					}
				}
			}
			return nil
		})
		q := queue.New(c, "q", cfg)
		for n, want := range []int32{2, 4, 6, 6} {
			push(t, other, "lost")
			if i, err := q.TryClaim(rig.Soon(t)); i != nil || err != nil {
				t.Fatalf("claimed %v, %v", i, err)
			}
			if got := q.Crowd(); got != want || q.Lost() != int64(n+1) {
				t.Errorf("after %d races: a crowd of %d, and %d lost", n+1, got, q.Lost())
			}
		}
		racing = false
		for _, want := range []int32{5, 4, 3, 2, 1, 0, 0} {
			push(t, other, "won")
			if claim(t, q); q.Crowd() != want {
				t.Errorf("a crowd of %d, want %d", q.Crowd(), want)
			}
		}
	})
}

// TestAckUnsure checks that an Ack whose responses were lost reports whether the item is done. If
// the claim has ended, the item is done only if it no longer exists.
func TestAckUnsure(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Minute}
		for name, done := range map[string]bool{"lost": false, "done": true, "still ours": true} {
			var i *queue.Item
			c := rig.Through(t, r.Members[0], deletes, rig.Unsure(func() {
				if name == "still ours" {
					return
				}
				if err := direct.Revoke(ctx, i.Lease().Ref()); err != nil {
					t.Error(err)
				}
				if done {
					if err := claim(t, queue.New(direct, name, cfg)).Ack(ctx); err != nil {
						t.Error(err)
					}
				}
			}))
			push(t, queue.New(direct, name, cfg), "x")
			i = claim(t, queue.New(c, name, cfg))
			if err := i.Ack(ctx); done != (err == nil) || !done && !errors.Is(err, client.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			if err := i.Release(ctx); !errors.Is(err, client.ErrLost) {
				t.Errorf("%s: released: %v", name, err)
			}
		}
	})
}

// TestAckAgain checks that a failed Ack can be repeated if one of its attempts may have been
// applied. The repeated call reports that the item is done.
func TestAckAgain(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Minute}
		var i *queue.Item
		c := rig.Through(t, r.Members[0], deletes, func(n int) *pb.Response {
			if n == 3 {
				return rig.Refused(n)
			}
			return rig.Unsure(func() {
				if err := direct.Revoke(ctx, i.Lease().Ref()); err != nil {
					t.Error(err)
				}
				if err := claim(t, queue.New(direct, "q", cfg)).Ack(ctx); err != nil {
					t.Error(err)
				}
			})(n)
		})
		push(t, queue.New(direct, "q", cfg), "x")
		i = claim(t, queue.New(c, "q", cfg))
		if err := i.Ack(ctx); !errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("refused after a lost answer: %v", err)
		}
		if err := i.Ack(ctx); err != nil {
			t.Errorf("called again: %v", err)
		}
	})
}

// TestAckUnderWay checks that while an Ack is in flight, another call for the item waits no longer
// than its own context.
func TestAckUnderWay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		var i *queue.Item
		c := rig.Through(t, r.Members[0], deletes, rig.Unsure(func() {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := i.Nack(short, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("nack: %v", err)
			}
		}))
		q := queue.New(c, "q", queue.Config{TTL: time.Minute})
		push(t, q, "x")
		i = claim(t, q)
		if err := i.Ack(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestNackDelay checks that an item returned with a delay of an hour is unavailable for an hour.
func TestNackDelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		q := queue.New(c, "q", queue.Config{TTL: time.Minute})
		push(t, q, "x")
		if err := claim(t, q).Nack(ctx, time.Hour); err != nil {
			t.Fatal(err)
		}
		waits := rig.Keys(t, c, "q/claim/", 1)[0].Lease
		for l, err := range c.List(ctx, leases.Filter{}) {
			if err != nil || l.ID != waits || l.TTL != time.Hour {
				t.Errorf("%+v, %v", l, err)
			}
		}
	})
}

// TestLate checks that a worker whose claim was lost gets an error, even if another worker has
// already acknowledged the item.
func TestLate(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		q := queue.New(c, "q", queue.Config{TTL: time.Minute})
		for name, end := range map[string]func(*queue.Item) error{
			"ack":  func(i *queue.Item) error { return i.Ack(ctx) },
			"nack": func(i *queue.Item) error { return i.Nack(ctx, 0) },
		} {
			push(t, q, name)
			late := claim(t, q)
			if err := c.Revoke(ctx, late.Lease().Ref()); err != nil {
				t.Fatal(err)
			}
			if err := claim(t, q).Ack(ctx); err != nil {
				t.Fatal(err)
			}
			if err := end(late); !errors.Is(err, client.ErrLost) {
				t.Errorf("a late %s: %v", name, err)
			}
		}
	})
}
