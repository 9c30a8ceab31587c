package native

import (
	"context"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/wire"
)

// maxRenewals bounds the bytes, about, of renewals in one message, so that it has not to wait.
const maxRenewals = 16 << 10

// sendRenewals sends renewals until there is room for a large message: those in it, those of the
// rest that is to be sent after it, and those that are answered meanwhile. A lease would end if its
// renewal waited until a client has read what others ask for on the same stream.
func (t *stream) sendRenewals(
	ready <-chan struct{}, large *pb.ServerMessage, rest []*request,
) error {
	var renewals []*pb.Response
	stay := make(staying)
	others := large.Responses[:0]
	for _, r := range large.Responses {
		if stay.passes(r.Id, r.GetRenew()) {
			renewals = append(renewals, r)
		} else {
			others = append(others, r)
		}
	}
	clear(large.Responses[len(others):])
	large.Responses = others
	renewals = append(renewals, t.takeRenewals(rest, t.node.View(), stay)...)
	var waits []*request
	defer func() {
		t.mu.Lock()
		t.done = append(waits, t.done...)
		t.mu.Unlock()
		notify(t.wake)
	}()
	for {
		if err := t.sendSmall(renewals); err != nil {
			return err
		}
		select {
		case <-ready:
			return nil
		case <-t.wake:
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-t.o.Stop:
			return api.Error(api.ErrStopped)
		}
		t.mu.Lock()
		done := t.done
		t.done = nil // so that the next one wakes this goroutine again
		t.mu.Unlock()
		renewals = t.takeRenewals(done, t.node.View(), stay)
		for _, q := range done {
			if q != nil {
				waits = append(waits, q)
			}
		}
	}
}

// takeRenewals takes the renewals that pass out of what is to be sent, and returns their responses.
func (t *stream) takeRenewals(
	from []*request, v *fsm.View, stay staying,
) (out []*pb.Response) {
	for i, q := range from {
		if q == nil || q.err != nil {
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

// staying are the requests of whose answers a part stays behind a large message.
type staying map[uint64]bool

// passes reports whether a part of an answer is a renewal that is small itself, and no part before
// it stays. Parts keep their order: the first says which leases the others are about, and the last
// that nothing more is to be told.
func (s staying) passes(id uint64, m *pb.RenewResponse) bool {
	if m == nil || s[id] {
		return false
	}
	if proto.Size(m) < maxRenewals {
		return true
	}
	s[id] = true
	return false
}

// sendSmall sends responses in small messages.
func (t *stream) sendSmall(responses []*pb.Response) error {
	for len(responses) > 0 {
		m, size := &pb.ServerMessage{}, 0
		for len(responses) > 0 && size < maxRenewals {
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
