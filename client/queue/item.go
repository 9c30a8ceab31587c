package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

var _ client.Hold = (*Item)(nil)

// Item is an item that this program has claimed. Its methods are safe for concurrent use.
type Item struct {
	q       *Queue
	id      string
	payload []byte
	tries   int64
	limit   limit // limit at the time of the claim
	lease   *client.Lease

	turn  chan struct{} // capacity 1: full while Ack or Nack waits for the cluster
	over  atomic.Bool   // the item has been acknowledged, returned or lost
	tried bool          // the outcome of an earlier attempt is unknown; guarded by turn
}

// ID returns the item's unique ID. It stays the same until the item is acknowledged or becomes a
// dead letter.
func (i *Item) ID() string { return i.id }

// Payload returns the payload that was pushed. The caller must not modify it.
func (i *Item) Payload() []byte { return i.payload }

// Tries returns how many times the item has been claimed, including this claim.
func (i *Item) Tries() int64 { return i.tries }

// Lease returns the claim's lease, which the client keeps alive until Ack, Nack or Close.
func (i *Item) Lease() *client.Lease { return i.lease }

// Token returns the claim's fencing token. Each later claim of the item has a larger one.
func (i *Item) Token() lease.Token { return i.lease.Token() }

// Context returns a context that is canceled when the claim ends, before another worker can get the
// item.
func (i *Item) Context() context.Context { return i.lease.Context() }

// ValidUntil returns the time at which the claim ends unless the lease is renewed.
func (i *Item) ValidUntil() time.Time { return i.lease.ValidUntil() }

// Err returns nil while the claim is valid. After that it returns the reason why the claim ended.
// It reads the clock.
func (i *Item) Err() error { return i.lease.Err() }

// Release returns the item to the queue, like [Item.Nack] without a delay.
func (i *Item) Release(ctx context.Context) error { return i.Nack(ctx, 0) }

// Close ends the claim's Context and stops renewing its lease, so that the claim ends after its
// TTL. After Ack or Nack it does nothing. Defer it in any worker that may return without calling
// either.
func (i *Item) Close() { i.lease.Close() }

// Condition returns a condition for transactions that only the holder of this claim should be able
// to commit. (Each claim has its own lease, so the condition is that the lease exists.)
func (i *Item) Condition() store.Compare { return store.LeaseAlive(i.lease.ID()) }

// Ack reports that the item has been processed, and removes the item and the claim. If the claim
// was lost, Ack changes nothing and returns [client.ErrLost]: another worker may be processing the
// item, or may have processed it.
//
// After an error, the client stops renewing the claim's lease, so that the item becomes claimable
// again. Until then, Ack and Nack can be called again.
func (i *Item) Ack(ctx context.Context) error { return i.AckWith(ctx) }

// AckWith performs Ack and the program's writes in one transaction: either all of them take effect
// or none. So work that affects only the store takes effect once, even though items may be
// processed more than once. (If answers were lost, AckWith can also return nil when the claim has
// ended and another worker has processed the item since.)
func (i *Item) AckWith(ctx context.Context, ops ...store.Op) error {
	then := []store.Op{
		i.revoke(), store.Delete{Key: i.q.item(i.id)}, store.Delete{Key: i.q.try(i.id)},
	}
	done, err := i.finish(ctx, append(then, ops...))
	if err == nil && !done {
		err = client.ErrLost
	}
	if err != nil {
		return fault.In("queue: ack", i.id, err)
	}
	return nil
}

// Nack returns the item to the queue. The item can be claimed again after the delay; if this was
// its last try, it becomes a dead letter instead. If the claim was lost, the item is already
// claimable, and Nack returns [client.ErrLost]. If the context ends before the cluster answers,
// Nack continues in the background for as long as the claim would be valid; the client's Close
// waits for it.
func (i *Item) Nack(ctx context.Context, delay time.Duration) error {
	then := []store.Op{i.revoke()}
	switch {
	case i.tries >= i.limit.tries:
		then = append(then, store.Txn{
			If: []store.Compare{i.limit.is}, Then: i.q.deadLetterOps(i.id, i.payload),
		})
	case delay > 0:
		// The claim moves from the worker's lease to a lease that is never renewed.
		wait := leases.NewID()
		then = []store.Op{
			client.Grant{ID: wait, TTL: max(delay, minDelay)},
			store.Put{Key: i.q.claim(i.id), Lease: wait},
			i.revoke(),
		}
	}
	left := time.Until(i.lease.ValidUntil())
	err := background.Release(ctx, i.q.c, left, func(ctx context.Context) error {
		_, err := i.finish(ctx, then)
		return err
	})
	return fault.In("queue: nack", i.id, err)
}

// revoke returns the operation that ends the claim's lease. It comes first in a transaction where
// possible. So a watcher receives the deletion of the claim before any deletion of the item, and
// does not try to claim that item.
func (i *Item) revoke() store.Op { return i.lease.Ref().Revoke() }

// finish ends the claim with a transaction, which does nothing unless the claim is attached to our
// lease. The lease is kept alive until the outcome is known, so that a lost answer does not lose
// the claim.
//
// If the condition fails after a lost answer, either an earlier attempt was applied, or the lease
// has ended. In both cases the claim is over, and finish reports whether the item is gone. That is
// sufficient: either we finished the item, or a later worker did.
func (i *Item) finish(ctx context.Context, then []store.Op) (done bool, err error) {
	if err := i.await(ctx); err != nil {
		return false, err
	}
	defer func() { <-i.turn }()
	defer i.Close()
	if i.over.Load() {
		return false, client.ErrLost
	}
	t := store.Txn{
		If:   []store.Compare{store.Key(i.q.claim(i.id)).Lease(store.Equal, i.lease.ID())},
		Then: then,
		Else: []store.Op{store.Range{Key: i.q.item(i.id), KeysOnly: true}},
	}
	for p := (tries.Change{}); ; {
		r, err := i.q.c.Txn(ctx, t)
		if err != nil {
			i.tried = i.tried || errors.Is(err, client.ErrUnknownOutcome)
			if err := p.Again(ctx, err); err != nil {
				return false, err
			}
			continue
		}
		i.over.Store(true)
		switch {
		case r.Succeeded:
			return true, nil
		case !i.tried:
			return false, client.ErrLost
		}
		return len(r.Results[0].Range.KVs) == 0, nil
	}
}

// await waits until no other Ack or Nack for the item is in progress.
func (i *Item) await(ctx context.Context) error {
	select {
	case i.turn <- struct{}{}: // succeeds even if the context has ended
		return nil
	default:
	}
	select {
	case i.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Cause(ctx)
	}
}

// Work configures Queue.Work.
type Work struct {
	// Do processes an item. Its context ends when the claim or Work's context ends. If Do returns
	// nil, Work acknowledges the item, unless Do has already done so. If Do returns an error, Work
	// returns the item to the queue.
	Do func(ctx context.Context, i *Item) error
	// Delay is the delay for items that are returned to the queue. The delay doubles with each try,
	// up to 100 times this value. 0 means 1 s, and a negative value means no delay.
	Delay time.Duration
	// Failed, if set, is called for each item that was not processed, with the reason.
	Failed func(i *Item, err error)
	// Idle, if set, makes Work return nil when there is nothing to claim.
	Idle bool
}

// Work claims and processes items sequentially until the context ends or a claim fails, and returns
// the reason. If w.Do is nil, it returns client.ErrInvalid. Work can be called concurrently.
func (q *Queue) Work(ctx context.Context, w Work) error {
	if w.Do == nil {
		return fault.In("queue: work on", q.prefix,
			fmt.Errorf("%w: Work.Do is nil", client.ErrInvalid))
	}
	if w.Delay == 0 {
		w.Delay = time.Second
	}
	claim := q.Claim
	if w.Idle {
		claim = q.TryClaim
	}
	for {
		i, err := claim(ctx)
		if i == nil || err != nil {
			return err
		}
		if err := q.workOn(ctx, i, &w); err != nil && w.Failed != nil {
			w.Failed(i, err)
		}
	}
}

// workOn processes one item. Even if the context has ended, it returns the item to the queue while
// the claim would be valid. If that fails, or if Do panics, the claim is no longer kept alive.
func (q *Queue) workOn(ctx context.Context, i *Item, w *Work) error {
	defer i.Close()
	inner, cancel := tries.Both(ctx, i.Context())
	err := w.Do(inner, i)
	cancel()
	last, done := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.TTL)
	defer done()
	switch {
	case i.over.Load():
		return err
	case err == nil:
		return i.Ack(last)
	case ctx.Err() != nil:
		return fault.Join(err, i.Nack(last, 0)) // the item is not to blame
	}
	return fault.Join(err, i.Nack(last, w.after(i.tries)))
}

// after returns the delay after the given number of tries, with jitter.
func (w *Work) after(tries int64) time.Duration {
	const longest = math.MaxInt64 / 2 // leaves room for the jitter
	switch {
	case w.Delay < 0:
		return 0
	case w.Delay > longest/128:
		return min(w.Delay, longest)
	}
	d := min(w.Delay<<min(tries-1, 7), 100*w.Delay)
	return d + rand.N(d/4+1)
}
