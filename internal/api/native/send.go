package native

import (
	"context"
	"errors"
	"io"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
)

const (
	// maxResponses limits the number of responses in a message. maxMessage approximately limits its
	// size in bytes.
	maxResponses = 512
	maxMessage   = 256 << 10
)

// sendBuffers contains memory that the sending goroutine reuses.
type sendBuffers struct {
	batch    []*request // requests being answered
	answered []*request // answered requests, ready for reuse
	ahead    int        // requests in this message that have no response yet
	replies  []putReply // unused replies
}

// Serve implements intercept.Session. It sends until the stream ends or pauses. The first message
// identifies the leader.
func (t *stream) Serve() (paused bool, err error) {
	t.pauses.remove(t)
	if t.leader == nil {
		t.changed = t.node.AccessChanged()
		if err := t.sendLeader(); err != nil {
			return false, err
		}
	}
	for {
		if err := t.reviewIfChanged(); err != nil {
			return false, err
		}
		if over, err := t.flush(); over || err != nil {
			return false, err
		}
		if t.pause() {
			return true, nil
		}
		if err := t.waitForNews(); err != nil {
			return false, err
		}
	}
}

// waitForNews waits until there may be something to send. An error ends the stream.
func (t *stream) waitForNews() error {
	var watched <-chan struct{}
	if f := t.feeds.Load(); f != nil {
		watched = f.watches.hub.Ready()
	}
	select {
	case <-t.waker.woken:
	case <-watched:
	case <-t.leader:
		return t.sendLeader()
	case <-t.changed: // handled by reviewIfChanged
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-t.o.Stop:
		return api.Error(api.ErrStopped)
	}
	return nil
}

// reviewIfChanged reviews the caller's permissions if users or roles have changed. An error ends
// the stream. It must run before anything is sent, so that the client receives this error and not
// an error caused by it.
func (t *stream) reviewIfChanged() error {
	select {
	case <-t.changed:
		t.changed = t.node.AccessChanged()
		return t.review()
	default:
		return nil
	}
}

// flush sends everything that is ready. It reports whether the stream has ended.
func (t *stream) flush() (over bool, err error) {
	t.mu.Lock()
	t.batch, t.done = t.done, t.batch[:0]
	end, isDue := t.end, t.look.isDue
	t.look.isDue = false
	t.mu.Unlock()
	more, err := t.sendAll(t.batch)
	if err != nil {
		return false, err
	}
	if over, err := t.over(end); over {
		return true, err
	}
	if more {
		t.waker.wake() // first send the outcomes that have arrived in the meantime
	}
	if isDue {
		t.lookNow(time.Now())
	}
	return false, nil
}

// over reports whether the stream has ended. This is the case when the client has finished sending
// and all its requests have been answered.
func (t *stream) over(end error) (bool, error) {
	switch {
	case end == nil:
		return false, nil
	case !errors.Is(end, io.EOF):
		return true, end
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) == 0 && len(t.done) == 0, nil
}

// sendAll sends the outcomes of requests, followed by a message with responses from the feeds. more
// reports whether the feeds may have more responses.
func (t *stream) sendAll(batch []*request) (more bool, err error) {
	defer t.release()
	v := t.node.View()
	m, size := &pb.ServerMessage{}, 0
	now := t.o.Slow.now()
	for i, q := range batch {
		batch[i] = nil
		t.ahead = len(batch) - i
		if q == nil || t.runRest(q) {
			continue
		}
		if q.sent != nil {
			defer notify(q.sent)
		}
		alone := q.keys > 0 && q.err == nil
		if alone {
			if len(m.Responses) > 0 {
				if err := t.sendOne(m, size, batch[i+1:]); err != nil {
					return false, err
				}
				m, size = &pb.ServerMessage{}, 0
			}
			if err := t.awaitRoom(q.keys, batch[i+1:]); err != nil {
				return false, err
			}
			defer listen.Made(t.ctx)
			v = t.node.View()
		}
		r := t.outcome(q, v)
		if r == nil {
			continue
		}
		t.ended(q, now)
		if m.Responses == nil {
			m.Responses = make([]*pb.Response, 0, min(len(batch)-i, maxResponses))
		}
		n := wire.ResponseSize(r)
		if n > t.o.maxAnswer {
			r, n = t.refuse(q, n), 0
		}
		m.Responses = append(m.Responses, r)
		if size += n; size < maxMessage && len(m.Responses) < maxResponses && !alone {
			continue
		}
		if err := t.sendOne(m, size, batch[i+1:]); err != nil {
			return false, err
		}
		m, size = &pb.ServerMessage{}, 0
	}
	if size, more, err = t.addFromFeeds(m, size); err != nil {
		return false, err
	}
	if len(m.Responses) == 0 {
		notify(t.left)
		return false, nil
	}
	return more, t.sendOne(m, size, nil)
}

// sendOne sends a message. rest contains the requests that will be answered after it. sendOne first
// makes room for more requests, because sending may block.
func (t *stream) sendOne(m *pb.ServerMessage, size int, rest []*request) error {
	notify(t.left)
	if size >= largeMessage {
		return t.sendLarge(m, size, rest)
	}
	listen.Ready(t.ctx, size) // small messages do not wait for room
	return t.grpc.Send(m)
}

// outcome creates the response to a request. It returns nil if the request has already been
// answered.
func (t *stream) outcome(q *request, v *fsm.View) *pb.Response {
	switch {
	case q.wait != nil && q.err == nil:
		return t.firstOutcome(q, v)
	case q.more:
		if !t.isOpen(q.id) {
			return nil
		}
		return q.respond(v)
	case !t.leave(q.id):
		return nil
	case q.wait != nil:
		t.feeds.Load().waits.drop(q.id)
		return q.respond(v)
	}
	r := q.respond(v)
	if q.cancel == nil {
		t.answered = append(t.answered, q) // safe to reuse, because no goroutine refers to it
	}
	return r
}

// putReply returns an empty reply. If several are needed, it allocates them together.
func (t *sendBuffers) putReply() *putReply {
	if len(t.replies) == 0 {
		t.replies = make([]putReply, min(max(t.ahead, 1), maxReplies))
	}
	r := &t.replies[0]
	t.replies = t.replies[1:]
	return r
}

// maxReplies limits the number of replies that share an allocation.
const maxReplies = 16

// release returns answered requests to their pool.
func (t *stream) release() {
	for _, q := range t.answered {
		*q = request{}
		requests.Put(q)
	}
	clear(t.answered)
	t.answered = t.answered[:0]
}
