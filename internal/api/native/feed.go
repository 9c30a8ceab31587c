package native

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/wire"
)

// A feed serves the requests of a stream that have responses until they are canceled. One goroutine
// calls next; any goroutine may call the other methods. When next has something to return, the feed
// wakes the stream.
type feed interface {
	// end ends the request with this ID, if there is one. In its last response, more is not set.
	end(id uint64)
	// refuse ends a request like end, with an error for the client.
	refuse(id uint64, why error)
	// next returns the next response, or nil.
	next() *pb.Response
}

// feeds are the feeds of a stream. Most streams only renew, so feeds are made when they are first
// needed.
type feeds struct {
	watches *watches
	caches  *caches
	waits   *waits
	guard   *api.Guard // of their open requests

	// These belong to the sending goroutine.
	list     []feed // all of them, in any order
	lastFeed int    // the index of the feed whose next was called last
}

// needFeeds returns the feeds, and makes them if necessary. The receiving goroutine calls it.
func (t *stream) needFeeds() *feeds {
	f := t.feeds.Load()
	if f != nil {
		return f
	}
	f = &feeds{
		watches: newWatches(t.store), caches: newCaches(t.node, t.waker.wake),
		waits: newWaits(t.store, t.waker.wake), guard: newGuard(t.ctx, t.node),
	}
	f.list = []feed{f.waits, f.watches, f.caches}
	t.mu.Lock()
	t.feeds.Store(f)
	closing := t.closing
	t.mu.Unlock()
	if closing {
		f.close() // close, which ran before, did not see them
	}
	t.waker.wake() // the sender must start to wait for them
	return f
}

// close ends all open requests when the stream ends, and all that begin later.
func (f *feeds) close() {
	f.caches.close()
	f.waits.close()
	f.watches.hub.Close()
}

// serves records which feed serves a request.
func (t *stream) serves(q *request, f feed) {
	t.mu.Lock()
	q.feed = f
	t.mu.Unlock()
}

// next returns the next response of any feed. The feeds take turns.
func (f *feeds) next() *pb.Response {
	for range f.list {
		f.lastFeed = (f.lastFeed + 1) % len(f.list)
		if r := f.list[f.lastFeed].next(); r != nil {
			return r
		}
	}
	return nil
}

// addFromFeeds adds responses of the feeds to a message, and reports whether it added any. It takes
// and returns the size of the message. It fills only one message, so that feeds do not delay the
// outcomes of other requests.
func (t *stream) addFromFeeds(m *pb.ServerMessage, size int) (_ int, added bool, err error) {
	f := t.feeds.Load()
	for f != nil && size < maxMessage && len(m.Responses) < maxResponses {
		r := f.next()
		if r == nil {
			break
		}
		if err := t.review(); err != nil {
			return size, added, err
		}
		t.opened(r)
		if r.More && f.guard.Refused(r.Id) || t.hasEnded(r) {
			continue
		}
		m.Responses = append(m.Responses, r)
		size += wire.ResponseSize(r)
		added = true
	}
	return size, added, nil
}

// review ends the open requests for which the caller no longer has permission. A view that
// withdraws a permission is published no later than the events that the permission covered. So a
// stream that reviews after it took a response from a feed knows whether it may send it. An error
// ends the stream: the caller must log in again.
func (t *stream) review() error {
	f := t.feeds.Load()
	var list []api.Lost
	var err error
	if f != nil {
		list, err = f.guard.Review()
	} else {
		err = t.asker(t.ctx).known()
	}
	if err != nil {
		return api.NativeError(err, api.ReadReason(err))
	}
	for _, l := range list {
		t.mu.Lock()
		q := t.open[l.ID]
		t.mu.Unlock()
		if q != nil && q.feed != nil {
			q.feed.refuse(l.ID, l.Why)
		}
	}
	return nil
}

// opened ends the trace of a lasting request, if there is one, at its first response.
func (t *stream) opened(r *pb.Response) {
	if t.o.Trace == nil {
		return
	}
	t.mu.Lock()
	q := t.open[r.Id]
	t.mu.Unlock()
	if q == nil || q.trace == nil {
		return
	}
	err := error(nil)
	if e := r.GetError(); e != nil {
		err = api.MessageError(e)
	}
	q.trace.End(err)
}

// hasEnded reports whether a response is the last one of a request that has ended already.
func (t *stream) hasEnded(r *pb.Response) bool { return !r.More && !t.leave(r.Id) }

// maxFollowing bounds the requests for lease events of a stream.
const maxFollowing = 64

// follow serves a request for lease events on its own goroutine. It makes a response when the
// one before has been sent.
func (t *stream) follow(q *request, r *pb.EventsRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return nil // the stream has ended
	}
	if t.calls.following == maxFollowing {
		return invalid("a stream can have at most %d requests for lease events", maxFollowing)
	}
	t.followsLocked(q, true)
	ctx, cancel := context.WithCancel(t.callsLocked())
	q.cancel = cancel
	t.calls.Go(func() {
		defer cancel()
		sent := make(chan struct{}, 1)
		_, err := t.guarded(ctx, func(ctx context.Context) (proto.Message, error) {
			return nil, t.leases.events(ctx, r, func(m *pb.EventsResponse) error {
				q.deliver(m, sent)
				select {
				case <-sent:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		})
		if ctx.Err() != nil {
			err = nil // canceled
		}
		t.mu.Lock()
		t.followsLocked(q, false)
		t.mu.Unlock()
		q.answer(&pb.EventsResponse{}, err)
	})
	return nil
}

// followsLocked starts or stops counting a request for lease events. A cancel stops it at once, so
// that the client can start another before the goroutine of the first has ended.
func (t *stream) followsLocked(q *request, counts bool) {
	switch {
	case counts:
		t.calls.following++
	case q.counts:
		t.calls.following--
	}
	q.counts = counts
}
