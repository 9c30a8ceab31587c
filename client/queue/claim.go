package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
)

// window is the maximum number of items that a worker chooses among after it has lost races. They
// are the first items in the queue.
const window = 16

// maxCompetitors caps Queue.competitors. It therefore also caps how long a worker waits before it
// tries to claim an item, at 2^maxCompetitors ms.
const maxCompetitors = 6

// Claim waits for an item and claims it. It normally chooses the first item that is neither claimed
// nor delayed. A worker that has lost races to other workers instead picks one of the first 2, 4, 8
// or 16 such items at random. So many later items can overtake an item.
func (q *Queue) Claim(ctx context.Context) (*Item, error) {
	for {
		i, err := q.claimOne(ctx, true)
		if i != nil || err != nil {
			return i, err
		}
	}
}

// TryClaim is like Claim, but returns nil immediately if there is no item to claim.
func (q *Queue) TryClaim(ctx context.Context) (*Item, error) { return q.claimOne(ctx, false) }

func (q *Queue) claimOne(ctx context.Context, wait bool) (*Item, error) {
	fail := func(err error) (*Item, error) {
		return nil, fault.In("queue: claim from", q.prefix, err)
	}
	if err := q.check(); err != nil {
		return fail(err)
	}
	for {
		ready, revision, err := q.ready(ctx)
		if err != nil {
			return fail(err)
		}
		if len(ready) == 0 && !wait {
			return nil, nil
		}
		if len(ready) == 0 {
			i, err := q.claimNext(ctx, revision)
			if err != nil {
				return fail(err)
			}
			return i, nil
		}
		i, err := q.tryClaim(ctx, q.choose(ready))
		if err != nil {
			return fail(err)
		}
		if i != nil {
			return i, nil
		}
		if err := tries.Pause(ctx, q.claimDelay()); err != nil {
			return fail(err)
		}
	}
}

// choose selects an item near the head of the queue.
func (q *Queue) choose(ready []string) string {
	n := min(len(ready), window, 1<<q.competitors.Load())
	return ready[rand.IntN(n)]
}

// claimDelay returns how long to wait before trying to claim an item, so that a competing worker
// has time to claim it first. A worker without competitors does not wait.
func (q *Queue) claimDelay() time.Duration {
	c := q.competitors.Load()
	if c == 0 {
		return 0
	}
	return rand.N(time.Millisecond << c)
}

// ready returns the first items that are neither claimed nor delayed, and the revision.
//
// Each claim belongs to an item, so the claims of the first n items are among the first n claims.
// Therefore it is enough to compare one page of items with one page of claims at the same revision.
func (q *Queue) ready(ctx context.Context) (ready []string, revision int64, err error) {
	first := ""
	page := func(kind func(string) string) store.Range {
		r := from(first, kind)
		r.Limit, r.Revision, r.KeysOnly = 128, revision, true
		return r
	}
	for p := (tries.Backoff{}); ; {
		r, err := q.c.Txn(ctx, store.Txn{Then: []store.Op{
			page(q.item), page(q.claim), store.Range{Key: q.maxTries()},
		}})
		if errors.Is(err, client.ErrCompacted) && revision != 0 {
			first, revision = "", 0
			if err := p.Wait(ctx); err != nil {
				return nil, 0, err
			}
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		items, claims := r.Results[0].Range, r.Results[1].Range
		if _, err := q.readLimit(r.Results[2].Range.KVs); err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = r.Revision
		}
		claimed := make(map[string]bool, len(claims.KVs))
		for _, kv := range claims.KVs {
			claimed[strings.TrimPrefix(kv.Key, q.claim(""))] = true
		}
		for _, kv := range items.KVs {
			id, ok := idOf(kv.Key, q.item)
			if ok && !claimed[id] {
				ready = append(ready, id)
			}
			first = id + "\x00"
		}
		if len(ready) > 0 || !items.More || len(items.KVs) == 0 {
			return ready, revision, nil
		}
	}
}

// claimNext waits for items that become ready and claims one. No item was ready at the given
// revision. claimNext returns nil if the caller should start over.
func (q *Queue) claimNext(ctx context.Context, revision int64) (*Item, error) {
	w, err := q.c.Watch(ctx, store.Watch{
		// This range covers claim/ to item/, with dead/ in between.
		Key: q.claim(""), End: store.Prefix(q.item("")).End, From: revision + 1,
	})
	if errors.Is(err, client.ErrCompacted) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer w.Close()
	free := make(map[string]bool)
	for {
		if err := q.await(ctx, w, free); err != nil {
			return nil, ignoreCompacted(err)
		}
		id := q.choose(sorted(free))
		i, err := q.tryClaim(ctx, id)
		if i != nil || err != nil {
			return i, err
		}
		delete(free, id) // an event will report when the item is free again
	}
}

// await waits until some items are free. If other workers are waiting too, it then pauses for a
// short random time but continues to receive events. That way, it usually learns of another
// worker's claim in time to avoid a futile attempt of its own.
func (q *Queue) await(ctx context.Context, w *client.Watcher, free map[string]bool) error {
	for {
		for len(free) == 0 {
			if err := q.listen(ctx, w, free); err != nil {
				return err
			}
		}
		short, cancel := context.WithTimeoutCause(ctx, q.claimDelay(), errLook)
		err := error(nil)
		for err == nil {
			err = q.listen(short, w, free)
		}
		cancel()
		if !errors.Is(err, errLook) {
			return err
		}
		if len(free) > 0 {
			return nil
		}
	}
}

// errLook is the cause of a wait that timed out.
var errLook = errors.New("queue: poll interval elapsed")

func ignoreCompacted(err error) error {
	if errors.Is(err, client.ErrCompacted) {
		return nil
	}
	return err
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for id := range set {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// listen receives the next events, and updates the set of items that have become free. Within an
// Ack's revision, the claim is deleted before the item. Within a delayed Push's revision, the item
// is created before its claim. If an item is in the set by mistake, the only cost is a futile
// attempt.
func (q *Queue) listen(ctx context.Context, w *client.Watcher, free map[string]bool) error {
	u, err := w.Next(ctx)
	if err != nil {
		return err
	}
	for _, e := range u.Events {
		if id, ok := idOf(e.KV.Key, q.claim); ok {
			if e.Delete {
				free[id] = true
			} else {
				delete(free, id)
			}
		}
		if id, ok := idOf(e.KV.Key, q.item); ok {
			if e.Delete {
				delete(free, id)
			} else {
				free[id] = true
			}
		}
	}
	return nil
}

// tryClaim claims one item. It returns nil if the item cannot be claimed.
//
// One transaction grants the lease, attaches the claim to it, and counts the try. If the process
// stops after that, or the answer is lost, the lease ends after its TTL. The claim ends with it,
// and the item is free again. The try still counts, because the item may have been processed.
//
// If the outcome is unknown, the worker releases the claim, in case it exists, and tries again. It
// has to retry, because if nothing was claimed, no event will report that the item is free.
func (q *Queue) tryClaim(ctx context.Context, id string) (*Item, error) {
	for p := (tries.Change{}); ; {
		i, err := q.tryOnce(ctx, id)
		if err == nil {
			return i, nil
		}
		if err := p.Again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// tryOnce is like tryClaim, but returns an error if the outcome is unknown.
func (q *Queue) tryOnce(ctx context.Context, id string) (*Item, error) {
	l := leases.NewID()
	limit := q.limit()
	r, err := q.c.Txn(ctx, store.Txn{
		If: []store.Compare{
			store.Key(q.item(id)).Missing().Not(),
			store.Key(q.claim(id)).Missing(),
			store.Key(q.try(id)).Version(store.Less, limit.tries),
			limit.is,
		},
		Then: append([]store.Op{
			client.Grant{ID: l, TTL: q.cfg.TTL, Owner: q.cfg.Worker},
			store.Put{Key: q.claim(id), Value: []byte(q.claimant()), Lease: l},
			store.Put{Key: q.try(id), PrevKV: true},
			store.Range{Key: q.item(id)},
		}, limit.set...),
		Else: []store.Op{
			store.Range{Key: q.item(id)},
			store.Range{Key: q.claim(id), KeysOnly: true},
			store.Range{Key: q.maxTries()},
		},
	})
	if errors.Is(err, client.ErrUnknownOutcome) {
		return nil, fault.Join(err, q.release(ctx, leases.Ref{ID: l}))
	}
	if err != nil {
		return nil, err
	}
	if !r.Succeeded {
		items, claims := r.Results[0].Range.KVs, r.Results[1].Range.KVs
		free := len(items) > 0 && len(claims) == 0
		changed, err := q.readLimit(r.Results[2].Range.KVs)
		switch {
		case err != nil:
			return nil, err
		case free && changed:
			return q.tryOnce(ctx, id)
		}
		q.lostRaces.Add(1)
		q.competitors.Store(min(q.competitors.Load()+2, maxCompetitors))
		if free {
			return nil, q.moveToDead(ctx, id, items[0].Value) // the item has used up its tries
		}
		return nil, nil
	}
	q.competitors.Store(max(q.competitors.Load()-1, 0))
	if len(limit.set) > 0 {
		q.stored.Store(limit.tries)
		limit = q.storedLimit(limit.tries)
	}
	held, err := q.c.Keep(r.Results[0].Grant, -1)
	if err != nil { // the answer took too long; an event follows
		return nil, q.release(ctx, leases.Ref{ID: l})
	}
	i := &Item{
		q: q, id: id, lease: held, payload: r.Results[3].Range.KVs[0].Value, tries: 1,
		limit: limit, turn: make(chan struct{}, 1),
	}
	if prev := r.Results[2].Put.Prev; prev != nil {
		i.tries = prev.Version + 1
	}
	if q.cfg.MaxTime > 0 {
		limit := time.AfterFunc(q.cfg.MaxTime, i.Close)
		context.AfterFunc(held.Context(), func() { limit.Stop() })
	}
	return i, nil
}

// claimant returns the value of a claim. The value of a delay is empty.
func (q *Queue) claimant() string {
	if q.cfg.Worker == "" {
		return "-"
	}
	return q.cfg.Worker
}

// release revokes a lease without a holder, if the lease exists, so that its item becomes free
// sooner.
func (q *Queue) release(ctx context.Context, l leases.Ref) error {
	err := background.Release(ctx, q.c, q.cfg.TTL, func(ctx context.Context) error {
		return q.c.Revoke(ctx, l)
	})
	if errors.Is(err, client.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// moveToDead turns an unclaimed item that has used up its tries into a dead letter. Repeating the
// transaction has no effect, even if another worker executed it first.
func (q *Queue) moveToDead(ctx context.Context, id string, payload []byte) error {
	limit := q.limit()
	_, err := q.c.Txn(ctx, store.Txn{
		If: []store.Compare{
			store.Key(q.item(id)).Missing().Not(),
			store.Key(q.claim(id)).Missing(),
			store.Key(q.try(id)).Version(store.Greater, limit.tries-1),
			limit.is,
		},
		Then: append(q.deadLetterOps(id, payload), limit.set...),
	})
	return err
}

func (q *Queue) deadLetterOps(id string, payload []byte) []store.Op {
	return []store.Op{
		store.Delete{Key: q.item(id)},
		store.Delete{Key: q.try(id)},
		store.Put{Key: q.dead(id), Value: payload},
	}
}
