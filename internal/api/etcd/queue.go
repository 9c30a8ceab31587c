package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// sessionTTL is the TTL of the lease granted to a caller that does not pass one. As in etcd, that
// lease is never renewed, so the lock ends after a minute regardless of what the holder does (T18).
// Callers should pass a lease and keep it alive.
const sessionTTL = 60 * second

// cleanUpTime is the timeout for removing the key of a caller that has left.
const cleanUpTime = 10 * time.Second

// queue is the wait queue that implements locks and elections. Each lease has one key below a
// prefix. The oldest key, by create revision, is at the head. If one transaction created several
// keys, the smallest of them comes first. etcd's concurrency package uses the same keys, so
// programs that use that package and programs that use these services exclude each other.
//
// As in that package, every key below the prefix counts, regardless of its name and lease. Package
// waitqueue cannot be used here, because its queues count only tickets, and a key is never in two
// of its queues.
type queue struct {
	identity
	node    Node
	maxKeys int             // per lease
	stop    context.Context // ends with the service
}

// older reports whether a comes before b in a queue.
func older(a, b *mvcc.KeyValue) bool {
	return cmp.Or(cmp.Compare(a.CreateRevision, b.CreateRevision), cmp.Compare(a.Key, b.Key)) < 0
}

// ticket is an entry in a queue.
type ticket struct {
	prefix, key string
	lease       lease.ID
	revision    int64 // create revision of the key
	// granted is true if this call granted the lease. entered is true if this call put the key.
	granted, entered bool
}

// queuePrefix returns the key prefix of a lock or an election.
func queuePrefix(name []byte) string { return string(name) + "/" }

// prefixEnd returns the end of the range of keys that begin with a prefix. The prefix must end in a
// slash.
func prefixEnd(prefix string) string { return prefix[:len(prefix)-1] + "0" }

// enter creates the lease's key in the queue. If the key already exists, enter returns it with its
// value. If no lease is given, enter grants one.
func (q *queue) enter(
	ctx context.Context, name, value []byte, id lease.ID,
) (*ticket, *mvcc.KeyValue, error) {
	t := &ticket{prefix: queuePrefix(name), lease: id}
	if err := readable(ctx, q.node.View(), t.prefix, prefixEnd(t.prefix)); err != nil {
		return nil, nil, err // check before entering; ahead checks again afterwards
	}
	if id == 0 {
		info, _, err := grant(ctx, q.node, lease.Terms{TTL: sessionTTL})
		if err != nil {
			return nil, nil, err
		}
		t.lease, t.granted = info.ID, true
	}
	t.key = fmt.Sprintf("%s%x", t.prefix, int64(t.lease))
	res, err := q.node.Propose(ctx, &fsm.Txn{
		Compare: []fsm.Compare{{Key: t.key, Target: fsm.TargetCreate}},
		Then: []fsm.Op{{Put: &fsm.Put{
			Key: t.key, Value: value, Lease: t.lease, MaxKeys: q.maxKeys,
		}}},
		Else: []fsm.Op{{Range: &fsm.Range{Key: t.key}}},
	})
	switch {
	case err != nil:
		t.entered = true // the outcome is unknown, so the key may have been put
		q.leave(ctx, t)
		return nil, nil, api.ProposalError(err)
	case res.Err != nil:
		q.leave(ctx, t)
		return nil, nil, api.Error(res.Err)
	}
	r := res.Value.(*fsm.TxnResult)
	if r.Succeeded {
		t.revision, t.entered = res.Revision, true
		return t, nil, nil
	}
	old := r.Responses[0].(*mvcc.RangeResult).KVs[0]
	t.revision = old.CreateRevision
	return t, old, nil
}

// head waits until the ticket is at the head of its queue. It returns a header with the revision at
// that time. If the ticket's key is deleted while waiting, for example because its lease ends, head
// returns errExpired immediately (T16). If it returns an error, it also removes the ticket from the
// queue.
func (q *queue) head(ctx context.Context, t *ticket) (*pb.ResponseHeader, error) {
	h, err := q.wait(ctx, t)
	if err != nil {
		q.leave(ctx, t)
		return nil, err
	}
	return h, nil
}

var errExpired = status.Error(codes.Unknown, "mutex: session is expired")

func (q *queue) wait(ctx context.Context, t *ticket) (*pb.ResponseHeader, error) {
	v := q.node.View()
	ahead, err := q.ahead(ctx, v, t)
	if err != nil {
		return nil, err
	}
	if ahead != nil {
		w := &waiter{queue: q, ticket: t, stream: q.node.Watches().NewStream()}
		defer w.stream.Close()
		ctx, cancel := until(ctx, q.stop)
		defer cancel()
		if err := w.wait(ctx, v, ahead); err != nil {
			return nil, err
		}
	}
	// The observed state may be out of date. Report success only if a confirmed read shows both the
	// key and its lease (T16, T17).
	if err := q.node.Confirm(ctx); err != nil {
		return nil, api.ReadError(err)
	}
	v = q.node.View()
	if _, err := q.ahead(ctx, v, t); err != nil {
		return nil, err
	}
	return q.header(v), nil
}

// ahead returns the youngest key that is older than the ticket's key. It returns nil if the ticket
// is at the head, and errExpired if it is no longer in the queue. Each ticket waits for the
// youngest key rather than for the head, so that only one waiter is woken at a time.
//
// As in etcd, the caller must be allowed to read all keys in the queue.
func (q *queue) ahead(
	ctx context.Context, v *fsm.View, t *ticket,
) (*mvcc.KeyValue, error) {
	if err := readable(ctx, v, t.prefix, prefixEnd(t.prefix)); err != nil {
		return nil, err
	}
	own := v.KV.Get(t.key)
	if own == nil || own.CreateRevision != t.revision || own.Lease != int64(t.lease) {
		return nil, errExpired
	}
	var before *mvcc.KeyValue
	for kv := range v.KV.Ascend(t.prefix, prefixEnd(t.prefix), 0) {
		if older(kv, own) && (before == nil || older(before, kv)) {
			before = kv
		}
	}
	return before, nil
}

// leave removes the ticket if this call put its key, even if the caller is gone. Otherwise, a key
// without a waiter would block the queue for as long as its lease lives.
func (q *queue) leave(ctx context.Context, t *ticket) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	// Ignore errors: the end of the lease removes the key.
	switch {
	case t.granted:
		_, _ = q.node.Propose(ctx, &fsm.Revoke{ID: t.lease})
	case t.entered:
		_, _ = q.node.Propose(ctx, t.removal())
	}
}

// removal returns a transaction that deletes the ticket's key if it still belongs to the ticket. If
// the revision is unknown, the lease identifies the key.
func (t *ticket) removal() *fsm.Txn {
	own := fsm.Compare{Key: t.key, Target: fsm.TargetCreate, Number: t.revision}
	if t.revision == 0 {
		own = fsm.Compare{Key: t.key, Target: fsm.TargetLease, Number: int64(t.lease)}
	}
	return &fsm.Txn{
		Compare: []fsm.Compare{own},
		Then:    []fsm.Op{{Delete: &fsm.DeleteRange{Key: t.key}}},
	}
}

// waiter waits for the keys ahead of a ticket to be deleted, one at a time.
type waiter struct {
	*queue
	ticket *ticket
	stream *watch.Stream[*api.Event]
}

// The IDs of a waiter's watches.
const (
	watchOwn   = 1
	watchAhead = 2
)

// wait returns when nothing is ahead of the ticket. v is the current view, and ahead is the key
// ahead of the ticket in v.
func (w *waiter) wait(ctx context.Context, v *fsm.View, ahead *mvcc.KeyValue) error {
	if err := w.watch(watchOwn, w.ticket.key, v); err != nil {
		return err
	}
	for ahead != nil {
		if err := w.watch(watchAhead, ahead.Key, v); err != nil {
			return err
		}
		if err := w.awaitDeletion(ctx); err != nil {
			return err
		}
		// The watch may have ended already.
		if err := w.stream.Cancel(watchAhead); err != nil && !errors.Is(err, watch.ErrNotFound) {
			return api.Error(err)
		}
		var err error
		v = w.node.View()
		if ahead, err = w.ahead(ctx, v, w.ticket); err != nil {
			return err
		}
	}
	return nil
}

// watch watches for the deletion of a key after view v.
func (w *waiter) watch(id int64, key string, v *fsm.View) error {
	_, err := w.stream.Watch(watch.Request{
		ID: id, Key: key, From: v.KV.Revision() + 1, NoPut: true,
	})
	return api.Error(err)
}

// awaitDeletion returns when the key ahead has been deleted. It returns errExpired if the ticket's
// own key has been deleted.
func (w *waiter) awaitDeletion(ctx context.Context) error {
	for {
		b, err := w.stream.Next(ctx)
		switch {
		case err != nil:
			return api.Error(err)
		case b.Err != nil:
			// The events were compacted before they could be read. The next view shows whether the
			// key still exists.
			if b.ID == watchOwn {
				return w.watch(watchOwn, w.ticket.key, w.node.View())
			}
			return nil
		case b.Kind != watch.Changed:
			continue
		case b.ID == watchOwn:
			return errExpired
		case b.ID == watchAhead:
			return nil
		}
	}
}

// WaitsForOthers reports whether calls to a method wait for other callers to release a lock or an
// election. Like streams, such calls survive changes to users, and they leave the queue when they
// end.
func WaitsForOthers(method string) bool {
	return method == v3lockpb.Lock_Lock_FullMethodName ||
		method == v3electionpb.Election_Campaign_FullMethodName
}
