package native

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

const (
	// maxEvents limits the number of events in one response. maxMessage approximately limits its
	// size in bytes.
	maxEvents = 512
	// A client receives a response without events after progressEvery events that do not match its
	// request, or when progressAfter has passed since the first of them. The response lets the
	// client resume at another member.
	progressEvery = 1024
	progressAfter = 10 * time.Second
)

// Events implements pb.LeaseServiceServer.
func (s *leases) Events(r *pb.EventsRequest, out pb.LeaseService_EventsServer) error {
	return s.ended(out.Context(), s.events(out.Context(), r, out.Send))
}

// events sends lease events until the context ends, the member stops, or send returns an error. If
// send blocks, events do not queue up.
func (s *leases) events(
	ctx context.Context, r *pb.EventsRequest, send func(*pb.EventsResponse) error,
) error {
	if err := checkEvents(r); err != nil {
		return err
	}
	e := &events{
		leases: s, request: r, send: send, wake: make(chan struct{}, 1), ctx: ctx,
	}
	if err := e.look(s.node.View()); err != nil {
		return err
	}
	if r.ExpiringWithinMs > 0 {
		e.expiring = newExpiring(s.node, r, func(i *lease.Info) bool { return e.wants(i, "") })
		e.expiring.may = e.may
	}
	defer s.node.OnLeaseNews(func() { notify(e.wake) })()
	if err := e.begin(ctx); err != nil {
		return err
	}
	return e.run(ctx)
}

func checkEvents(r *pb.EventsRequest) error {
	if r.ExpiringWithinMs < 0 {
		return invalid("expiring_within_ms must not be negative: %d", r.ExpiringWithinMs)
	}
	if err := checkText("name_prefix", r.NamePrefix); err != nil {
		return err
	}
	if err := checkText("owner", r.Owner); err != nil {
		return err
	}
	return checkLabels(r.Labels)
}

// events is one stream of lease events. It stores only its position and reads the events from views
// at its own pace. If a view no longer contains the next event, the stream ends with an error.
type events struct {
	*leases
	request    *pb.EventsRequest
	send       func(*pb.EventsResponse) error
	wake       chan struct{} // capacity 1: there may be news
	at         uint64        // number of the last event read
	sent       uint64        // number of the last event reported to the client
	slow       slowReported
	expiring   *expiring // nil unless requested
	ctx        context.Context
	authorizer authorizer // uses the users and roles of the latest view
}

// look adopts the users and roles of a view. An error ends the stream, and the caller must log in
// again.
func (e *events) look(v *fsm.View) error {
	a := authorizerOf(e.ctx, v)
	if err := a.checkLogin(); err != nil {
		return err
	}
	e.authorizer = a
	return nil
}

// may reports whether the caller may see a lease.
func (e *events) may(i *lease.Info) bool { return e.authorizer.seesAll() || e.authorizer.maySee(i) }

// begin determines the start position. Another member may have sent events that this member has not
// applied yet. A confirm round lets this member catch up.
func (e *events) begin(ctx context.Context) error {
	v := e.node.View()
	if e.at = e.request.After; e.at == 0 && !e.request.Resume {
		e.at = v.LeaseEvents.Last()
	}
	if e.at > v.LeaseEvents.Last() {
		if err := e.node.Inspect(ctx, func(*lease.Lessor) {}); err != nil {
			return err
		}
		v = e.node.View()
	}
	if _, err := v.LeaseEvents.After(e.at); err != nil {
		return err
	}
	if err := e.look(v); err != nil {
		return err
	}
	return e.respond(v, e.slow.changes(e)) // the first call of changes returns all slow caches
}

func (e *events) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := e.node.AccessChanged()
		if err := e.pass(ctx); err != nil {
			return err
		}
		timer.Reset(e.idle())
		select {
		case <-e.wake:
		case <-changed:
		case <-timer.C:
			if e.at != e.sent {
				if err := e.respond(e.node.View(), nil); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.o.Stop:
			return api.ErrStopped
		}
	}
}

// pass sends all events that are available so far.
func (e *events) pass(ctx context.Context) error {
	for {
		v := e.node.View()
		if err := e.look(v); err != nil {
			return err
		}
		if e.expiring != nil {
			// Do this before reading the events, so that the end of a silent lease is never missed.
			if err := e.expiring.follow(ctx, v); err != nil {
				return err
			}
		}
		piece, err := v.LeaseEvents.After(e.at)
		if err != nil {
			return err
		}
		if len(piece) == 0 {
			if list := e.slow.changes(e); len(list) > 0 {
				if err := e.respond(v, list); err != nil {
					return err
				}
			}
			return e.respondExpiring(ctx, v)
		}
		list := e.choose(piece)
		if len(list) == 0 && e.at-e.sent < progressEvery {
			continue
		}
		if err := e.respond(v, list); err != nil {
			return err
		}
	}
}

// choose converts matching events, up to the limits of one response, and sets at to the last event
// that it looked at.
func (e *events) choose(piece []fsm.LeaseEvent) []*pb.LeaseEvent {
	var list []*pb.LeaseEvent
	size := 0
	for i := range piece {
		x := &piece[i]
		e.at = x.Seq
		if e.expiring != nil && endKinds[x.Kind] {
			e.expiring.ended(&x.Info)
		}
		before := ""
		if x.Kind == fsm.LeaseHandedOver {
			before = x.By
		}
		if !e.wants(&x.Info, before) || !e.may(&x.Info) {
			continue
		}
		m := &pb.LeaseEvent{
			Seq: x.Seq, Kind: eventTypes[x.Kind], Lease: api.LeaseMessage(&x.Info),
			By: x.By, Revision: x.Revision,
		}
		list = append(list, m)
		if size += proto.Size(m); len(list) == maxEvents || size >= maxMessage {
			break
		}
	}
	return list
}

// respondExpiring sends the leases that will end soon. It is called once all events have been sent.
func (e *events) respondExpiring(ctx context.Context, v *fsm.View) error {
	if e.expiring == nil {
		return nil
	}
	list, err := e.expiring.take(ctx)
	if err == nil {
		err = e.look(e.node.View())
	}
	if err != nil {
		return err
	}
	list = e.expiring.permitted(list)
	for piece := range slices.Chunk(list, maxEvents) {
		if err := e.respond(v, piece); err != nil {
			return err
		}
	}
	return nil
}

func (e *events) respond(v *fsm.View, list []*pb.LeaseEvent) error {
	e.sent = e.at
	return e.send(&pb.EventsResponse{
		Header: e.header(v, v.KV.Revision()), Events: list, Seq: e.at,
	})
}

// idle returns how long there will be nothing to send, assuming that nothing new happens.
func (e *events) idle() time.Duration {
	wait := progressAfter
	if e.expiring != nil {
		if ms, ok := e.expiring.wait(); ok && ms < lease.TTL(wait.Milliseconds()) {
			wait = time.Duration(ms) * time.Millisecond
		}
	}
	return wait
}

// wants reports whether a lease matches the request. If the lease was handed over, either the old
// or the new owner may match.
func (e *events) wants(i *lease.Info, before string) bool {
	r := e.request
	if !strings.HasPrefix(i.Name, r.NamePrefix) {
		return false
	}
	if r.Owner != "" && r.Owner != i.Owner && r.Owner != before {
		return false
	}
	for k, v := range r.Labels {
		if have, ok := i.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

var eventTypes = map[fsm.LeaseEventKind]pb.LeaseEvent_Kind{
	fsm.LeaseGranted:    pb.LeaseEvent_KIND_GRANTED,
	fsm.LeaseExpired:    pb.LeaseEvent_KIND_EXPIRED,
	fsm.LeaseReleased:   pb.LeaseEvent_KIND_RELEASED,
	fsm.LeaseRevoked:    pb.LeaseEvent_KIND_REVOKED,
	fsm.LeaseHandedOver: pb.LeaseEvent_KIND_HANDED_OVER,
	fsm.LeaseResumed:    pb.LeaseEvent_KIND_RESUMED,
	fsm.LeaseTTLChanged: pb.LeaseEvent_KIND_TTL_CHANGED,
}

// endKinds contains the kinds of events that end a lease.
var endKinds = map[fsm.LeaseEventKind]bool{fsm.LeaseExpired: true, fsm.LeaseRevoked: true}
