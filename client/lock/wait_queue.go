package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/tries"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	rule "leasehold.dev/internal/ticket"
)

// waitQueue is a wait queue. It consists of the keys below its prefix that are attached to leases,
// ordered by create revision. A ticket waits until there are fewer keys ahead of it than permits.
type waitQueue struct {
	session *session
	prefix  string
	value   []byte // the value of each ticket's key
	// multiple allows a session to have several tickets in the queue.
	multiple bool
	// permits is the number of tickets that can be ready at the same time; 0 means 1.
	permits int
	// skip is the value of keys that a ticket does not wait for. It is nil if there are none.
	skip []byte
	// own is the range of the session's own keys that would block the ticket forever. While any
	// such key exists, no ticket is taken. An empty range means that there are no such keys.
	own store.KeyRange
	// permitsKey is the key that stores the number of permits, or empty if there is none.
	permitsKey string
}

// ready reports whether a ticket with the given keys ahead of it is ready.
func (q *waitQueue) ready(before []store.KV) bool {
	n := 0
	for _, kv := range before {
		if q.skip == nil || !bytes.Equal(kv.Value, q.skip) {
			n++
		}
	}
	return n < max(q.permits, 1)
}

// all returns the range of the queue's keys.
func (q *waitQueue) all() store.Range {
	return store.Prefix(q.prefix).Range()
}

// sort returns the keys in the queue, oldest first, and separately the entry for the given key. It
// ignores keys without leases and the keys of queues whose prefix begins with this queue's prefix.
func (q *waitQueue) sort(all []store.KV, key string) (list []store.KV, own *store.KV) {
	for i, kv := range all {
		if kv.Key == key {
			own = &all[i]
		} else if rule.Is(q.prefix, kv.Key, int64(kv.Lease)) {
			list = append(list, kv)
		}
	}
	slices.SortFunc(list, func(a, b store.KV) int { return ticketOf(&a).Compare(ticketOf(&b)) })
	return list, own
}

func ticketOf(kv *store.KV) rule.Ticket {
	return rule.Ticket{Revision: kv.CreateRevision, Key: kv.Key}
}

// enter takes a ticket in the queue. If idle is set, it does so only if the ticket is likely to be
// ready immediately. Otherwise it returns ErrLocked and leaves no key behind.
func (q *waitQueue) enter(ctx context.Context, idle bool) (*ticket, error) {
	if err := tries.CheckName("lock", strings.TrimSuffix(q.prefix, "/")); err != nil {
		return nil, err
	}
	s, key := q.session, q.key()
	if err := s.live.Err(); err != nil {
		return nil, err
	}
	// the session may end before an answer arrives
	ctx, stop := tries.Both(ctx, s.live.Context())
	defer stop()
	if err := s.keys.Await(ctx, q.blocksItself); err != nil {
		return nil, err
	}
	if err := s.use(ctx, key); err != nil {
		return nil, err
	}
	for {
		p, made, err := q.attempt(ctx, key, idle)
		switch {
		case err == nil:
			return p, nil
		case errors.Is(err, errBusy):
			idle = false
			continue
		case made: // the key exists, but the session cannot wait for it
		case !errors.Is(err, client.ErrUnknownOutcome):
			s.keys.Remove(key)
			return nil, err
		default:
			// If the key was created, this deletes it. So the outcome is known afterwards.
			if _, err = s.anyKey(key).remove(ctx, s.client.Txn); err == nil {
				continue
			}
		}
		s.giveUp(key, func(ctx context.Context) { s.clean(ctx, s.anyKey(key)) })
		return nil, err
	}
}

// errBusy means that the queue is not empty, but contains no key that the ticket would wait for.
var errBusy = errors.New("lock: the queue contains other keys")

// attempt makes one attempt to take a ticket in the queue. If made is true and err is not nil, the
// key was created, but there is no ticket.
//
// The token is drawn in the transaction that creates the key. So tokens increase in the same order
// as the create revisions, which order the queue. Unlike create revisions, they also increase
// across a restore from a backup, no matter what the restore does to the session's lease.
func (q *waitQueue) attempt(
	ctx context.Context, key string, idle bool,
) (_ *ticket, made bool, err error) {
	s, all, permits := q.session, q.all(), strconv.Itoa(q.permits)
	t := store.Txn{
		If: []store.Compare{store.Key(key).Missing()},
		Then: []store.Op{
			store.Put{Key: key, Value: q.value, Lease: s.lease.ID()}, store.DrawToken{},
		},
		Else: []store.Op{all},
	}
	if idle {
		t.If = append(t.If, store.Prefix(q.prefix).Missing())
	}
	if q.own != (store.KeyRange{}) {
		t.If = append(t.If, q.own.Missing())
	}
	if q.permitsKey != "" {
		t.If = append(t.If, store.Key(q.permitsKey).Value(store.Equal, []byte(permits)))
		t.Else = append(t.Else, store.Range{Key: q.permitsKey})
	}
	r, handle, err := s.client.Enter(ctx, t, store.Wait{
		Key: key, Prefix: q.prefix, Permits: int64(q.permits), IgnoredValue: q.skip,
	})
	switch {
	case err != nil:
		return nil, r.Succeeded, err
	case !r.Succeeded:
		if q.permitsKey != "" {
			if err := q.storePermits(ctx, r.Results[1].Range.KVs, permits); err != nil {
				return nil, false, err
			}
		}
		return nil, false, q.refusal(r.Results[0].Range.KVs, key)
	}
	return q.newTicket(key, r, handle), true, nil
}

// storePermits stores the number of permits if none is stored. It returns an error if a different
// number is stored. If the answer is lost, the next attempt to take a ticket reveals whether the
// number was stored.
func (q *waitQueue) storePermits(ctx context.Context, stored []store.KV, permits string) error {
	switch {
	case len(stored) == 0:
		_, err := q.session.client.Txn(ctx, store.Txn{
			If:   []store.Compare{store.Key(q.permitsKey).Missing()},
			Then: []store.Op{store.Put{Key: q.permitsKey, Value: []byte(permits)}},
		})
		if tries.Unsure(ctx, err) {
			return nil
		}
		return err
	case string(stored[0].Value) != permits:
		return fmt.Errorf("%w: the semaphore has %q permits, not %s (key %q)",
			client.ErrInvalid, stored[0].Value, permits, q.permitsKey)
	}
	return nil
}

// refusal returns the error for an attempt that took no ticket, given the keys that it found in the
// queue.
func (q *waitQueue) refusal(all []store.KV, key string) error {
	before, own := q.sort(all, key)
	switch {
	case own != nil || slices.ContainsFunc(before, func(kv store.KV) bool {
		return q.blocksItself(kv.Key)
	}):
		return ErrInUse
	case !q.ready(before):
		return q.locked(before)
	default:
		return errBusy
	}
}

// blocksItself reports whether a key belongs to the session itself and would block its ticket.
func (q *waitQueue) blocksItself(key string) bool {
	return key == q.own.Key || q.own.Key < key && key < q.own.End
}

// locked returns the error for a session that does not wait for the keys ahead of it.
func (q *waitQueue) locked(before []store.KV) error {
	return &client.TakenError{Holder: leases.Info{ID: before[0].Lease}, Err: ErrLocked}
}

// key returns the key of the session's ticket in the queue. If the session can have several
// tickets, it returns the key for the next one.
func (q *waitQueue) key() string {
	key := q.session.key(q.prefix)
	if q.multiple {
		key += "." + strconv.FormatInt(q.session.keys.Ticket(), 10)
	}
	return key
}

// key returns the session's key in the queue with the given prefix.
func (s *session) key(prefix string) string {
	return prefix + strconv.FormatInt(int64(s.lease.ID()), 16)
}

// anyKey returns a key of the session, whatever its create revision.
func (s *session) anyKey(key string) ownKey {
	return ownKey{key, store.Key(key).Lease(store.Equal, s.lease.ID())}
}

// ownKey is a key together with the condition under which it can be deleted.
type ownKey struct {
	key string
	is  store.Compare
}

// remove deletes the key if its condition holds, using txn, and reports whether it did. If the
// outcome is unknown, remove tries again, and then counts a missing key as deleted.
func (k ownKey) remove(
	ctx context.Context, txn func(context.Context, store.Txn) (client.TxnResult, error),
) (was bool, err error) {
	for unsure := false; ; unsure = true {
		r, err := txn(ctx, store.Txn{
			If: []store.Compare{k.is}, Then: []store.Op{store.Delete{Key: k.key}},
		})
		switch {
		case err == nil:
			return r.Succeeded || unsure, nil
		case !tries.Unsure(ctx, err):
			return false, tries.Outcome(unsure, err)
		}
	}
}

// clean deletes a key, retrying for as long as the lease may be alive. After that, the key is gone
// anyway.
func (s *session) clean(ctx context.Context, k ownKey) {
	for p := (tries.Backoff{}); ; {
		try, cancel := context.WithTimeout(ctx, s.lease.Info().TTL)
		_, err := k.remove(try, s.client.Txn)
		cancel()
		if err == nil || s.over() || p.Wait(ctx) != nil {
			return
		}
	}
}

// over reports whether the lease has ended for good.
func (s *session) over() bool {
	err := s.lease.Err()
	return err != nil && !errors.Is(err, client.ErrJeopardy)
}

// before returns the keys of a sorted list that are ahead of a ticket.
func before(list []store.KV, t rule.Ticket) []store.KV {
	i := slices.IndexFunc(list, func(kv store.KV) bool { return t.Before(ticketOf(&kv)) })
	if i >= 0 {
		return list[:i]
	}
	return list
}
