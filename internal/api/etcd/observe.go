package etcd

import (
	"context"

	"leasehold.dev/internal/api"
	pb "leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// Observe implements v3electionpb.ElectionServer. It follows one ordered stream of all events of
// the election, and computes the leader after each revision. So it never reports a candidate that
// did not lead, and omits no leader (T17).
func (s *electionService) Observe(
	r *pb.LeaderRequest, stream pb.Election_ObserveServer,
) error {
	ctx, cancel := until(stream.Context(), s.stop)
	defer cancel()
	if err := s.node.Confirm(ctx); err != nil {
		return api.ReadError(why(ctx, err))
	}
	o := &observer{service: s, stream: stream, prefix: queuePrefix(r.Name)}
	for {
		again, err := o.follow(ctx, s.node.View())
		if err != nil || !again {
			return err
		}
	}
}

// observer is one open stream.
type observer struct {
	service *electionService
	stream  pb.Election_ObserveServer
	prefix  string
	keys    map[string]*mvcc.KeyValue // the candidates, the leader among them
	sent    *mvcc.KeyValue            // the last pair sent to the client
}

// follow sends the client every leader from view v on. again is true if the next revision was
// compacted before it was read, so that a new view is needed.
func (o *observer) follow(ctx context.Context, v *fsm.View) (again bool, err error) {
	if err := readable(ctx, v, o.prefix, prefixEnd(o.prefix)); err != nil {
		return false, err
	}
	o.keys = make(map[string]*mvcc.KeyValue)
	for kv := range v.KV.Ascend(o.prefix, prefixEnd(o.prefix), 0) {
		o.keys[kv.Key] = kv
	}
	rev := v.KV.Revision()
	if err := o.tell(rev); err != nil {
		return false, err
	}
	w := o.service.node.Watches().NewStream()
	defer w.Close()
	_, err = w.Watch(watch.Request{Key: o.prefix, End: prefixEnd(o.prefix), From: rev + 1})
	if err != nil {
		return false, api.Error(err)
	}
	for {
		b, err := w.Next(ctx)
		switch {
		case err != nil:
			return false, api.Error(err)
		case b.Err != nil:
			return true, nil
		}
		if err := o.apply(b.Events); err != nil {
			return false, err
		}
	}
}

// apply applies whole revisions, and sends the outcome of each.
func (o *observer) apply(events []*api.Event) error {
	for i, e := range events {
		if e.IsDelete() {
			delete(o.keys, e.Key())
		} else {
			o.keys[e.Key()] = e.Change().KV
		}
		if i+1 < len(events) && events[i+1].Revision() == e.Revision() {
			continue
		}
		if err := o.tell(e.Revision()); err != nil {
			return err
		}
	}
	return nil
}

// tell sends the leader as of a revision, unless the client has it already. If there is no leader,
// it sends nothing: the response cannot express that.
func (o *observer) tell(revision int64) error {
	var first *mvcc.KeyValue
	for _, kv := range o.keys {
		if first == nil || older(kv, first) {
			first = kv
		}
	}
	if first == nil || first == o.sent ||
		o.sent != nil && first.ModRevision == o.sent.ModRevision && first.Key == o.sent.Key {
		return nil
	}
	s := o.service
	v := s.node.View()
	if err := readable(o.stream.Context(), v, o.prefix, prefixEnd(o.prefix)); err != nil {
		return err
	}
	o.sent = first
	return o.stream.Send(&pb.LeaderResponse{
		Header: s.headerAt(v, revision), Kv: pair(first),
	})
}
