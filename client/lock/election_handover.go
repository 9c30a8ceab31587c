package lock

import (
	"context"
	"errors"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// succession makes a chosen candidate the leader. It belongs to one goroutine.
type succession struct {
	election *Election
	standing standing
	queue    waitQueue
}

func (e *Election) succession() *succession {
	return &succession{
		election: e,
		standing: standing{client: e.client, name: e.name},
		queue:    waitQueue{prefix: e.name + "/"},
	}
}

// prefer prefers the candidate with the given ID, if it exists, and returns its lease.
func (s *succession) prefer(ctx context.Context, id string) (lease.ID, error) {
	if err := s.standing.read(ctx); err != nil {
		return 0, err
	}
	heir := s.standing.byID(id)
	if heir == nil {
		return 0, ErrNoCandidate
	}
	return heir.lease, s.election.Prefer(ctx, id)
}

// awaitNext waits until a candidate is next in the queue after the leader with the given create
// revision. It returns client.ErrLost if that leader no longer leads.
func (s *succession) awaitNext(ctx context.Context, id string, leader int64) error {
	c := s.standing.client
	for {
		r, err := c.Range(ctx, s.queue.all())
		if err == nil {
			// read after the queue, so that every one of our entries in the queue is a known
			// candidate
			err = s.standing.read(ctx)
		}
		if err != nil {
			return err
		}
		list, _ := s.queue.sort(r.KVs, "")
		heir := s.standing.byID(id)
		switch {
		case len(list) == 0 || list[0].CreateRevision != leader:
			return client.ErrLost
		case heir == nil:
			return ErrNoCandidate
		case len(list) > 1 && list[1].Lease == heir.lease:
			return nil
		case len(list) > 1 && !s.standing.stands(list[1].Lease):
			// It is a candidate using etcd's client, unless one of ours has just withdrawn.
			kv, err := c.Get(ctx, list[1].Key)
			if err == nil && kv.CreateRevision == list[1].CreateRevision {
				return ErrNoCandidate
			}
			continue
		}
		err = either(ctx, s.standing.next, func(ctx context.Context) error {
			return awaitChange(ctx, c, s.queue.all(), r.Revision)
		})
		if err != nil {
			return err
		}
	}
}

// depose makes a candidate the leader, regardless of who leads now.
func (e *Election) depose(ctx context.Context, id string) error {
	s := e.succession()
	defer s.standing.close()
	heir, err := s.prefer(ctx, id)
	for err == nil {
		var now LeaderInfo
		if now, err = e.Leader(ctx); err != nil || now.Lease == heir {
			return err
		}
		if now.None() {
			err = awaitChange(ctx, e.client, s.queue.all(), now.Revision)
			continue
		}
		switch err = s.awaitNext(ctx, id, now.Since); {
		case err == nil:
			own := store.Key(now.Key).CreateRevision(store.Equal, now.Since)
			_, err = ownKey{now.Key, own}.remove(ctx, e.client.Txn)
		case errors.Is(err, client.ErrLost):
			err = nil // the leader has changed; the candidate may be the new leader
		default: // the candidate may be missing because it leads
			if last, look := e.Leader(ctx); look == nil && last.Lease == heir {
				return nil
			}
		}
	}
	return err
}

// either runs two functions concurrently. When one returns, it cancels the other and waits for it.
func either(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error)
	for _, f := range []func(context.Context) error{a, b} {
		go func() { done <- f(ctx) }()
	}
	err := <-done
	cancel()
	<-done
	return err
}

// awaitChange waits for the first change in a range after a revision.
func awaitChange(ctx context.Context, c *client.Client, all store.Range, revision int64) error {
	w, err := c.WatchFrom(store.Watch{Key: all.Key, End: all.End, From: revision + 1})
	if err != nil {
		return err
	}
	defer w.Close()
	if _, err = w.Next(ctx); errors.Is(err, client.ErrCompacted) {
		return nil
	}
	return err
}
