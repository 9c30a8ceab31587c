package audit

import (
	"context"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/intercept"

	native "leasehold.dev/api/leasehold/v1"
)

// Stream is an intercept.Stream.
func (a *Recorder) Stream(
	stream grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	s := &auditedStream{
		ServerStream: stream, audit: a, call: info.FullMethod, single: !info.IsClientStream,
		ctx: stream.Context(),
	}
	s.from, s.trace = Text(api.Address(s.ctx)), traceOf(s.ctx)
	return s, s.ended, nil
}

// auditedStream is a stream whose requests and responses are recorded.
type auditedStream struct {
	grpc.ServerStream
	ctx    context.Context
	audit  *Recorder
	call   string
	single bool // the stream has only one request
	// from is the address that the stream comes from. trace is the ID of the trace that it was
	// opened in.
	from, trace Text

	mu      sync.Mutex // guards the fields below
	opening *Entry
	level   level // level of opening
	// requests contains the unanswered leasehold.v1 requests by ID.
	requests map[uint64]pending
	// watches contains the etcd API watches that have been requested but not yet created.
	watches []pending
}

// pending is an unanswered request.
type pending struct {
	entry    *Entry
	recorded bool // recorded even if it succeeds
}

// Context implements grpc.ServerStream.
func (s *auditedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *auditedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	recorded := false
	switch r := m.(type) {
	case *native.ClientMessage:
		for _, q := range r.GetRequests() {
			recorded = s.ask(q) || recorded
		}
	case *pb.WatchRequest:
		if c := r.GetCreateRequest(); c != nil {
			recorded = reads <= s.audit.level
			s.watches = append(s.watches, pending{entryOf(c), recorded})
		}
	default:
		s.level = levelOf(m)
		recorded = s.level <= s.audit.level
		if s.single {
			s.opening = entryOf(m)
		}
	}
	if recorded && s.audit.log.Ready() != nil {
		return errNoAudit
	}
	return nil
}

var requestBody = (*native.Request)(nil).ProtoReflect().Descriptor().Oneofs().ByName("body")

// bodyOf returns the message in a request, or nil if there is none.
func bodyOf(q *native.Request) any {
	f := q.ProtoReflect().WhichOneof(requestBody)
	if f == nil || f.Kind() != protoreflect.MessageKind {
		return nil
	}
	return q.ProtoReflect().Get(f).Message().Interface()
}

// ask tracks a request. It reports whether the request will be recorded even if it succeeds.
func (s *auditedStream) ask(q *native.Request) bool {
	body := bodyOf(q)
	level := levelOf(body)
	recorded := level <= s.audit.level
	// A request that would not be recorded if it succeeded is still tracked, because it could be
	// denied, unless access control is disabled.
	if body == nil || !recorded && !s.audit.member.View().Access.Enabled() {
		return false
	}
	e := entryOf(body)
	e.Call = Text(s.call) + "/" + Text(q.ProtoReflect().WhichOneof(requestBody).Name())
	if s.requests == nil {
		s.requests = make(map[uint64]pending)
	}
	s.requests[q.GetId()] = pending{e, recorded}
	return recorded
}

// SendMsg implements grpc.ServerStream.
func (s *auditedStream) SendMsg(m any) error {
	switch r := m.(type) {
	case *native.ServerMessage:
		for _, x := range r.GetResponses() {
			if err := s.answer(x); err != nil {
				return err
			}
		}
	case *pb.WatchResponse:
		if err := s.watch(r); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// answer records a request when it is answered.
func (s *auditedStream) answer(x *native.Response) error {
	s.mu.Lock()
	p, ok := s.requests[x.GetId()]
	if x.GetMore() {
		// More responses follow. Record the request now if its level requires that. From now on, it
		// is recorded again only if it is denied.
		if ok && p.recorded {
			s.requests[x.GetId()] = pending{entry: p.entry}
		}
	} else {
		delete(s.requests, x.GetId())
	}
	s.mu.Unlock()
	var err error
	if e := x.GetError(); e != nil {
		code := codes.Unknown
		switch e.GetReason() {
		case native.Reason_REASON_PERMISSION_DENIED:
			code = codes.PermissionDenied
		}
		err = status.Error(code, e.GetMessage())
	}
	if !ok || !p.recorded && !isDenied(err) {
		return nil
	}
	e := *p.entry
	e.Revision = revisionOf(answerOf(x))
	return s.record(&e, err)
}

var responseBody = (*native.Response)(nil).ProtoReflect().Descriptor().Oneofs().ByName("body")

// answerOf returns the message in a response, or nil if there is none.
func answerOf(x *native.Response) any {
	f := x.ProtoReflect().WhichOneof(responseBody)
	if f == nil {
		return nil
	}
	return x.ProtoReflect().Get(f).Message().Interface()
}

// watch records that an etcd API watch was created, or was denied, either right away or after its
// creation.
func (s *auditedStream) watch(r *pb.WatchResponse) error {
	p := pending{entry: new(Entry)}
	s.mu.Lock()
	if r.GetCreated() && len(s.watches) > 0 {
		p, s.watches = s.watches[0], s.watches[1:]
	}
	s.mu.Unlock()
	var err error
	if r.GetCanceled() && r.GetCancelReason() != "" {
		code := codes.Unknown
		if strings.Contains(r.GetCancelReason(), access.ErrPermissionDenied.Error()) ||
			strings.Contains(r.GetCancelReason(), "permission denied") {
			code = codes.PermissionDenied
		}
		err = status.Error(code, r.GetCancelReason())
	}
	if !(r.GetCreated() && p.recorded) && !isDenied(err) {
		return nil
	}
	p.entry.Revision = revisionOf(r)
	return s.record(p.entry, err)
}

// ended records a call that has a single request or was denied.
func (s *auditedStream) ended(err error) error {
	s.mu.Lock()
	e, recorded := s.opening, s.opening != nil && s.level <= s.audit.level
	s.mu.Unlock()
	if !recorded && !isDenied(err) {
		return err
	}
	if e == nil {
		e = new(Entry)
	}
	if s.record(e, err) != nil {
		return errNoAudit
	}
	return err
}

// record writes an entry for the stream.
func (s *auditedStream) record(e *Entry, err error) error {
	if e.Call == "" {
		e.Call = Text(s.call)
	}
	e.Principal, e.Address, e.Trace = principalOf(s.ctx), s.from, s.trace
	if s.audit.record(e, err) != nil {
		return errNoAudit
	}
	return nil
}
