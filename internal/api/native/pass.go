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
	// largeMessage is the minimum size, in bytes, of a message that other responses can overtake.
	largeMessage = 64 << 10
	// maxUrgent is the approximate maximum size, in bytes, of a message that overtakes a large one.
	// Such a message can be sent without waiting for room.
	maxUrgent = 16 << 10
)

// sendLarge sends a large message. It first sends the urgent responses, which would arrive too late
// behind the message. Renewals are urgent because a lease could end while its client is still
// reading large responses on the same stream. Invalidations are urgent because writes would have to
// wait for that client.
//
// Urgent responses can come from the message itself, from the requests in rest, which follow the
// message, and from requests that finish before there is room for the message. The message may
// become empty.
//
// An invalidation may safely overtake a read result. The client does not cache the result of a read
// in progress if an invalidation covers it.
func (t *stream) sendLarge(m *pb.ServerMessage, size int, rest []*request) error {
	stay := make(blocked)
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

// awaitRoom waits until there is room for a response of about this many keys. The response is
// created only afterwards. While waiting, awaitRoom sends urgent responses, as sendLarge does.
func (t *stream) awaitRoom(keys int64, rest []*request) error {
	ready := listen.Making(t.ctx, keys)
	if ready == nil {
		return nil
	}
	stay := make(blocked)
	return t.sendUrgent(ready, t.takeRenewals(rest, t.node.View(), stay), stay)
}

// sendUrgent sends urgent responses, including those that arrive before the large message is ready
// to be sent. The channel is nil if the message is already ready.
func (t *stream) sendUrgent(
	ready <-chan struct{}, urgent []*pb.Response, stay blocked,
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
		t.done = nil // so that the next completed request wakes this goroutine again
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

// takeUrgent removes from a large message the responses that may overtake it. It returns them and
// their total size in bytes.
func (t *stream) takeUrgent(
	large *pb.ServerMessage, stay blocked,
) (urgent []*pb.Response, passed int) {
	others := large.Responses[:0]
	for _, r := range large.Responses {
		if r.GetCache() != nil || stay.mayOvertake(r.Id, r.GetRenew()) {
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

// cacheNews returns the pending invalidations for caches.
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

// shortened returns r. If r is too large to overtake, it first replaces r's invalidations with one
// that drops everything.
func shortened(r *pb.Response) *pb.Response {
	if m := r.GetCache(); m != nil && proto.Size(m) >= maxUrgent {
		m.Drop = rangeMessages([]keyrange.Range{keyrange.All})
	}
	return r
}

// takeRenewals removes, from the requests awaiting a response, the renewals that may overtake a
// large message. It returns their responses.
func (t *stream) takeRenewals(
	from []*request, v *fsm.View, stay blocked,
) (out []*pb.Response) {
	for i, q := range from {
		if q == nil || q.err != nil {
			continue
		}
		if q.renewals != nil && t.runRest(q) {
			from[i] = nil
			continue
		}
		if m, ok := q.response.(*pb.RenewResponse); !ok || !stay.mayOvertake(q.id, m) {
			continue
		}
		from[i] = nil
		if r := t.outcome(q, v); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// blocked contains the IDs of requests for which part of the response is in or behind a large
// message.
type blocked map[uint64]bool

// mayOvertake reports whether part of a response may overtake: it must be a small renewal, and no
// earlier part may have stayed behind. Parts must stay in order: the first part lists the leases
// that later parts refer to, and the last part marks the end.
func (s blocked) mayOvertake(id uint64, m *pb.RenewResponse) bool {
	about := len(m.GetJoined())+len(m.GetGroups()) > 0
	if m == nil || s[id] || about && s[groupsID] {
		return false
	}
	if proto.Size(m) < maxUrgent {
		return true
	}
	s[id] = true
	if about {
		s[groupsID] = true
	}
	return false
}

// groupsID is not a request ID. It is added to blocked when a response about groups stays
// behind, so that no later response about groups overtakes it.
const groupsID = 0

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
