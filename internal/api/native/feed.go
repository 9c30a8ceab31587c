package native

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/wire"
)

// A feed serves the long-lived requests of a stream, which receive responses until they are
// canceled. Only one goroutine may call next. Any goroutine may call the other methods. A feed
// wakes the stream when next has something to return.
type feed interface {
	// end ends the request with the given ID, if there is one. In the last response to the
	// request, the field more is not set.
	end(id uint64)
	// refuse is end with an error for the client.
	refuse(id uint64, why error)
	// next returns the next response, or nil.
	next() *pb.Response
}

// feeds contains the feeds of a stream. They are created when first needed, because most streams
// only renew leases.
type feeds struct {
	watches *watches
	caches  *caches
	waits   *waits
	guard   *api.Guard // checks the permissions of their open requests

	// These fields belong to the sending goroutine.
	list     []feed // all feeds, in no particular order
	lastFeed int    // index of the feed whose next method was called last
}

// needFeeds returns the feeds, creating them if necessary. Only the receiving goroutine may call
// it.
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
		f.close() // close ran before the feeds existed and could not close them
	}
	t.waker.wake() // the sender must start waiting for the feeds
	return f
}

// close ends all open requests when the stream ends. Requests that begin later end immediately.
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

// next returns the next response from any feed. The feeds take turns.
func (f *feeds) next() *pb.Response {
	for range f.list {
		f.lastFeed = (f.lastFeed + 1) % len(f.list)
		if r := f.list[f.lastFeed].next(); r != nil {
			return r
		}
	}
	return nil
}

// addFromFeeds adds responses from the feeds to a message. It takes and returns the size of the
// message, and reports whether it added any responses. It never fills more than one message, so
// that feeds do not delay the outcomes of other requests.
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

// review ends the open requests for which the caller no longer has permission.
//
// A view that withdraws a permission is published no later than any event that the permission would
// have covered. So if a stream takes a response from a feed and then calls review, it knows whether
// it may send the response. An error ends the stream, and the caller must log in again.
func (t *stream) review() error {
	f := t.feeds.Load()
	var list []api.Lost
	var err error
	if f != nil {
		list, err = f.guard.Review()
	} else {
		err = t.authorizer(t.ctx).checkLogin()
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

// opened ends the trace of a long-lived request, if it has one, when the request gets its first
// response.
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

// hasEnded reports whether r is the final response to a request that has already ended.
func (t *stream) hasEnded(r *pb.Response) bool { return !r.More && !t.leave(r.Id) }

// maxFollowing limits the number of requests for lease events on one stream.
const maxFollowing = 64

// follow serves a request for lease events on a separate goroutine. The goroutine creates a
// response only after the previous one has been sent.
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
			err = nil // the request was canceled
		}
		t.mu.Lock()
		t.followsLocked(q, false)
		t.mu.Unlock()
		q.answer(&pb.EventsResponse{}, err)
	})
	return nil
}

// followsLocked starts or stops counting a request for lease events. A canceled request stops
// counting immediately, so the client can start another before the goroutine has ended.
func (t *stream) followsLocked(q *request, counts bool) {
	switch {
	case counts:
		t.calls.following++
	case q.counts:
		t.calls.following--
	}
	q.counts = counts
}
