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
	// halfCloseTimeout is how long to wait, once the request of a single-request call has arrived,
	// for the client to signal that it has finished sending.
	halfCloseTimeout = 100 * time.Millisecond

	// largeMessage is the minimum size of messages that count toward mostLarge.
	largeMessage = 64 << 10
	mostLarge    = 512 << 20
	// A call with a large request ends if the member does not accept the request in time, because
	// other calls need the memory. The timeout is patience plus one second for every leastRate
	// bytes.
	patience  = 20 * time.Second
	leastRate = 1 << 20
)

var (
	errCrowded = status.Error(codes.ResourceExhausted, "leasehold: too many large messages are "+
		"waiting in the relay; use smaller requests, and read responses as they arrive")
	errNotAccepted = status.Error(codes.Unavailable, "leasehold: the member did not accept the "+
		"request in time")
	errStopping  = status.Error(codes.Unavailable, "leasehold: the relay is stopping; use another one")
	errAbandoned = errors.New("the client abandoned the call")
)

// streams returns the description of the stream service. Its streams do not need HTTP/2, and its
// handlers relay them.
func (r *Relay) streams() *grpc.ServiceDesc {
	d := pb.StreamService_ServiceDesc
	d.Streams = slices.Clone(d.Streams)
	for i, s := range d.Streams {
		method := "/" + d.ServiceName + "/" + s.StreamName
		d.Streams[i].Handler = func(_ any, s grpc.ServerStream) error { return r.carryTo(method, s) }
	}
	return &d
}

// carry relays a call of any method to a member.
func (r *Relay) carry(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	return r.carryTo(method, s)
}

func (r *Relay) carryTo(method string, s grpc.ServerStream) error {
	r.count.calls.Inc()
	r.count.open.Inc()
	defer r.count.open.Dec()
	// no member has such a method, and the protocol could not encode it
	if !utf8.ValidString(method) {
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
	defer c.End(&pb.RelayEnd{}) // already ended, but the channel may still hold messages
	kept := r.answers.Kept(s.Context())
	c.Count(kept.Add)
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	p := &relayedCall{
		stream: s, channel: c, ctx: ctx, end: cancel, large: r.large, read: make(chan struct{}),
		renewals: r.count.renewals, kept: kept,
	}
	streams := method == pb.StreamService_Open_FullMethodName
	if streams {
		p.keeping = w.keeping
		defer w.keeping.begin(c, kept.Add)()
	}
	if streams || method == pb.StoreService_Watch_FullMethodName {
		p.watches = &watching{
			merger: r.merger, upstream: w, call: call, ctx: ctx, fail: cancel, stream: streams,
			wake: make(chan struct{}, 1), turns: make(chan struct{}, maxTurns),
		}
		defer p.watches.close()
	}
	// When the relay drains, a call in progress still gets its response. A stream has to be
	// stopped, because it would not end on its own.
	defer context.AfterFunc(r.draining, p.stop)()
	defer context.AfterFunc(r.drained, func() { cancel(errStopping) })()
	go p.up()
	err = p.down()
	if err == nil && r.draining.Err() != nil && !p.isHalfClosed() {
		return errStopping
	}
	return err
}

// relayedCall is a call in progress.
type relayedCall struct {
	stream     grpc.ServerStream
	channel    *channel.Channel
	ctx        context.Context
	end        context.CancelCauseFunc
	large      *semaphore.Weighted // weighted by bytes
	sent       atomic.Bool         // the first message has been sent completely
	stopping   atomic.Bool         // the relay is stopping
	halfClosed atomic.Bool         // the client has finished sending
	read       chan struct{}       // closed when nothing more will be read from the client
	keeping    *keeping            // answers renewals; nil if the call cannot contain any
	renewals   prometheus.Counter  // counts the renewals that keeping answers
	watches    *watching           // nil if the call cannot have watches to merge
	kept       *listen.Kept
}

// stop makes the member end a stream that would not end on its own. The first message is always
// sent, because it may be the entire call.
func (p *relayedCall) stop() {
	p.stopping.Store(true)
	if p.sent.Load() {
		p.closeSend()
	}
}

// isHalfClosed reports whether the client has finished sending. A call with a single request
// signals this together with the request, but the signal may not have been read yet.
func (p *relayedCall) isHalfClosed() bool {
	t := time.NewTimer(halfCloseTimeout)
	defer t.Stop()
	select {
	case <-p.read:
	case <-t.C:
	}
	return p.halfClosed.Load()
}

// up relays messages from the client until the call ends.
func (p *relayedCall) up() {
	defer close(p.read)
	for {
		var m message
		switch err := p.stream.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			p.halfClosed.Store(true)
			p.closeSend()
			return
		case err != nil:
			return // the context also ends
		}
		if !p.renew(m.bytes) && p.sendUp(p.watches.up(m.bytes)) != nil {
			return // down will return the error
		}
		p.sent.Store(true)
		if p.stopping.Load() {
			p.closeSend()
		}
	}
}

// closeSend signals that the client has finished sending.
func (p *relayedCall) closeSend() {
	if p.keeping == nil {
		p.channel.CloseSend()
		return
	}
	p.keeping.closeSend(p.channel)
}

// renew queues a renewal for a round. It returns false if that is not possible.
func (p *relayedCall) renew(message []byte) bool {
	if p.keeping == nil || !p.keeping.renew(p.channel, message) {
		return false
	}
	p.renewals.Inc()
	return true
}

func (p *relayedCall) sendUp(b []byte) error {
	queued, sent, err := p.kept.Hold(p.ctx, len(b))
	if err != nil {
		p.end(err)
		return err
	}
	defer sent()
	release, err := p.hold(len(b))
	if err != nil {
		p.end(err)
		return err
	}
	defer release()
	if len(b) > largeMessage {
		t := time.AfterFunc(patience+time.Duration(len(b)/leastRate)*time.Second,
			func() { p.end(errNotAccepted) })
		defer t.Stop()
	}
	return p.channel.SendPieces(p.ctx, b, queued)
}

func (p *relayedCall) sendDown(m *message) error {
	release, err := p.hold(m.Size())
	if err != nil {
		return err
	}
	defer release()
	return p.stream.SendMsg(m)
}

// hold reserves memory for a message that is waiting for the other side. release frees the memory.
func (p *relayedCall) hold(bytes int) (release func(), err error) {
	if bytes <= largeMessage {
		return func() {}, nil
	}
	room := int64(min(bytes, mostLarge))
	if !p.large.TryAcquire(room) {
		return nil, errCrowded
	}
	return func() { p.large.Release(room) }, nil
}

// down relays messages from the member until the member ends the call.
func (p *relayedCall) down() error {
	headerSent := false
	for {
		b, err := p.channel.RecvOr(p.ctx, p.watches.news())
		if h := p.channel.Header(); h != nil && !headerSent {
			headerSent = true
			fields := fieldsOf(h.Headers)
			if len(fields[relayed.KeyKnown]) > 0 {
				listen.MarkLoggedIn(p.stream.Context())
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
		if err := p.sendWatchMessages(); err != nil {
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

// sendWatchMessages sends pending messages of merged watches.
func (p *relayedCall) sendWatchMessages() error {
	for _, m := range p.watches.take() {
		if err := p.sendDown(&m); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends a call that the client has abandoned.
func (p *relayedCall) giveUp(why error) error {
	p.channel.End(&pb.RelayEnd{Code: int32(codes.Canceled), Message: errAbandoned.Error()})
	if _, ok := status.FromError(why); ok {
		return why
	}
	return status.FromContextError(why).Err()
}

// lost returns the error for a client's call after the connection to its member was lost.
func lost(why error) error {
	return status.Errorf(codes.Unavailable, "leasehold: %v", why)
}

// callOf returns the description of a call to send to the member.
func callOf(ctx context.Context, method string) *pb.RelayCall {
	call := &pb.RelayCall{Method: method, Address: api.Address(ctx)}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, list := range md {
		if strings.HasPrefix(name, ":") || strings.HasPrefix(name, "grpc-") || name == "content-type" {
			continue // it belongs to the connection
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

// statusOf returns the status of an ended call.
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

// message is an encoded message of any type. It consists of two parts. Several messages can share
// the second part.
type message struct{ bytes, body []byte }

// Size returns the size that counts toward the limit on unread responses.
func (m *message) Size() int { return len(m.bytes) + len(m.body) }

// codec passes encoded messages through unchanged.
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
