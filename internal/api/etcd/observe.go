package etcd

import (
	"context"

	"leasehold.dev/internal/api"
	pb "leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// Observe implements v3electionpb.ElectionServer. It follows a single ordered stream of all the
// election's events and computes the leader after each revision. Therefore, it never reports a
// candidate that did not lead, and never skips a leader (T17).
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
	keys    map[string]*mvcc.KeyValue // the candidates, including the leader
	sent    *mvcc.KeyValue            // the last key-value pair sent to the client
}

// follow sends the client every leader, starting with view v. again is true if the next revision
// was compacted before it could be read. The caller must then start over with a new view.
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

// apply applies whole revisions and sends the resulting leader after each one.
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

// tell sends the leader as of a revision, unless the client already has it. If there is no leader,
// it sends nothing, because the response cannot express that.
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
