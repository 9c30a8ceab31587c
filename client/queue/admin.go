package queue

import (
	"context"
	"fmt"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
)

// State is the state of an item.
type State int

// The states of an item.
const (
	// Ready means that the item can be claimed.
	Ready State = iota + 1
	// Claimed means that a worker has claimed the item.
	Claimed
	// Delayed means that the item cannot be claimed until later.
	Delayed
	// Dead means that the item has used up its tries and is a dead letter.
	Dead
)

// String returns the name of the state.
func (s State) String() string {
	names := [...]string{"ready", "claimed", "delayed", "dead"}
	if s < 1 || int(s) > len(names) {
		return fmt.Sprintf("unknown state %d", int(s))
	}
	return names[s-1]
}

// Info describes an item.
type Info struct {
	ID      string
	State   State
	Payload []byte
	// Worker is the name of the worker that has claimed the item.
	Worker string
	// Tries is the number of times the item has been claimed. It is 0 for a dead letter.
	Tries int64
}

// Stats counts items by state.
type Stats struct{ Ready, Claimed, Delayed, Dead int64 }

// Stats counts the items at one revision. It reads the claims; the other keys are only counted.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	if err := q.check(); err != nil {
		return s, fault.In("queue: count", q.prefix, err)
	}
	claims, revision, err := tries.ReadAll(ctx, q.c, from("", q.claim))
	if err != nil {
		return s, fault.In("queue: count", q.prefix, err)
	}
	for i := range claims {
		if len(claims[i].Value) == 0 {
			s.Delayed++
		} else {
			s.Claimed++
		}
	}
	count := func(kind func(string) string) store.Range {
		r := from("", kind)
		r.CountOnly, r.Revision = true, revision
		return r
	}
	r, err := q.c.Txn(ctx, store.Txn{Then: []store.Op{count(q.item), count(q.dead)}})
	if err != nil {
		return s, fault.In("queue: count", q.prefix, err)
	}
	s.Ready = r.Results[0].Range.Count - s.Claimed - s.Delayed
	s.Dead = r.Results[1].Range.Count
	return s, nil
}

// after returns the range of up to limit keys of a kind whose IDs come after id.
func after(id string, kind func(id string) string, limit int) store.Range {
	r := from(id+"\x00", kind)
	r.Limit = int64(max(limit, 1))
	return r
}

// List returns up to limit items that are not dead letters, in queue order. It starts after the
// given ID, or with the first item if the ID is empty.
func (q *Queue) List(ctx context.Context, id string, limit int) ([]Info, error) {
	if err := q.check(); err != nil {
		return nil, fault.In("queue: list", q.prefix, err)
	}
	page := func(kind func(string) string) store.Range { return after(id, kind, limit) }
	// Each claim and try belongs to an item. See ready.
	r, err := q.c.Txn(ctx, store.Txn{Then: []store.Op{
		page(q.item), page(q.claim), page(q.try),
	}})
	if err != nil {
		return nil, fault.In("queue: list", q.prefix, err)
	}
	index := make(map[string]*store.KV)
	for _, res := range r.Results[1:] {
		for i := range res.Range.KVs {
			index[res.Range.KVs[i].Key] = &res.Range.KVs[i]
		}
	}
	var out []Info
	for _, kv := range r.Results[0].Range.KVs {
		id, ok := idOf(kv.Key, q.item)
		if !ok {
			continue
		}
		i := Info{ID: id, State: Ready, Payload: kv.Value}
		if t := index[q.try(i.ID)]; t != nil {
			i.Tries = t.Version
		}
		switch c := index[q.claim(i.ID)]; {
		case c != nil && len(c.Value) == 0:
			i.State = Delayed
		case c != nil:
			i.State, i.Worker = Claimed, string(c.Value)
		}
		out = append(out, i)
	}
	return out, nil
}

// Dead returns up to limit dead letters, ordered by ID. It starts after the given ID, or with the
// first dead letter if the ID is empty.
func (q *Queue) Dead(ctx context.Context, id string, limit int) ([]Info, error) {
	if err := q.check(); err != nil {
		return nil, fault.In("queue: list the dead letters of", q.prefix, err)
	}
	r, err := q.c.Range(ctx, after(id, q.dead, limit))
	if err != nil {
		return nil, fault.In("queue: list the dead letters of", q.prefix, err)
	}
	var out []Info
	for _, kv := range r.KVs {
		if id, ok := idOf(kv.Key, q.dead); ok {
			out = append(out, Info{ID: id, State: Dead, Payload: kv.Value})
		}
	}
	return out, nil
}

// Requeue turns up to MaxBatch dead letters into new items at the end of the queue, with no tries
// counted. It returns how many it requeued.
func (q *Queue) Requeue(ctx context.Context, ids ...string) (int, error) {
	fresh, err := q.newIDs(ctx, len(ids))
	if err != nil {
		return 0, fault.In("queue: requeue", "", err)
	}
	return q.takeFromDead(ctx, ids, func(i int, payload []byte) []store.Op {
		return []store.Op{store.Put{Key: q.item(fresh[i]), Value: payload}}
	})
}

// Discard deletes up to MaxBatch dead letters, and returns how many it deleted.
func (q *Queue) Discard(ctx context.Context, ids ...string) (int, error) {
	return q.takeFromDead(ctx, ids, func(int, []byte) []store.Op { return nil })
}

// takeFromDead removes dead letters one at a time, each at most once. The transaction that deletes
// a dead letter also does the rest, so repeating it after a lost answer has no effect.
func (q *Queue) takeFromDead(
	ctx context.Context, ids []string, then func(i int, payload []byte) []store.Op,
) (n int, err error) {
	if err := q.check(); err != nil {
		return 0, fault.In("queue: remove dead letters of", q.prefix, err)
	}
	if len(ids) > MaxBatch {
		return 0, fault.In("queue: remove dead letters", "",
			fmt.Errorf("%w: %d IDs in one call; the limit is %d",
				client.ErrInvalid, len(ids), MaxBatch))
	}
	for i, id := range ids {
		ok, err := q.takeOneFromDead(ctx, id, func(payload []byte) []store.Op {
			return then(i, payload)
		})
		if err != nil {
			return n, fault.In("queue: remove dead letter", id, err)
		}
		if ok {
			n++
		}
	}
	return n, nil
}

func (q *Queue) takeOneFromDead(
	ctx context.Context, id string, then func(payload []byte) []store.Op,
) (ok bool, err error) {
	for p := (tries.Change{}); ; {
		done, err := q.tryDead(ctx, id, then)
		if err == nil {
			return done || p.Unsure, nil
		}
		if err := p.Again(ctx, err); err != nil {
			return false, err
		}
	}
}

// tryDead makes one attempt for takeOneFromDead.
func (q *Queue) tryDead(
	ctx context.Context, id string, then func(payload []byte) []store.Op,
) (done bool, err error) {
	r, err := q.c.Range(ctx, store.Range{Key: q.dead(id)})
	if len(r.KVs) == 0 { // applies even after an error
		return false, err
	}
	t, err := q.c.Txn(ctx, store.Txn{
		If:   []store.Compare{store.Key(q.dead(id)).Missing().Not()},
		Then: append(then(r.KVs[0].Value), store.Delete{Key: q.dead(id)}),
	})
	return t.Succeeded, err
}
