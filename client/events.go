package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"sort"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// LeaseWatcher is a stream of lease events. It survives failures of members and connections, and
// lasts until it is closed. Next may be called by only one goroutine at a time. Close may be called
// by any goroutine.
type LeaseWatcher struct {
	resumable
	ask leases.Watch

	// Guarded by mu.
	after  uint64 // all events up to here have been queued or returned
	queue  []leases.Update
	events int // number of events in the queue
	// slow holds the latest event for each slow cache.
	slow map[slowCache]leases.Event
}

// slowCache identifies a slow cache by its lease and token.
type slowCache struct {
	id    lease.ID
	token lease.Token
}

// LeaseEvents starts a stream of lease events. The stream has begun when LeaseEvents returns: it
// delivers all events from then on, or all events after the requested one. If the cluster no longer
// has those events, LeaseEvents fails with [ErrCompacted]. The context applies only to starting the
// stream; Close ends it.
func (c *Client) LeaseEvents(ctx context.Context, ask leases.Watch) (*LeaseWatcher, error) {
	ask.Labels = maps.Clone(ask.Labels)
	w := &LeaseWatcher{ask: ask, after: ask.After}
	w.resumable = resumable{mux: c.mux, of: w, ready: make(chan struct{}, 1)}
	_, err := c.check(w.requestLocked()) // not shared yet
	if err == nil {
		err = w.start()
	}
	if err == nil {
		if err = w.await(ctx); err != nil {
			w.Close()
		}
	}
	if err != nil {
		return nil, fault.In("client: watch lease events", "", err)
	}
	return w, nil
}

// Next waits for the next events and returns them. Any error ends the stream, unless it only means
// that ctx has ended. The error is [ErrClosed] after Close, and [ErrCompacted] if the cluster no
// longer has the next events. After ErrCompacted, list the leases to get the current state.
func (w *LeaseWatcher) Next(ctx context.Context) (leases.Update, error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 && !errors.Is(w.err, ErrClosed) {
			u := w.queue[0]
			w.queue[0] = leases.Update{}
			w.queue = w.queue[1:]
			w.events -= len(u.Events)
			again := len(w.queue) == 0 && w.full
			w.full = w.full && !again
			w.mu.Unlock()
			if again {
				w.resume()
			}
			return u, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return leases.Update{}, fault.In("client: watch lease events", "", err)
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return leases.Update{}, fault.Cause(ctx)
		}
	}
}

// Seq returns the number of the last event returned by Next. A program that restarts can continue
// after that event.
func (w *LeaseWatcher) Seq() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return precedingSeq(&w.queue[0])
	}
	return w.after
}

// precedingSeq returns the number of the last event that precedes the update.
func precedingSeq(u *leases.Update) uint64 {
	for i := range u.Events {
		if seq := u.Events[i].Seq; seq > 0 {
			return seq - 1
		}
	}
	return u.Seq
}

// Updates yields the results of Next until it fails. The error is yielded last. Updates does not
// close the stream.
func (w *LeaseWatcher) Updates(ctx context.Context) iter.Seq2[leases.Update, error] {
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

// handleLocked handles a response from a member.
func (w *LeaseWatcher) handleLocked(r *pb.Response, first bool) bool {
	m := r.GetEvents()
	if m == nil || !r.More {
		return false
	}
	if first {
		w.begun = true
		notify(w.ready)
	}
	w.after = max(w.after, m.Seq)
	events := make([]leases.Event, len(m.Events))
	for i, e := range m.Events {
		events[i] = leases.Event{
			Seq: e.Seq, Kind: leases.Kind(e.Kind), Lease: infoOf(e.Lease), By: e.By,
			Revision: e.Revision, Waited: time.Duration(e.WaitedMs) * time.Millisecond,
		}
	}
	if events = w.followSlowLocked(events, first); len(events) == 0 || w.err != nil {
		return true
	}
	u := leases.Update{Seq: w.after, Events: events}
	w.queue = append(w.queue, u)
	if w.events += len(u.Events); w.events >= maxEvents {
		w.tooMuchLocked()
	}
	notify(w.ready)
	return true
}

// followSlowLocked tracks slow caches, and removes events that the program has already received.
// The first response of a stream lists all slow caches. If a cache that was slow is not on the
// list, it has recovered in the meantime, so followSlowLocked adds an event for that.
func (w *LeaseWatcher) followSlowLocked(list []leases.Event, first bool) []leases.Event {
	had := w.slow
	if first {
		w.slow = nil
	}
	kept := list[:0]
	for _, e := range list {
		cache := slowCache{e.Lease.ID, e.Lease.Token}
		switch _, known := had[cache]; {
		case e.Kind == leases.CacheSlow:
			if w.slow == nil {
				w.slow = make(map[slowCache]leases.Event)
			}
			if w.slow[cache] = e; known {
				continue
			}
		case e.Kind == leases.CacheSlowEnded:
			delete(w.slow, cache)
		}
		kept = append(kept, e)
	}
	if !first {
		return kept
	}
	var ended []leases.Event
	for cache, e := range had {
		if _, still := w.slow[cache]; !still {
			e.Kind = leases.CacheSlowEnded
			ended = append(ended, e)
		}
	}
	sort.Slice(ended, func(i, j int) bool {
		a, b := &ended[i].Lease, &ended[j].Lease
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Token, b.Token)) < 0
	})
	return append(ended, kept...)
}
