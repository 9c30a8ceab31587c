package relay

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/listen"
)

const (
	// throughTime is how long the end of a request may take to be read after the request.
	throughTime = 100 * time.Millisecond

	// largeMessage is from which size on messages share the room of the relay, mostLarge.
	largeMessage = 64 << 10
	mostLarge    = 512 << 20
	// A call ends whose large request the member does not take within patience, and a second more
	// for each leastRate bytes: others need the room.
	patience  = 20 * time.Second
	leastRate = 1 << 20
)

var (
	errCrowded = status.Error(codes.ResourceExhausted, "leasehold: too many large messages wait "+
		"in the relay; send and ask for less at a time, and read answers as they come")
	errUntaken = status.Error(codes.Unavailable, "leasehold: the member did not take the request "+
		"in time")
	errStopping = status.Error(codes.Unavailable, "leasehold: the relay stops; go to another one")
	errGaveUp   = errors.New("the client has given the call up")
)

// streams describes the service whose streams need no HTTP/2, as they are carried.
func (r *Relay) streams() *grpc.ServiceDesc {
	d := pb.StreamService_ServiceDesc
	d.Streams = slices.Clone(d.Streams)
	for i, s := range d.Streams {
		method := "/" + d.ServiceName + "/" + s.StreamName
		d.Streams[i].Handler = func(_ any, s grpc.ServerStream) error { return r.carryTo(method, s) }
	}
	return &d
}

// carry carries a call of any method to a member.
func (r *Relay) carry(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	return r.carryTo(method, s)
}

func (r *Relay) carryTo(method string, s grpc.ServerStream) error {
	r.count.calls.Inc()
	r.count.open.Inc()
	defer r.count.open.Dec()
	if !utf8.ValidString(method) { // no member has one, and the protocol no room for it
		return status.Errorf(codes.Unimplemented, "unknown method %+q", method)
	}
	w, err := r.members.get(s.Context())
	if err != nil {
		return err
	}
	call := callOf(s.Context(), method)
	if listen.IsStranger(s.Context()) {
		call.Headers = append(call.Headers, &pb.RelayHeaderField{Name: relayed.KeyKnown})
	}
	c, err := w.Open(call)
	if err != nil {
		return lost(err)
	}
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	p := &passage{
		stream: s, channel: c, ctx: ctx, end: cancel, large: r.large, read: make(chan struct{}),
		renewals: r.count.renewals,
	}
	streams := method == pb.StreamService_Open_FullMethodName
	if streams {
		p.keeping = w.keeping
		defer w.keeping.begin(c)()
	}
	if streams || method == pb.StoreService_Watch_FullMethodName {
		p.watches = &watching{
			merger: r.merger, way: w, call: call, ctx: ctx, fail: cancel, stream: streams,
			wake: make(chan struct{}, 1), turns: make(chan struct{}, maxTurns),
		}
		defer p.watches.close()
	}
	// A call that has begun has its answers. A stream is not over by itself.
	defer context.AfterFunc(r.draining, p.stop)()
	defer context.AfterFunc(r.drained, func() { cancel(errStopping) })()
	go p.up()
	err = p.down()
	if err == nil && r.draining.Err() != nil && !p.isThrough() {
		return errStopping
	}
	return err
}

// passage is a call on its way.
type passage struct {
	stream   grpc.ServerStream
	channel  *channel.Channel
	ctx      context.Context
	end      context.CancelCauseFunc
	large    *semaphore.Weighted // for bytes
	sent     atomic.Bool         // the first message was, whole
	stopping atomic.Bool         // the relay is
	through  atomic.Bool         // the client sends nothing more
	read     chan struct{}       // closed when nothing more is read
	keeping  *keeping            // what answers renewals; nil if none may come
	renewals prometheus.Counter  // those that it answers
	watches  *watching           // nil if none may come that can be merged
}

// stop lets the member end a stream that is not over by itself. The first message is sent before:
// it may be all of the call.
func (p *passage) stop() {
	p.stopping.Store(true)
	if p.sent.Load() {
		p.closeSend()
	}
}

// isThrough reports whether the client sends nothing more, as it says with the request of a call
// that has only one. It may not have been read yet.
func (p *passage) isThrough() bool {
	t := time.NewTimer(throughTime)
	defer t.Stop()
	select {
	case <-p.read:
	case <-t.C:
	}
	return p.through.Load()
}

// up carries what the client sends, until the call ends.
func (p *passage) up() {
	defer close(p.read)
	for {
		var m message
		switch err := p.stream.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			p.through.Store(true)
			p.closeSend()
			return
		case err != nil:
			return // the context ends, too
		}
		if !p.renew(m.bytes) && p.sendUp(p.watches.up(m.bytes)) != nil {
			return // what comes down says why
		}
		p.sent.Store(true)
		if p.stopping.Load() {
			p.closeSend()
		}
	}
}

// closeSend says that the client sends nothing more.
func (p *passage) closeSend() {
	if p.keeping == nil {
		p.channel.CloseSend()
		return
	}
	p.keeping.closeSend(p.channel)
}

// renew lets a renewal wait for a round, if it may.
func (p *passage) renew(message []byte) bool {
	if p.keeping == nil || !p.keeping.renew(p.channel, message) {
		return false
	}
	p.renewals.Inc()
	return true
}

func (p *passage) sendUp(b []byte) error {
	release, err := p.hold(len(b))
	if err != nil {
		p.end(err)
		return err
	}
	defer release()
	if len(b) > largeMessage {
		t := time.AfterFunc(patience+time.Duration(len(b)/leastRate)*time.Second,
			func() { p.end(errUntaken) })
		defer t.Stop()
	}
	return p.channel.Send(p.ctx, b)
}

func (p *passage) sendDown(m *message) error {
	release, err := p.hold(m.Size())
	if err != nil {
		return err
	}
	defer release()
	return p.stream.SendMsg(m)
}

// hold takes the room of a message that waits for the other side, until it is released.
func (p *passage) hold(bytes int) (release func(), err error) {
	if bytes <= largeMessage {
		return func() {}, nil
	}
	room := int64(min(bytes, mostLarge))
	if !p.large.TryAcquire(room) {
		return nil, errCrowded
	}
	return func() { p.large.Release(room) }, nil
}

// down carries what the member answers, until it says how the call has ended.
func (p *passage) down() error {
	told := false
	for {
		b, err := p.channel.RecvOr(p.ctx, p.watches.news())
		if h := p.channel.Header(); h != nil && !told {
			told = true
			fields := fieldsOf(h.Headers)
			if len(fields[relayed.KeyKnown]) > 0 {
				listen.Vouch(p.stream.Context())
				delete(fields, relayed.KeyKnown)
			}
			if err := p.stream.SetHeader(fields); err != nil {
				return p.giveUp(err)
			}
			if err == nil {
				err = p.stream.SendHeader(nil)
			}
		}
		begun := p.watches.down(b)
		if err := p.sendTold(); err != nil {
			return p.giveUp(err)
		}
		switch {
		case errors.Is(err, channel.ErrOther):
			continue
		case errors.Is(err, io.EOF):
			if e := p.channel.Ended(); e != nil {
				p.stream.SetTrailer(fieldsOf(e.Trailers))
				return statusOf(e)
			}
			return lost(err)
		case errors.Is(err, channel.ErrLost):
			return lost(err)
		case err != nil:
			return p.giveUp(err)
		}
		if err := p.sendDown(&message{bytes: b}); err != nil {
			return p.giveUp(err)
		}
		p.watches.join(begun)
	}
}

// sendTold sends what is told of watches otherwise than by the channel.
func (p *passage) sendTold() error {
	for _, m := range p.watches.take() {
		if err := p.sendDown(&m); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends a call that nobody waits for.
func (p *passage) giveUp(why error) error {
	p.channel.End(&pb.RelayEnd{Code: int32(codes.Canceled), Message: errGaveUp.Error()})
	if _, ok := status.FromError(why); ok {
		return why
	}
	return status.FromContextError(why).Err()
}

// lost is what clients are told of a call whose member is lost.
func lost(why error) error {
	return status.Errorf(codes.Unavailable, "leasehold: %v", why)
}

// callOf is what is told of a call.
func callOf(ctx context.Context, method string) *pb.RelayCall {
	call := &pb.RelayCall{Method: method, Address: api.Address(ctx)}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, list := range md {
		if strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-") || name == "content-type" {
			continue // of the connection
		}
		for _, v := range list {
			call.Headers = append(call.Headers, &pb.RelayHeaderField{Name: name, Value: []byte(v)})
		}
	}
	if at, ok := ctx.Deadline(); ok {
		call.TimeoutMs = max(1, time.Until(at).Milliseconds())
	}
	if p, ok := peer.FromContext(ctx); ok {
		info, ok := p.AuthInfo.(credentials.TLSInfo)
		if chains := info.State.VerifiedChains; ok && len(chains) > 0 && len(chains[0]) > 0 {
			call.Certificate = chains[0][0].Raw
		}
	}
	return call
}

// statusOf is how a call has ended.
func statusOf(e *pb.RelayEnd) error {
	if len(e.Details) > 0 {
		p := new(statuspb.Status)
		if proto.Unmarshal(e.Details, p) == nil {
			return status.ErrorProto(p)
		}
	}
	return status.Error(codes.Code(e.Code), e.Message)
}

func fieldsOf(list []*pb.RelayHeaderField) metadata.MD {
	md := make(metadata.MD, len(list))
	for _, f := range list {
		md.Append(f.Name, string(f.Value))
	}
	return md
}

// message is a message of any kind, as it was encoded: in two parts, of which others may have the
// second, too.
type message struct{ bytes, body []byte }

// Size is for the account of what clients leave unread.
func (m *message) Size() int { return len(m.bytes) + len(m.body) }

// codec takes messages as they are.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*message); ok {
		out := mem.BufferSlice{mem.SliceBuffer(m.bytes)}
		if len(m.body) > 0 {
			out = append(out, mem.SliceBuffer(m.body))
		}
		return out, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		m.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
