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
	// maxEvents bounds the events of one response, maxMessage its bytes, about.
	maxEvents = 512
	// progressEvery is after how many events that are not of interest a client is told how
	// far it has come, and progressAfter how long after one of them: so that it need not
	// begin anew if it goes on elsewhere.
	progressEvery = 1024
	progressAfter = 10 * time.Second
)

// Events implements pb.LeasesServer.
func (s *leases) Events(r *pb.EventsRequest, out pb.LeaseService_EventsServer) error {
	return s.ended(out.Context(), s.events(out.Context(), r, out.Send))
}

// events tells of events until the context, or the member, ends, or send returns an error.
// Send may take its time: nothing gathers meanwhile, and nobody waits for it.
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
		return invalid("expiring_within_ms must not be below 0, but is %d", r.ExpiringWithinMs)
	}
	if err := checkText("name_prefix", r.NamePrefix); err != nil {
		return err
	}
	if err := checkText("owner", r.Owner); err != nil {
		return err
	}
	return checkLabels(r.Labels)
}

// events is one stream of events. It keeps nothing but its place: it reads what the
// views have, at its own pace, and is told that it is too late if that is gone.
type events struct {
	*leases
	request  *pb.EventsRequest
	send     func(*pb.EventsResponse) error
	wake     chan struct{} // capacity 1: there may be something new
	at       uint64        // number of the last event that was looked at
	told     uint64        // the last number that the client was told
	slow     slowTold
	expiring *expiring // nil if that is not of interest
	ctx      context.Context
	asker    asker // by the users and roles of the last view
}

// look takes the users and roles of a view. An error ends the events: the asker has to log in
// again.
func (e *events) look(v *fsm.View) error {
	a := askerOf(e.ctx, v)
	if err := a.known(); err != nil {
		return err
	}
	e.asker = a
	return nil
}

// may reports whether a lease may be told.
func (e *events) may(i *lease.Info) bool { return e.asker.all() || e.asker.sees(i) }

// begin finds the place to begin at. Another member may have told of more than this one
// knows yet: after a confirm round it knows as much.
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
	return e.tell(v, e.slow.changes(e)) // a client takes these for all that are slow now
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
			if e.at != e.told {
				if err := e.tell(e.node.View(), nil); err != nil {
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

// pass tells all there is to tell now.
func (e *events) pass(ctx context.Context) error {
	for {
		v := e.node.View()
		if err := e.look(v); err != nil {
			return err
		}
		if e.expiring != nil {
			// First, since a silent lease may have ended since, but not the reverse.
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
				if err := e.tell(v, list); err != nil {
					return err
				}
			}
			return e.tellExpiring(ctx, v)
		}
		list := e.choose(piece)
		if len(list) == 0 && e.at-e.told < progressEvery {
			continue
		}
		if err := e.tell(v, list); err != nil {
			return err
		}
	}
}

// choose converts those of the events that are of interest, as many of the first as a
// response holds, and moves on.
func (e *events) choose(piece []fsm.LeaseEvent) []*pb.LeaseEvent {
	var list []*pb.LeaseEvent
	size := 0
	for i := range piece {
		x := &piece[i]
		e.at = x.Seq
		if e.expiring != nil && over[x.Kind] {
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

// tellExpiring tells who will end soon, when all events are told.
func (e *events) tellExpiring(ctx context.Context, v *fsm.View) error {
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
		if err := e.tell(v, piece); err != nil {
			return err
		}
	}
	return nil
}

func (e *events) tell(v *fsm.View, list []*pb.LeaseEvent) error {
	e.told = e.at
	return e.send(&pb.EventsResponse{
		Header: e.header(v, v.KV.Revision()), Events: list, Seq: e.at,
	})
}

// idle is for how long there will be nothing to tell, if nothing happens.
func (e *events) idle() time.Duration {
	wait := progressAfter
	if e.expiring != nil {
		if ms, ok := e.expiring.wait(); ok && ms < lease.TTL(wait.Milliseconds()) {
			wait = time.Duration(ms) * time.Millisecond
		}
	}
	return wait
}

// wants reports whether a lease is of interest: for its owner, or who owned it before it
// was handed over.
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

// over are the events after which a lease is no more.
var over = map[fsm.LeaseEventKind]bool{fsm.LeaseExpired: true, fsm.LeaseRevoked: true}
