package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

func push(t testing.TB, q *queue.Queue, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		rig.Must[string](t)(q.Push(rig.Soon(t), []byte(p), 0))
	}
}

func claim(t testing.TB, q *queue.Queue) *queue.Item {
	t.Helper()
	return rig.Must[*queue.Item](t)(q.Claim(rig.Soon(t)))
}

// TestQueue checks the life cycle of an item. It is pushed, listed, claimed in order, acknowledged,
// returned with and without a delay, moved to the dead letters after its attempts, requeued, and
// discarded.
func TestQueue(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		q := queue.New(c, "q", queue.Config{TTL: time.Minute, MaxTries: 2, Worker: "me"})
		push(t, q, "1", "2")
		ids := rig.Must[[]string](t)(q.PushAll(ctx, [][]byte{[]byte("3"), []byte("4")}, 0))
		rig.Must[string](t)(q.Push(ctx, []byte("later"), time.Hour))
		first := claim(t, q)
		if string(first.Payload()) != "1" || first.Tries() != 1 {
			t.Errorf("claimed %q, try %d", first.Payload(), first.Tries())
		}
		list := rig.Must[[]queue.Info](t)(q.List(ctx, "", 10))
		var states []string
		for _, i := range list {
			states = append(states, fmt.Sprintf("%s %v %s %d", i.Payload, i.State, i.Worker, i.Tries))
		}
		want := "1 claimed me 1,2 ready  0,3 ready  0,4 ready  0,later delayed  0"
		if got := strings.Join(states, ","); got != want {
			t.Errorf("listed %s", got)
		}
		if list := rig.Must[[]queue.Info](t)(q.List(ctx, list[1].ID, 1)); list[0].ID != ids[0] {
			t.Errorf("the second page is %v", list)
		}
		count := queue.Stats{Ready: 3, Claimed: 1, Delayed: 1}
		if s := rig.Must[queue.Stats](t)(q.Stats(ctx)); s != count {
			t.Errorf("counted %+v", s)
		}
		if err := first.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		if err := first.Ack(ctx); !errors.Is(err, client.ErrLost) || first.Context().Err() == nil {
			t.Errorf("ack twice: %v", err)
		}

		// After a second attempt it becomes a dead letter.
		for try := range int64(2) {
			i := claim(t, q)
			if string(i.Payload()) != "2" || i.Tries() != try+1 {
				t.Errorf("claimed %q, try %d", i.Payload(), i.Tries())
			}
			if err := i.Nack(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		dead := rig.Must[[]queue.Info](t)(q.Dead(ctx, "", 10))
		if len(dead) != 1 || string(dead[0].Payload) != "2" || dead[0].State != queue.Dead {
			t.Fatalf("dead: %v", dead)
		}
		if n, err := q.Requeue(ctx, dead[0].ID, "none"); n != 1 || err != nil {
			t.Errorf("requeued %d, %v", n, err)
		}

		// An item that is returned with a delay does not block other items, and becomes available
		// again.
		third := claim(t, q)
		// longer than any pause of the machine
		if err := third.Nack(ctx, 8*time.Second); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"4", "2", "3"} {
			i := claim(t, q)
			if string(i.Payload()) != want {
				t.Errorf("claimed %q, want %q", i.Payload(), want)
			}
			if want == "3" && (i.ID() != third.ID() || i.Tries() != 2 || i.Token() <= third.Token()) {
				t.Errorf("claimed again: %v, try %d", i.ID(), i.Tries())
			}
			if err := i.Ack(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if i, err := q.TryClaim(ctx); i != nil || err != nil {
			t.Errorf("an empty queue has %v, %v", i, err)
		}
		if n, err := q.Discard(ctx, dead[0].ID); n != 0 || err != nil {
			t.Errorf("discarded what was requeued: %d, %v", n, err)
		}
		many := make([][]byte, queue.MaxBatch+1)
		if _, err := q.PushAll(ctx, many, 0); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("too many at once: %v", err)
		}
	})
}

// TestQueueWorkerDies checks that the items of a worker that dies become available again, and that
// its late Ack, Nack (T16, T28) and fenced write are refused. An item whose workers die too often
// also becomes a dead letter.
func TestQueueWorkerDies(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		q := queue.New(c, "q", queue.Config{TTL: 2 * time.Second, MaxTries: 3})
		push(t, q, "1")
		late := claim(t, q)
		late.Lease().Close()
		next := claim(t, q) // blocks until the lease has ended
		if next.ID() != late.ID() || next.Tries() != 2 || next.Token() <= late.Token() {
			t.Errorf("claimed %s, try %d, token %d after %d",
				next.ID(), next.Tries(), next.Token(), late.Token())
		}
		if err := late.Ack(ctx); !errors.Is(err, client.ErrLost) {
			t.Errorf("late ack: %v", err)
		}
		if err := late.Nack(ctx, time.Hour); !errors.Is(err, client.ErrLost) {
			t.Errorf("late nack: %v", err)
		}
		w, err := c.Txn(ctx, store.Txn{If: []store.Compare{late.Condition()}})
		if err != nil || w.Succeeded {
			t.Errorf("a late write: %v, %v", w.Succeeded, err)
		}
		next.Lease().Close()
		claim(t, q).Lease().Close() // the third attempt
		dead := func() int { return len(rig.Must[[]queue.Info](t)(q.Dead(ctx, "", 10))) }
		for dead() == 0 {
			short, cancel := context.WithTimeout(ctx, time.Second)
			if i, err := q.Claim(short); i != nil || err == nil {
				t.Fatalf("claimed %v, %v", i, err)
			}
			cancel()
		}
	})
}

// TestQueueWork checks that Work acknowledges items that succeed and returns items that fail. A
// worker can add its own writes to the transaction of the Ack.
func TestQueueWork(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		q := queue.New(c, "q", queue.Config{TTL: time.Minute, MaxTries: 2})
		push(t, q, "good", "bad", "exact")
		var failed []string
		err := q.Work(rig.Soon(t), queue.Work{
			Idle: true, Delay: -1,
			Do: func(ctx context.Context, i *queue.Item) error {
				switch string(i.Payload()) {
				case "bad":
					return errors.New("no")
				case "exact":
					return i.AckWith(ctx, store.Put{Key: "done"})
				}
				return nil
			},
			Failed: func(i *queue.Item, err error) { failed = append(failed, string(i.Payload())) },
		})
		if err != nil || fmt.Sprint(failed) != "[bad bad]" {
			t.Errorf("failed: %v, %v", failed, err)
		}
		s := rig.Must[queue.Stats](t)(q.Stats(rig.Soon(t)))
		if s != (queue.Stats{Dead: 1}) {
			t.Errorf("left over: %+v", s)
		}
		rig.Must[store.KV](t)(c.Get(rig.Soon(t), "done"))
	})
}

// TestQueueNoStampede checks that only a few of many waiting workers try to claim each item.
// Otherwise there would be a stampede of failing transactions.
func TestQueueNoStampede(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx, cancel := context.WithCancel(rig.Soon(t))
		defer cancel()
		q := queue.New(c, "q", queue.Config{TTL: time.Minute})
		const workers, items = 20, 40
		var all sync.WaitGroup
		done := make(chan string, items)
		var queues []*queue.Queue
		for range workers {
			q := queue.New(r.Dial(client.Config{}), "q", queue.Config{TTL: time.Minute})
			queues = append(queues, q)
			all.Go(func() {
				_ = q.Work(ctx, queue.Work{Do: func(_ context.Context, i *queue.Item) error {
					done <- string(i.Payload())
					return nil
				}})
			})
		}
		for n := range items {
			push(t, q, fmt.Sprint(n))
			if got := <-done; got != fmt.Sprint(n) {
				t.Errorf("worked on %s, want %d", got, n)
			}
		}
		cancel()
		all.Wait()
		var lost int64
		for _, q := range queues {
			lost += q.Lost()
		}
		// If every worker tried every item, 760 tries would fail.
		if t.Logf("%d tries in vain for %d items", lost, items); lost > items*workers/2 {
			t.Errorf("%d workers tried %d times in vain for %d items", workers, lost, items)
		}
	})
}

// TestQueueLostAnswers checks that a queue is drained even if every call loses responses. Each item
// is pushed once, returned, moved to the dead letters after its attempts, requeued once, and
// acknowledged.
func TestQueueLostAnswers(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		q := queue.New(c, "q", queue.Config{TTL: time.Minute, MaxTries: 100})
		const items = 12
		for n := range items {
			r.Lose(c)
			push(t, q, fmt.Sprint(n))
		}
		for n := range items {
			r.Lose(c)
			i := claim(t, q)
			if string(i.Payload()) != fmt.Sprint(n) {
				t.Fatalf("claimed %q, want %d", i.Payload(), n)
			}
			if err := i.Nack(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		s := rig.Must[queue.Stats](t)(q.Stats(ctx))
		if s != (queue.Stats{Delayed: items}) {
			t.Fatalf("given back: %+v", s)
		}
		for _, i := range rig.Must[[]queue.Info](t)(q.List(ctx, "", items)) {
			delay := rig.Must[store.KV](t)(c.Get(ctx, "q/claim/"+i.ID)).Lease
			if err := c.Revoke(ctx, leases.Ref{ID: delay}); err != nil {
				t.Fatal(err)
			}
		}
		setMaxTries(t, c, "1")
		strict := queue.New(c, "q", queue.Config{MaxTries: 1})
		r.Lose(c)
		if i, err := strict.TryClaim(ctx); i != nil || err != nil {
			t.Fatalf("claimed %v, %v", i, err)
		}
		for _, i := range rig.Must[[]queue.Info](t)(q.Dead(ctx, "", items)) {
			r.Lose(c)
			if n, err := q.Requeue(ctx, i.ID); err != nil || n != 1 {
				t.Fatalf("requeued %d, %v", n, err)
			}
		}
		setMaxTries(t, c, "100")
		for n := range items {
			i := claim(t, q)
			if string(i.Payload()) != fmt.Sprint(n) {
				t.Fatalf("claimed %q, want %d", i.Payload(), n)
			}
			r.Lose(c)
			if err := i.Ack(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if s := rig.Must[queue.Stats](t)(q.Stats(ctx)); s != (queue.Stats{}) {
			t.Errorf("left over: %+v", s)
		}
	})
}

func setMaxTries(t *testing.T, c *client.Client, n string) {
	t.Helper()
	put := store.Put{Key: "q/max-tries", Value: []byte(n)}
	if _, err := c.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
}

// TestMaxTriesStored checks that the first claim of a worker with MaxTries stores the number. A
// worker with a different number is refused, before or during a claim, and the items are unchanged.
// Once the key is deleted, the next worker's number is stored. A worker without a number uses the
// stored one.
func TestMaxTriesStored(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		two := queue.New(c, "q", queue.Config{MaxTries: 2, TTL: time.Second})
		unset := queue.New(c, "q", queue.Config{TTL: time.Second})
		refused := func(err error) {
			t.Helper()
			if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), `the queue allows "3" `) {
				t.Errorf("the queue allows 3 tries: %v", err)
			}
		}
		waiting := rig.Async(func() (*queue.Item, error) { return two.Claim(ctx) })
		synctest.Wait()
		setMaxTries(t, c, "3")
		push(t, queue.New(c, "q", queue.Config{}), "x")
		refused((<-waiting).Err)
		_, err := two.TryClaim(ctx)
		refused(err)

		stored := func() string {
			t.Helper()
			return string(rig.Must[store.KV](t)(c.Get(ctx, "q/max-tries")).Value)
		}
		for tries := range int64(2) {
			if _, err := c.Delete(ctx, store.Delete{Key: "q/max-tries"}); err != nil {
				t.Fatal(err)
			}
			if i := claim(t, two); i.Tries() != tries+1 || stored() != "2" {
				t.Errorf("%d tries of %s", i.Tries(), stored())
			} else {
				i.Close()
			}
		}
		rig.Keys(t, c, "q/claim/", 0)
		if _, err := c.Delete(ctx, store.Delete{Key: "q/max-tries"}); err != nil {
			t.Fatal(err)
		}
		if i := claim(t, unset); i.Tries() != 3 { // of 20 attempts
			t.Errorf("%d tries", i.Tries())
		} else if err := i.Nack(ctx, 0); err != nil {
			t.Error(err)
		}
		if i, err := two.TryClaim(ctx); i != nil || err != nil || stored() != "2" {
			t.Errorf("claimed %v, %v", i, err)
		}
		rig.Keys(t, c, "q/dead/", 1)
		push(t, unset, "y")
		for range 2 {
			if err := claim(t, unset).Nack(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		rig.Keys(t, c, "q/dead/", 2)
	})
}
