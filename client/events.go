package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// EventsOptions say which events of leases are wanted: those of leases that meet all that
// is set.
type EventsOptions struct {
	// After is the number of the last event that is known already; 0 asks for what happens
	// from now on, unless Resume is set.
	After uint64
	// Resume says that After is what a Seq was, also if that was 0: then there had been no
	// event in the cluster, and the first is told.
	Resume bool
	// NamePrefix is how the lease's name begins, and Owner whose it is, or was before it
	// was handed over.
	NamePrefix, Owner string
	// Labels are those that the lease has, perhaps among others.
	Labels map[string]string
	// ExpiringWithin asks for notice, too, when a lease that nobody renews has no more than
	// this left. It counts in whole milliseconds, and is rounded up.
	ExpiringWithin time.Duration
}

// LeaseEventKind says what happened to a lease.
type LeaseEventKind int32

// The kinds of events.
const (
	LeaseGranted = LeaseEventKind(pb.LeaseEvent_KIND_GRANTED)
	// LeaseExpired leaves the name and the keys until LeaseReleased, if the lease has a
	// lock delay.
	LeaseExpired    = LeaseEventKind(pb.LeaseEvent_KIND_EXPIRED)
	LeaseRevoked    = LeaseEventKind(pb.LeaseEvent_KIND_REVOKED)
	LeaseHandedOver = LeaseEventKind(pb.LeaseEvent_KIND_HANDED_OVER)
	LeaseResumed    = LeaseEventKind(pb.LeaseEvent_KIND_RESUMED)
	LeaseTTLChanged = LeaseEventKind(pb.LeaseEvent_KIND_TTL_CHANGED)
	LeaseReleased   = LeaseEventKind(pb.LeaseEvent_KIND_RELEASED)
	// LeaseExpiring and LeaseRenewed are told only if that was asked for. They are advice:
	// they may come late, twice, or not at all if the client moves between members.
	LeaseExpiring = LeaseEventKind(pb.LeaseEvent_KIND_EXPIRING)
	LeaseRenewed  = LeaseEventKind(pb.LeaseEvent_KIND_RENEWED)
	// LeaseCacheSlow says that a write waits for the lease's cache, since Waited, and
	// LeaseCacheSlowEnded that no write waits any more. They are advice as well, and every
	// watcher is told: a new watcher is first told which caches are slow then. If it is told
	// that a cache is slow, it is told the end too, also if the client moves between members.
	LeaseCacheSlow      = LeaseEventKind(pb.LeaseEvent_KIND_CACHE_SLOW)
	LeaseCacheSlowEnded = LeaseEventKind(pb.LeaseEvent_KIND_CACHE_SLOW_ENDED)
)

// String is the kind for people.
func (k LeaseEventKind) String() string {
	switch k {
	case LeaseGranted:
		return "granted"
	case LeaseExpired:
		return "expired"
	case LeaseRevoked:
		return "revoked"
	case LeaseHandedOver:
		return "handed over"
	case LeaseResumed:
		return "resumed"
	case LeaseTTLChanged:
		return "ttl changed"
	case LeaseReleased:
		return "released"
	case LeaseExpiring:
		return "expiring"
	case LeaseRenewed:
		return "renewed"
	case LeaseCacheSlow:
		return "cache slow"
	case LeaseCacheSlowEnded:
		return "cache slow ended"
	default:
		return fmt.Sprintf("unknown event %d", int32(k))
	}
}

// LeaseEvent is something that happened to a lease.
type LeaseEvent struct {
	// Seq numbers the events of the cluster; 0 for LeaseExpiring, LeaseRenewed, LeaseCacheSlow
	// and LeaseCacheSlowEnded.
	Seq  uint64
	Kind LeaseEventKind
	// Lease is the lease as it was then, without its keys. Remaining is told by
	// LeaseExpiring alone.
	Lease LeaseInfo
	// By is who revoked it, or who owned it before it was handed over.
	By string
	// Revision is the store's when it happened.
	Revision int64
	// Waited is for how long a write had waited, with LeaseCacheSlow and LeaseCacheSlowEnded.
	Waited time.Duration
}

// LeaseUpdate is events in the order in which they happened.
type LeaseUpdate struct {
	// Seq is the number up to which all has been told: to go on after, elsewhere or later.
	Seq    uint64
	Events []LeaseEvent
}

// LeaseWatcher is a stream of events that goes on until it is closed, whatever becomes of
// members and streams. Next may be called from one goroutine at a time, Close from any.
type LeaseWatcher struct {
	resumable
	ask EventsOptions

	// Guarded by mu.
	after  uint64 // up to which all is in the queue, or was told
	queue  []LeaseUpdate
	events int // of the queue
	// slow are the last words on caches that are slow, as far as was told.
	slow map[slowCache]LeaseEvent
}

// slowCache names a lease in the hands of one holder.
type slowCache struct {
	id    lease.ID
	token lease.Token
}

// LeaseEvents follows what happens to leases. When it returns, the stream has begun: it
// tells all from then on, or after the event asked for. If that is not known any more it
// fails with [ErrCompacted]. The context is for the beginning; Close ends the stream.
func (c *Client) LeaseEvents(ctx context.Context, ask EventsOptions) (*LeaseWatcher, error) {
	ask.Labels = maps.Clone(ask.Labels)
	w := &LeaseWatcher{ask: ask, after: ask.After}
	w.resumable = resumable{mux: c.mux, of: w, ready: make(chan struct{}, 1)}
	_, err := c.check(w.requestLocked()) // nobody else has it yet
	if err == nil {
		err = w.start()
	}
	if err == nil {
		if err = w.await(ctx); err != nil {
			w.Close()
		}
	}
	if err != nil {
		return nil, fault.In("client: events of leases", "", err)
	}
	return w, nil
}

// Next returns the next events, and waits until there are some. An error other than the
// context's is the end of the stream: [ErrCompacted], if events that were not told are not
// known any more, and the program lists the leases to find out; [ErrClosed], after Close.
func (w *LeaseWatcher) Next(ctx context.Context) (LeaseUpdate, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 && !errors.Is(w.err, ErrClosed) {
			u := w.queue[0]
			w.queue[0] = LeaseUpdate{}
			w.queue = w.queue[1:]
			w.events -= len(u.Events)
			again := len(w.queue) == 0 && w.full
			w.full = w.full && !again
			w.mu.Unlock()
			if again {
				w.again()
			}
			return u, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return LeaseUpdate{}, fault.In("client: events of leases", "", err)
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return LeaseUpdate{}, fault.Cause(ctx)
		}
	}
}

// Seq returns the number up to which Next has told all: a program that begins anew goes on
// after it.
func (w *LeaseWatcher) Seq() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return w.queue[0].before()
	}
	return w.after
}

// before returns a number below which all was told before the update.
func (u *LeaseUpdate) before() uint64 {
	for i := range u.Events {
		if seq := u.Events[i].Seq; seq > 0 {
			return seq - 1
		}
	}
	return u.Seq
}

// Updates yields what Next returns, until that fails; the error is yielded last. It does not close
// the stream.
func (w *LeaseWatcher) Updates(ctx context.Context) iter.Seq2[LeaseUpdate, error] {
	return all(ctx, w.Next)
}

// Close ends the stream.
func (w *LeaseWatcher) Close() { w.close() }

func (w *LeaseWatcher) requestLocked() *pb.Request {
	return &pb.Request{Body: &pb.Request_Events{Events: &pb.EventsRequest{
		After: w.after, Resume: w.ask.Resume || w.begun,
		NamePrefix: w.ask.NamePrefix, Owner: w.ask.Owner, Labels: w.ask.Labels,
		ExpiringWithinMs: msUp(w.ask.ExpiringWithin),
	}}}
}

func (w *LeaseWatcher) lostLocked() {}

func (w *LeaseWatcher) endedLocked(error) {}

// toldLocked takes what a member tells.
func (w *LeaseWatcher) toldLocked(r *pb.Response, first bool) bool {
	m := r.GetEvents()
	if m == nil || !r.More {
		return false
	}
	if first {
		w.begun = true
		notify(w.ready)
	}
	w.after = max(w.after, m.Seq)
	events := make([]LeaseEvent, len(m.Events))
	for i, e := range m.Events {
		events[i] = LeaseEvent{
			Seq: e.Seq, Kind: LeaseEventKind(e.Kind), Lease: infoOf(e.Lease), By: e.By,
			Revision: e.Revision, Waited: time.Duration(e.WaitedMs) * time.Millisecond,
		}
	}
	if events = w.followSlowLocked(events, first); len(events) == 0 || w.err != nil {
		return true
	}
	u := LeaseUpdate{Seq: w.after, Events: events}
	w.queue = append(w.queue, u)
	if w.events += len(u.Events); w.events >= maxEvents {
		w.tooMuchLocked()
	}
	notify(w.ready)
	return true
}

// followSlowLocked follows which caches are slow, and returns the events without those that the
// program knows. The first response of a stream has all that are slow: of others that were, the
// end was told meanwhile, or at another member.
func (w *LeaseWatcher) followSlowLocked(list []LeaseEvent, first bool) []LeaseEvent {
	had := w.slow
	if first {
		w.slow = nil
	}
	kept := list[:0]
	for _, e := range list {
		cache := slowCache{e.Lease.ID, e.Lease.Token}
		switch _, known := had[cache]; {
		case e.Kind == LeaseCacheSlow:
			if w.slow == nil {
				w.slow = make(map[slowCache]LeaseEvent)
			}
			if w.slow[cache] = e; known {
				continue
			}
		case e.Kind == LeaseCacheSlowEnded:
			delete(w.slow, cache)
		}
		kept = append(kept, e)
	}
	if !first {
		return kept
	}
	var ended []LeaseEvent
	for cache, e := range had {
		if _, still := w.slow[cache]; !still {
			e.Kind = LeaseCacheSlowEnded
			ended = append(ended, e)
		}
	}
	slices.SortFunc(ended, func(a, b LeaseEvent) int {
		return cmp.Or(cmp.Compare(a.Lease.ID, b.Lease.ID), cmp.Compare(a.Lease.Token, b.Lease.Token))
	})
	return append(ended, kept...)
}
