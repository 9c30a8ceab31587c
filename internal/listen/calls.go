package listen

import (
	"context"
	"runtime"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/intercept"
)

const (
	smallAnswer = 2 << 10  // smaller responses are not counted: 16,384 calls take at most 32 MiB
	largeAnswer = 64 << 10 // smaller stream messages do not wait
)

// call returns the call that belongs to a context.
func (all *Answers) call(ctx context.Context) call {
	r, ok := remoteOf(ctx)
	if r.sender == nil { // not a gRPC connection of a client
		if v := all.visit(ctx); v != nil {
			return call{Context: ctx, account: v.account, visit: v}
		}
	}
	if ok && r.account != nil && r.account.all == all {
		return call{Context: ctx, account: r.account}
	}
	if a, ok := ctx.Value(accountKey{}).(*account); ok { // gRPC over net/http
		return call{Context: ctx, account: a}
	}
	return call{Context: ctx, account: all.others}
}

// A call first serves as the context of a gRPC call. Later it carries the response, or the next
// message of a stream, to the codec.
type call struct {
	context.Context
	account   *account
	visit     *visit  // nil unless the call came through the JSON gateway
	making    *room   // nil unless the call has requested room for a response
	unread    *unread // for the message; nil until it is counted
	small     int     // bytes of small messages that have not been counted yet
	requested *room   // nil unless a large message of a stream has requested room
	known     bool    // whether the next message of the stream is known to be small
	message   any
}

type callKey struct{}

// Value implements context.Context.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Room waits until a unary call's connection has room for a response that could be large. The
// handler calls it when everything except the response is ready.
func Room(ctx context.Context) error { return RoomFor(ctx, 0) }

// RoomFor is Room for a response with approximately this many keys and their values.
func RoomFor(ctx context.Context, keys int64) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok || c.making != nil {
		return nil
	}
	c.making = c.account.guess(keys, true)
	return c.making.await(ctx)
}

// Unary returns an interceptor for unary calls. It must be the outermost one, except for that of
// [Requests]. inner, which may be nil, runs inside it.
func (all *Answers) Unary(inner grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		ctx, c := all.callIn(ctx)
		if err := c.account.enter(2 * all.mostOpen); err != nil {
			return nil, err
		}
		defer c.leave()
		resp, err := within(inner, ctx, req, info, next)
		if err != nil {
			return nil, err
		}
		if c.count(sizeOf(resp)) != nil {
			return nil, errUnread
		}
		c.message = resp
		return c, nil
	}
}

// callIn returns the record of a unary call, and a context in which RoomFor finds it.
func (all *Answers) callIn(ctx context.Context) (context.Context, *call) {
	if in := requestOf(ctx); in != nil && in.account != nil && in.account.all == all {
		in.answer = call{Context: ctx, account: in.account}
		return ctx, &in.answer
	}
	c := new(all.call(ctx))
	return c, c
}

// leave records that a unary call has ended.
func (c *call) leave() {
	c.making.release()
	c.account.leave()
}

// count counts the response of a unary call. It waits until there is room.
func (c *call) count(bytes int) error {
	r, size := c.making, c.visit.cost(bytes)
	c.making = nil
	switch {
	case r != nil:
		r = r.made(size)
	case size < smallAnswer:
		return nil
	default:
		r = c.account.ask(size, true)
	}
	if err := r.await(c.Context); err != nil {
		r.release()
		return err
	}
	c.hold(r)
	return nil
}

// hold counts the message until it has been written or, in the JSON gateway, is no longer used.
func (c *call) hold(r *room) {
	if c.visit != nil {
		c.visit.keep(r)
	} else {
		c.unread = newUnread(r)
	}
}

// sizeOf returns the encoded length of a message, or 0 if it is not known before encoding.
func sizeOf(m any) int {
	switch m := m.(type) {
	case proto.Message:
		return proto.Size(m)
	case interface{ Size() int }:
		return m.Size()
	}
	return 0
}

// Stream is an [intercept.Stream]. It must be the outermost one.
func (all *Answers) Stream(
	s grpc.ServerStream, info *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	out := &accountedStream{ServerStream: s, call: all.call(s.Context())}
	leave := func() {}
	if !out.call.rests(info) {
		if err := out.call.account.enter(all.mostOpen); err != nil {
			return nil, nil, err
		}
		leave = out.call.account.leave
	}
	out.ctx = context.WithValue(s.Context(), streamKey{}, out)
	return out, func(err error) error {
		leave()
		out.call.requested.release()
		out.call.making.release()
		return err
	}, nil
}

// rests reports whether a stream takes little memory while idle, and is limited elsewhere. This
// applies to a leasehold.v1 stream that has its own connection or comes from a relay.
func (c *call) rests(info *grpc.StreamServerInfo) bool {
	r, ok := remoteOf(c.Context)
	return info.FullMethod == pb.StreamService_Open_FullMethodName && c.visit == nil &&
		r.sender == nil && (ok || requestOf(c.Context) == nil)
}

type accountedStream struct {
	grpc.ServerStream
	ctx  context.Context
	call call // the message being sent; there is one at a time
}

type streamKey struct{}

// Context implements grpc.ServerStream.
func (s *accountedStream) Context() context.Context { return s.ctx }

// Ready announces the next message of a stream, with its size. It returns nil if the message does
// not need to wait. Otherwise, it returns a channel that is closed when there is room for the
// message. While a large message waits, small ones can be announced and sent ahead of it. Ready
// must be called by the sending goroutine, with the context of the stream.
func Ready(ctx context.Context, bytes int) <-chan struct{} {
	s, ok := ctx.Value(streamKey{}).(*accountedStream)
	if !ok {
		return nil
	}
	c := &s.call
	if c.known = bytes < largeAnswer; c.known {
		return nil
	}
	if c.requested == nil {
		c.askInStream(bytes)
	}
	select {
	case <-c.requested.decided:
		return nil
	default:
		return c.requested.decided
	}
}

// Making requests room for the next large message of a stream before the message is built. The
// message has approximately this many keys with their values. Like Ready, it returns a channel. The
// caller must then call Made, or call Making for the next message.
func Making(ctx context.Context, keys int64) <-chan struct{} {
	s, ok := ctx.Value(streamKey{}).(*accountedStream)
	if !ok {
		return nil
	}
	s.call.making.release()
	s.call.making = s.call.account.guess(keys, false)
	select {
	case <-s.call.making.decided:
		return nil
	default:
		return s.call.making.decided
	}
}

// Made gives up the room requested by Making, unless the message has taken it.
func Made(ctx context.Context) {
	if s, ok := ctx.Value(streamKey{}).(*accountedStream); ok {
		s.call.making.release()
		s.call.making = nil
	}
}

// askInStream requests room for a large message of a stream. A small message, such as a keep-alive
// or an event, needs no room, because gRPC limits the unwritten bytes of a stream.
func (c *call) askInStream(bytes int) {
	if bytes < largeAnswer {
		return
	}
	size := c.visit.cost(bytes + c.small)
	c.small = 0
	if r := c.making; r != nil {
		c.making = nil
		c.requested = r.made(size)
		return
	}
	c.requested = c.account.ask(size, false)
}

// SendMsg implements grpc.ServerStream.
func (s *accountedStream) SendMsg(m any) error {
	c := &s.call
	if !c.known && c.requested == nil {
		c.askInStream(sizeOf(m))
	}
	if r := c.requested; !c.known && r != nil {
		c.requested = nil
		if err := r.await(c.Context); err != nil {
			return err
		}
		c.hold(r)
	}
	c.known = false
	c.message = m
	err := s.ServerStream.SendMsg(c)
	if c.unread != nil { // the message has not been encoded
		c.unread.room.release()
		c.unread = nil
	}
	return err
}

// Codec returns a codec that works like c and counts the responses that it encodes.
func (all *Answers) Codec(c encoding.CodecV2) encoding.CodecV2 { return countingCodec{c} }

type countingCodec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	answer, ok := v.(*call)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data, err := c.CodecV2.Marshal(answer.message)
	u := answer.unread
	answer.message, answer.unread = nil, nil
	switch {
	case err != nil:
		if u != nil {
			u.room.release()
		}
		return nil, err
	case answer.visit != nil:
		return data, nil
	case u == nil:
		// A stream is written in order, so small messages can be counted together with a later one.
		answer.small += data.Len()
		if answer.small < smallAnswer {
			return data, nil
		}
		u = newUnread(answer.account.reserve(int64(answer.small)))
		answer.small = 0
	}
	return u.hold(data), nil
}

// unread is a response that has not been written yet.
type unread struct {
	last mem.Buffer
	room *room
}

// newUnread returns a response whose room is released when the response is written or garbage
// collected. The latter is needed because gRPC does not free a frame that it drops when its stream
// has just ended.
func newUnread(r *room) *unread {
	u := &unread{room: r}
	runtime.AddCleanup(u, (*room).release, r)
	return u
}

// hold returns data. When the last part of it has been written, the room is released.
func (u *unread) hold(data mem.BufferSlice) mem.BufferSlice {
	if len(data) == 0 {
		u.room.release()
		return data
	}
	at := len(data) - 1
	u.last = data[at]
	bytes := u.last.ReadOnlyData()
	switch {
	case mem.IsBelowBufferPoolingThreshold(cap(bytes)):
		// gRPC does not report when such a tiny buffer has been written.
		pool := mem.DefaultBufferPool()
		b := pool.Get(smallAnswer)
		*b = append((*b)[:0], bytes...)
		u.last.Free()
		u.last, bytes = mem.NewBuffer(b, pool), *b
	case cap(bytes) > 2*len(bytes):
		// gRPC's pools round every size above 32 KiB up to 1 MiB, which is too much memory for
		// thousands of unread responses.
		bytes = slices.Clone(bytes)
		u.last.Free()
		u.last = mem.SliceBuffer(bytes)
	}
	data[at] = mem.NewBuffer(&bytes, u)
	return data
}

// Get implements mem.BufferPool. It is never called.
func (u *unread) Get(int) *[]byte { panic("listen: Get called on a response buffer") }

// Put implements mem.BufferPool. gRPC calls it after it has written or dropped the response.
func (u *unread) Put(*[]byte) {
	u.last.Free()
	u.room.release()
}
