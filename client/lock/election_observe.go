package lock

import (
	"context"
	"errors"
	"iter"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/fault"
	rule "leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
)

// LeaderInfo describes the leader at a revision. If there is no leader, Key is empty.
type LeaderInfo struct {
	// Key, Value and Lease are the leader's key, proclaimed value and lease.
	Key   string
	Value []byte
	Lease lease.ID
	// Since is the create revision of the key. Each leader has a higher one than its predecessor.
	Since int64
	// Revision is the store revision that the information refers to.
	Revision int64
}

// None reports whether there is no leader.
func (l LeaderInfo) None() bool { return l.Key == "" }

// Leader returns the current leader. LeaderInfo.None reports whether there is no leader. The read
// is linearizable, but the leader may have changed by the time the answer arrives.
func (e *Election) Leader(ctx context.Context) (LeaderInfo, error) {
	o := &observer{election: e, queue: waitQueue{prefix: e.name + "/"}}
	if err := o.read(ctx, e.client); err != nil {
		return LeaderInfo{}, fault.In("lock: observe", e.name, err)
	}
	return o.leader(), nil
}

// Observe yields the current leader of an election and then every change: a new leader, a new
// value, or the loss of the leader. It follows a single ordered stream: each leader that it yields
// did lead at the given store revision, and none is skipped or repeated (T17). There is one
// exception: if the program falls so far behind that changes have been compacted, Observe continues
// with the current leader. Observe ends when the context ends, and yields the context's cause.
func (e *Election) Observe(ctx context.Context) iter.Seq2[LeaderInfo, error] {
	return func(yield func(LeaderInfo, error) bool) {
		o := &observer{election: e, queue: waitQueue{prefix: e.name + "/"}, yield: yield}
		var err error
		for err == nil { // start over after a compaction
			err = o.follow(ctx, e.client)
		}
		if !errors.Is(err, errStop) {
			yield(LeaderInfo{}, fault.In("lock: observe", e.name, err))
		}
	}
}

// errStop means that the program stopped the iteration.
var errStop = errors.New("lock: stopped")

// observer is the state of an Observe call.
type observer struct {
	election *Election
	queue    waitQueue
	yield    func(LeaderInfo, error) bool
	keys     map[string]store.KV // keys of the leader and of waiting candidates
	revision int64
	last     *LeaderInfo
}

// read reads the current queue.
func (o *observer) read(ctx context.Context, c *client.Client) error {
	if err := o.election.check(); err != nil {
		return err
	}
	r, err := c.Range(ctx, o.queue.all())
	if err != nil {
		return err
	}
	list, _ := o.queue.sort(r.KVs, "")
	o.keys, o.revision = make(map[string]store.KV), r.Revision
	for _, kv := range list {
		o.keys[kv.Key] = kv
	}
	return nil
}

// follow emits all changes from now on. It returns once they have been compacted.
func (o *observer) follow(ctx context.Context, c *client.Client) error {
	if err := o.read(ctx, c); err != nil {
		return err
	}
	if err := o.emit(); err != nil {
		return err
	}
	all := o.queue.all()
	w, err := c.WatchFrom(store.Watch{Key: all.Key, End: all.End, From: o.revision + 1})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		u, err := w.Next(ctx)
		if errors.Is(err, client.ErrCompacted) {
			return nil
		}
		if err == nil {
			err = o.apply(u.Events)
		}
		if err != nil {
			return err
		}
	}
}

// apply applies events, and emits the leader as of each revision.
func (o *observer) apply(events []store.Event) error {
	for i, e := range events {
		// A deleted key has no lease.
		if rule.Is(o.queue.prefix, e.KV.Key, int64(e.KV.Lease)) {
			o.keys[e.KV.Key] = e.KV
		} else {
			delete(o.keys, e.KV.Key)
		}
		o.revision = e.KV.ModRevision
		if i+1 < len(events) && events[i+1].KV.ModRevision == o.revision {
			continue
		}
		if err := o.emit(); err != nil {
			return err
		}
	}
	return nil
}

// emit yields the leader if it has changed.
func (o *observer) emit() error {
	l := o.leader()
	if o.last != nil && o.last.Since == l.Since && string(o.last.Value) == string(l.Value) {
		return nil
	}
	o.last = &l
	if !o.yield(l, nil) {
		return errStop
	}
	return nil
}

func (o *observer) leader() LeaderInfo {
	l := LeaderInfo{Revision: o.revision}
	for _, kv := range o.keys {
		if l.None() || ticketOf(&kv).Before(rule.Ticket{Revision: l.Since, Key: l.Key}) {
			l.Key, l.Value, l.Lease, l.Since = kv.Key, kv.Value, kv.Lease, kv.CreateRevision
		}
	}
	return l
}
