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
	"leasehold.dev/client/store"
	rule "leasehold.dev/internal/ticket"
)

// waitQueue is a wait queue: the keys of leases below its prefix, in the order of their create
// revisions. A ticket waits until fewer are before it than there are permits.
type waitQueue struct {
	session *session
	prefix  string
	value   []byte // of the key of a ticket in it
	// many says that a session may have several tickets in the queue.
	multiple bool
	// permits is how many of a queue may hold at one time; 0 means 1.
	permits int
	// beside is the value of keys for which a ticket does not wait; nil for none.
	skip []byte
	// own is the range of the session's own keys that would block the ticket for ever. While it
	// has keys, no ticket is taken. Empty: there can be none.
	own store.KeyRange
	// agreed is the key that has the number of permits; empty if there is none.
	permitsKey string
}

// free reports whether it is the turn of a ticket with these before it.
func (q *waitQueue) ready(before []store.KV) bool {
	n := 0
	for _, kv := range before {
		if q.skip == nil || !bytes.Equal(kv.Value, q.skip) {
			n++
		}
	}
	return n < max(q.permits, 1)
}

// all is the range of the queue's keys.
func (q *waitQueue) all() store.Range {
	return store.Prefix(q.prefix).Range()
}

// sort returns the keys that are in the queue, oldest first, and the one named. Keys that are
// not of leases, and those of queues whose prefix begins with this one, are in nobody's way.
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

// enter takes a ticket in the queue. With idle it does so only if it is likely to be the
// ticket's turn at once; otherwise it fails with ErrLocked and leaves no trace.
func (q *waitQueue) enter(ctx context.Context, idle bool) (*ticket, error) {
	if err := tries.CheckName("lock", strings.TrimSuffix(q.prefix, "/")); err != nil {
		return nil, err
	}
	s, key := q.session, q.key()
	if err := s.live.Err(); err != nil {
		return nil, err
	}
	ctx, stop := tries.Both(ctx, s.live.Context()) // there may be no answer as long as it lives
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
		case made: // and the session may not learn when its turn comes
		case !errors.Is(err, client.ErrUnknownOutcome):
			s.keys.Remove(key)
			return nil, err
		default:
			// Whether the key was made is found out by giving up what there may be.
			if _, err = s.anyKey(key).remove(ctx, s.client.Txn); err == nil {
				continue
			}
		}
		s.giveUp(key, func(ctx context.Context) { s.clean(ctx, s.anyKey(key)) })
		return nil, err
	}
}

// errBusy means that there are other keys in the queue, and that none of them is to be waited
// for.
var errBusy = errors.New("lock: not the only one")

// try takes a ticket in the queue, once. With made and an error there is no ticket, but its key.
//
// The token is drawn in the transaction that makes the key. So tokens rise as the create
// revisions do, by which the queue is ordered, but unlike these also across a restore from a
// backup, whatever became of the session's lease in it.
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
		Key: key, Prefix: q.prefix, Permits: int64(q.permits), Beside: q.skip,
	})
	switch {
	case err != nil:
		return nil, r.Succeeded, err
	case !r.Succeeded:
		if q.permitsKey != "" {
			if err := q.agree(ctx, r.Results[1].Range.KVs, permits); err != nil {
				return nil, false, err
			}
		}
		return nil, false, q.refusal(r.Results[0].Range.KVs, key)
	}
	return q.newTicket(key, r, handle), true, nil
}

// agree stores the number of permits if there is none, and fails if there is another one. Whether
// a try whose answer was lost has stored it shows at the next try for a ticket.
func (q *waitQueue) agree(ctx context.Context, stored []store.KV, permits string) error {
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
		return fmt.Errorf("%w: it has %q permits, and not %s (key %q)",
			client.ErrInvalid, stored[0].Value, permits, q.permitsKey)
	}
	return nil
}

// refusal is why no ticket was taken in a queue that has these keys.
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

// blocksItself reports whether a key is one of the session's that a ticket would wait for.
func (q *waitQueue) blocksItself(key string) bool {
	return key == q.own.Key || q.own.Key < key && key < q.own.End
}

// locked is the error of a session that does not wait for those before it.
func (q *waitQueue) locked(before []store.KV) error {
	return &LockedError{Lease: before[0].Lease}
}

// key is that of the session's ticket in the queue, or of the next one.
func (q *waitQueue) key() string {
	key := q.session.key(q.prefix)
	if q.multiple {
		key += "." + strconv.FormatInt(q.session.keys.Ticket(), 10)
	}
	return key
}

// key is the key of the session in the queue with a prefix.
func (s *session) key(prefix string) string {
	return prefix + strconv.FormatInt(int64(s.lease.ID()), 16)
}

// any is a key of the session, whichever revision made it.
func (s *session) anyKey(key string) ownKey {
	return ownKey{key, store.Key(key).Lease(store.Equal, s.lease.ID())}
}

// ownKey is a key, and the condition under which it is to be deleted.
type ownKey struct {
	key string
	is  store.Compare
}

// remove deletes a key if it is what it should be, by a transaction that is done as txn does
// it, and reports whether it was. If the outcome is not known, it tries again, and then
// counts a key that is not there as deleted.
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

// clean deletes a key. It tries for as long as the lease may live, which would take it along.
func (s *session) clean(ctx context.Context, k ownKey) {
	for p := (tries.Backoff{}); ; {
		try, cancel := context.WithTimeout(ctx, s.lease.Info().TTL)
		_, err := k.remove(try, s.client.Txn)
		cancel()
		if err == nil || s.lease.State().Status == client.Ended || p.Wait(ctx) != nil {
			return
		}
	}
}

// before returns those of a queue, oldest first, that are before a ticket.
func before(list []store.KV, t rule.Ticket) []store.KV {
	i := slices.IndexFunc(list, func(kv store.KV) bool { return t.Before(ticketOf(&kv)) })
	if i >= 0 {
		return list[:i]
	}
	return list
}
