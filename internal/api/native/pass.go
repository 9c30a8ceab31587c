package native

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
)

const (
	// largeMessage is the minimum size, in bytes, of messages that can be overtaken.
	largeMessage = 64 << 10
	// maxUrgent is the approximate maximum size of messages that overtake, so that they need not
	// wait.
	maxUrgent = 16 << 10
)

// sendLarge sends a large message. It first sends the responses that would be too late after the
// message: renewals, because otherwise a lease could end while the client still reads large
// responses on the same stream; and invalidations, because otherwise writes would wait for that
// client. It takes them from the message, from the requests in rest, which follow the message, and
// from those that finish before there is room for the message. The message may become empty.
//
// An invalidation may overtake an answer: the client does not cache the result of a read in
// progress if an invalidation covers it.
func (t *stream) sendLarge(m *pb.ServerMessage, size int, rest []*request) error {
	stay := make(staying)
	urgent, passed := t.takeUrgent(m, stay)
	if len(m.Responses) == 0 {
		return t.sendSmall(urgent)
	}
	ready := listen.Ready(t.ctx, size-passed)
	urgent = append(urgent, t.takeRenewals(rest, t.node.View(), stay)...)
	if err := t.sendUrgent(ready, urgent, stay); err != nil {
		return err
	}
	return t.grpc.Send(m)
}

// awaitRoom waits until there is room for a response of about this many keys, before the response
// is made. Meanwhile it sends urgent responses, as sendLarge does.
func (t *stream) awaitRoom(keys int64, rest []*request) error {
	ready := listen.Making(t.ctx, keys)
	if ready == nil {
		return nil
	}
	stay := make(staying)
	return t.sendUrgent(ready, t.takeRenewals(rest, t.node.View(), stay), stay)
}

// sendUrgent sends urgent responses, including those that arrive before a message is ready to be
// sent. The channel is nil if the message is ready already.
func (t *stream) sendUrgent(
	ready <-chan struct{}, urgent []*pb.Response, stay staying,
) error {
	var waits []*request
	defer func() {
		t.mu.Lock()
		t.done = append(waits, t.done...)
		t.mu.Unlock()
		t.waker.wake()
	}()
	for {
		t.mu.Lock()
		done := t.done
		t.done = nil // so that the next one wakes this goroutine again
		t.mu.Unlock()
		urgent = append(urgent, t.takeRenewals(done, t.node.View(), stay)...)
		for _, q := range done {
			if q != nil {
				waits = append(waits, q)
			}
		}
		if err := t.review(); err != nil {
			return err
		}
		if err := t.sendSmall(append(urgent, t.cacheNews()...)); err != nil || ready == nil {
			return err
		}
		urgent = nil
		select {
		case <-ready:
			return nil
		case <-t.waker.woken:
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-t.o.Stop:
			return api.Error(api.ErrStopped)
		}
	}
}

// takeUrgent removes the responses that may overtake from a large message, up to a number of bytes.
func (t *stream) takeUrgent(
	large *pb.ServerMessage, stay staying,
) (urgent []*pb.Response, passed int) {
	others := large.Responses[:0]
	for _, r := range large.Responses {
		if r.GetCache() != nil || stay.passes(r.Id, r.GetRenew()) {
			passed += wire.ResponseSize(r)
			urgent = append(urgent, shortened(r))
		} else {
			others = append(others, r)
		}
	}
	clear(large.Responses[len(others):])
	large.Responses = others
	return urgent, passed
}

// cacheNews returns the pending invalidations of caches.
func (t *stream) cacheNews() (news []*pb.Response) {
	f := t.feeds.Load()
	if f == nil {
		return nil
	}
	for {
		r := f.caches.next()
		if r == nil {
			return news
		}
		if !(r.More && f.guard.Refused(r.Id)) && !t.hasEnded(r) {
			news = append(news, shortened(r))
		}
	}
}

// shortened returns r, or if it is too large to overtake, a response that tells the cache to drop
// everything.
func shortened(r *pb.Response) *pb.Response {
	if m := r.GetCache(); m != nil && proto.Size(m) >= maxUrgent {
		m.Drop = rangeMessages([]keyrange.Range{keyrange.All})
	}
	return r
}

// takeRenewals removes the renewals that may overtake from the requests to be answered, and returns
// their responses.
func (t *stream) takeRenewals(
	from []*request, v *fsm.View, stay staying,
) (out []*pb.Response) {
	for i, q := range from {
		if q == nil || q.err != nil {
			continue
		}
		if q.renewals != nil && t.runRest(q) {
			from[i] = nil
			continue
		}
		if m, ok := q.response.(*pb.RenewResponse); !ok || !stay.passes(q.id, m) {
			continue
		}
		from[i] = nil
		if r := t.outcome(q, v); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// staying holds the requests that have a part of their answer in or behind a large message.
type staying map[uint64]bool

// passes reports whether a part of an answer is a small renewal whose earlier parts have passed.
// Parts keep their order: the first lists the leases that the others refer to, and the last marks
// the end.
func (s staying) passes(id uint64, m *pb.RenewResponse) bool {
	about := len(m.GetJoined())+len(m.GetGroups()) > 0
	if m == nil || s[id] || about && s[aboutGroups] {
		return false
	}
	if proto.Size(m) < maxUrgent {
		return true
	}
	s[id] = true
	if about {
		s[aboutGroups] = true
	}
	return false
}

// aboutGroups is not a request's ID. It is in staying if an answer about groups stays behind, so
// that no later one overtakes it.
const aboutGroups = 0

// sendSmall sends responses in small messages.
func (t *stream) sendSmall(responses []*pb.Response) error {
	for len(responses) > 0 {
		m, size := &pb.ServerMessage{}, 0
		for len(responses) > 0 && size < maxUrgent {
			m.Responses = append(m.Responses, responses[0])
			size += wire.ResponseSize(responses[0])
			responses = responses[1:]
		}
		if err := t.sendOne(m, size, nil); err != nil {
			return err
		}
	}
	return nil
}
