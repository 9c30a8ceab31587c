package pool_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

func acquire(t testing.TB, p *pool.Pool, r pool.Request) *pool.Loan {
	t.Helper()
	return rig.Must[*pool.Loan](t)(p.Acquire(rig.Soon(t), r))
}

// TestPool checks that an ID has at most one holder at a time. An owner gets back the ID it had
// before, and a new owner gets one that was never leased. Acquire can wait for a specific ID or for
// any ID.
func TestPool(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		if _, err := pool.Open(ctx, c, "p"); !errors.Is(err, pool.ErrNotFound) {
			t.Errorf("Open without a pool: %v", err)
		}
		three := pool.Spec{First: 7, Last: 9}
		rig.Must[*pool.Pool](t)(pool.Create(ctx, c, "p", three))
		rig.Must[*pool.Pool](t)(pool.Create(ctx, c, "p", three))
		if _, err := pool.Create(ctx, c, "p", pool.Spec{Last: 9}); !errors.Is(
			err, pool.ErrExists) {
			t.Errorf("Create with another Spec: %v", err)
		}
		// A key created by another program that does not belong to an ID is ignored.
		if _, err := c.Put(ctx, store.Put{Key: "p/held/"}); err != nil {
			t.Fatal(err)
		}
		p := rig.Must[*pool.Pool](t)(pool.Open(ctx, c, "p"))
		if p.Size() != 3 {
			t.Errorf("size %d", p.Size())
		}
		a := acquire(t, p, pool.Request{Owner: "a", TTL: time.Minute})
		b := acquire(t, p, pool.Request{Owner: "b", TTL: time.Minute})
		if a.ID() == b.ID() || a.Err() != nil || a.Context().Err() != nil {
			t.Errorf("holding %s and %s, Err %v", a.ID(), b.ID(), a.Err())
		}
		had, token := a.ID(), a.Token()
		if err := a.Release(ctx); err != nil || a.Err() == nil {
			t.Errorf("Release: %v, then Err: %v", err, a.Err())
		}
		// A new owner gets the ID that was never leased, and owner "a" gets its previous ID.
		d := acquire(t, p, pool.Request{Owner: "d", TTL: time.Minute})
		a = acquire(t, p, pool.Request{Owner: "a", TTL: 8 * time.Second})
		if d.ID() == had || a.ID() != had || a.Token() <= token {
			t.Errorf("d has %s, a has %s after %s, with token %d after %d", d.ID(), a.ID(), had, a.Token(), token)
		}
		if _, err := p.Acquire(ctx, pool.Request{}); !errors.Is(err, pool.ErrNoneFree) {
			t.Errorf("Acquire with all held: %v", err)
		}
		_, err := p.Acquire(ctx, pool.Request{Want: had})
		if !errors.Is(err, pool.ErrNoneFree) || !rig.Blames(err, a.Lease().ID()) ||
			!strings.Contains(err.Error(), `of "a" holds`) {
			t.Errorf("Acquire of a held ID: %v", err)
		}
		if _, err := p.Acquire(ctx, pool.Request{Want: "6"}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("Acquire of an unknown ID: %v", err)
		}
		list := rig.Must[[]pool.Entry](t)(p.List(ctx))
		if len(list) != 3 || list[0].ID != "7" || list[0].Owner == "" {
			t.Errorf("listed %+v", list)
		}
		waiting := make(chan *pool.Loan, 1)
		go func() {
			l, err := p.Acquire(ctx, pool.Request{Want: had, Wait: true, TTL: time.Minute})
			if err != nil || a.Err() == nil {
				t.Errorf("Acquire after waiting: %v, Err of the previous holder: %v", err, a.Err())
			}
			waiting <- l
		}()
		a.Lease().Close() // dies
		next := <-waiting
		if next == nil {
			return
		}
		for _, tc := range []struct {
			l    *pool.Loan
			want bool
		}{{a, false}, {next, true}} {
			w, err := c.Txn(ctx, store.Txn{If: []store.Compare{tc.l.Condition()}})
			if err != nil || w.Succeeded != tc.want {
				t.Errorf("a fenced write: %v, %v", w.Succeeded, err)
			}
		}
	})
}

// TestPoolSpec checks that invalid Specs are rejected, and that a pool of names with a quarantine
// works.
func TestPoolSpec(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c := r.Dial(client.Config{})
		ctx := rig.Soon(t)
		for _, s := range []pool.Spec{
			{First: 2, Last: 1},
			{Last: pool.MaxIDs},
			{First: -1 << 63, Last: 1<<63 - 1},
			{First: 1<<63 - 1, Last: -1 << 63},
			{IDs: []string{"a", "a"}},
			{IDs: []string{"a/b"}},
			{IDs: []string{""}},
			{IDs: []string{"\xff"}}, // not valid UTF-8
		} {
			if _, err := pool.Create(ctx, c, "bad", s); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%+v: %v", s, err)
			}
		}
		p := rig.Must[*pool.Pool](t)(pool.Create(ctx, c, "p", pool.Spec{
			IDs: []string{"10.0.0.1", "10.0.0.2"}, Quarantine: time.Hour,
		}))
		dies := acquire(t, p, pool.Request{Want: "10.0.0.2", TTL: 4 * time.Second})
		rig.Must[*pool.Loan](t)(p.Acquire(ctx, pool.Request{}))
		dies.Lease().Close()
		time.Sleep(5 * time.Second)
		if !rig.Must[[]pool.Entry](t)(p.List(ctx))[1].Quarantined {
			t.Error("the ID is not in quarantine")
		}
		if _, err := p.Acquire(ctx, pool.Request{}); !errors.Is(err, pool.ErrNoneFree) {
			t.Errorf("Acquire of any ID: %v", err)
		}
		_, err := p.Acquire(ctx, pool.Request{Want: "10.0.0.2"})
		if !errors.Is(err, pool.ErrNoneFree) || !rig.Blames(err, dies.Lease().ID()) ||
			!strings.Contains(err.Error(), "expired") {
			t.Errorf("Acquire of the quarantined ID: %v", err)
		}
	})
}

// TestLargePool checks that Acquire reads a bounded part of a large pool, even if nearly all of it
// is held, and that an owner gets its last ID back.
func TestLargePool(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		const size, left = 5000, "4711"
		p := rig.Must[*pool.Pool](t)(pool.Create(ctx, direct, "p", pool.Spec{First: 0, Last: size - 1}))
		mine := acquire(t, p, pool.Request{Owner: "me", Want: "17", TTL: time.Minute})
		if err := mine.Release(ctx); err != nil {
			t.Fatal(err)
		}
		again := acquire(t, p, pool.Request{Owner: "me", TTL: time.Minute})
		if again.ID() != mine.ID() {
			t.Errorf("the owner had %s and now got %s", mine.ID(), again.ID())
		}
		for first := 0; first < size; first += 100 {
			var txn store.Txn
			for i := first; i < first+100; i++ {
				if id := strconv.Itoa(i); id != left {
					txn.Then = append(txn.Then, store.Put{Key: "p/held/" + id})
				}
			}
			rig.Must[client.TxnResult](t)(direct.Txn(ctx, txn))
		}
		keys := 0
		b := &rig.Between{Seen: func(r *pb.Response) {
			keys += len(r.GetReadRange().GetKvs())
		}}
		near := rig.Must[*pool.Pool](t)(pool.Open(ctx, b.Serve(t, r.Members[0]), "p"))
		if l := acquire(t, near, pool.Request{TTL: time.Minute}); l.ID() != left {
			t.Errorf("acquired %s, want %s", l.ID(), left)
		}
		before := keys
		_, err := near.Acquire(ctx, pool.Request{})
		if !errors.Is(err, pool.ErrNoneFree) || keys != before {
			t.Errorf("without free IDs, Acquire read %d keys: %v", keys-before, err)
		}
	})
}
