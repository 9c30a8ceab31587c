package native

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/wire"
)

// feed serves the requests of a stream that have responses until they are cancelled. Its
// methods are called by any goroutine, next by one. It calls wake, or has a channel of its
// own in stream.send, when there is something new to say.
type feed interface {
	// end ends a request, if there is one with this ID; what next returns of it last has
	// more unset.
	end(id uint64)
	// refuse is end with a reason, which is told.
	refuse(id uint64, why error)
	// next returns what is to be told next, nil if nothing is.
	next() *pb.Response
}

// feeds are those of a stream, and what they share. Most streams do nothing but renew, so they are
// made when one of them is needed first.
type feeds struct {
	watches *watches
	caches  *caches
	waits   *waits
	guard   *api.Guard // of what is open at them

	// What follows belongs to what sends.
	list  []feed // all of them; their order is of no importance
	asked int    // the one that was asked last
}

// needFeeds returns the feeds. It is for what receives.
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
		f.close() // nobody else does
	}
	t.waker.wake() // what sends has not waited for them
	return f
}

// close ends all that is open, as the stream ends, and what is begun later.
func (f *feeds) close() {
	f.caches.close()
	f.waits.close()
	f.watches.hub.Close()
}

// serves notes which feed has a request.
func (t *stream) serves(q *request, f feed) {
	t.mu.Lock()
	q.feed = f
	t.mu.Unlock()
}

// next returns what some feed has to tell next. They take turns.
func (f *feeds) next() *pb.Response {
	for range f.list {
		f.asked = (f.asked + 1) % len(f.list)
		if r := f.list[f.asked].next(); r != nil {
			return r
		}
	}
	return nil
}

// tell adds to a message of some size what the feeds have to say. It returns the size, and whether
// it added anything. It is only one message, so that no feed keeps answers waiting.
func (t *stream) tell(m *pb.ServerMessage, size int) (_ int, told bool, err error) {
	f := t.feeds.Load()
	for f != nil && size < maxMessage && len(m.Responses) < maxResponses {
		r := f.next()
		if r == nil {
			break
		}
		if err := t.review(); err != nil {
			return size, told, err
		}
		t.opened(r)
		if r.More && f.guard.Refused(r.Id) || t.hasEnded(r) {
			continue
		}
		m.Responses = append(m.Responses, r)
		size += wire.ResponseSize(r)
		told = true
	}
	return size, told, nil
}

// review ends the open requests whose caller may not go on with them. What a feed tells was
// published with, or after, the view that decides: so a stream that reviews after it took something
// out of a feed knows what may be told of it. An error ends the stream: the caller has to log in
// again.
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

// opened ends the trace of a request that lasts, if it has one: with the first of its responses.
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

// hasEnded reports whether what a feed tells is the end of a request that a cancel has ended
// meanwhile.
func (t *stream) hasEnded(r *pb.Response) bool { return !r.More && !t.leave(r.Id) }

// maxFollowing bounds the requests for events of a stream.
const maxFollowing = 64

// follow serves a request for events on a goroutine of its own. It tells one response at a
// time: the next is made when that was sent.
func (t *stream) follow(q *request, r *pb.EventsRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return nil // nobody is there to be answered
	}
	if t.calls.following == maxFollowing {
		return invalid("a stream has at most %d requests for events", maxFollowing)
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
			err = nil // the client does not want more
		}
		t.mu.Lock()
		t.followsLocked(q, false)
		t.mu.Unlock()
		q.answer(&pb.EventsResponse{}, err)
	})
	return nil
}

// followsLocked counts a request for events, or counts it no more. A client that cancels
// one may begin another at once, whenever the goroutine of the first ends.
func (t *stream) followsLocked(q *request, counts bool) {
	switch {
	case counts:
		t.calls.following++
	case q.counts:
		t.calls.following--
	}
	q.counts = counts
}
