package transport

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/internal/listen"
)

// serviceName is the first part of each method's path.
const serviceName = "leasehold.transport.v1"

var (
	messagesDesc = grpc.StreamDesc{StreamName: "Messages", ClientStreams: true, ServerStreams: true}
	snapshotDesc = grpc.StreamDesc{StreamName: "Snapshot", ClientStreams: true}
	pingDesc     = grpc.MethodDesc{MethodName: "Ping", Handler: servePing}
	describeDesc = grpc.MethodDesc{MethodName: "Describe", Handler: serveDescribe}

	service = grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{describeDesc, pingDesc, challengeDesc},
		Streams: []grpc.StreamDesc{
			served(messagesDesc, (*Transport).serveMessages),
			served(snapshotDesc, (*Transport).serveSnapshot),
		},
	}
)

// served returns the description of a stream, for the server.
func served(desc grpc.StreamDesc, serve func(*Transport, grpc.ServerStream) error) grpc.StreamDesc {
	desc.Handler = func(srv any, stream grpc.ServerStream) error {
		return serve(srv.(*Transport), stream)
	}
	return desc
}

// An inbound is one stream of messages from another member.
type inbound struct {
	from uint64
	instance
	visitor Visitor
	mark    uint64    // mark in its hello
	urls    []url.URL // URLs that the member sent
	format  uint8
	stream  grpc.ServerStream
	done    chan struct{} // closed when no more messages can arrive

	once  sync.Once
	ended chan struct{}
	why   error // set before ended is closed
}

// end ends the stream. Only the first call has an effect, and its err is sent to the other side.
func (in *inbound) end(err error) {
	in.once.Do(func() {
		in.why = err
		close(in.ended)
	})
}

// welcome identifies the member that opens a stream, checks whether it is allowed to do so, and
// returns the stream's format.
func (t *Transport) welcome(ctx context.Context) (h hello, format uint8, err error) {
	h, err = readHello(ctx)
	if err == nil {
		err = t.proven(ctx)
	}
	switch {
	case err != nil:
		return h, 0, err
	case h.cluster != t.cfg.Cluster:
		if h.to == t.cfg.Self {
			t.cfg.Handler.Claimed(h.cluster, h.from)
		}
		return h, 0, fmt.Errorf("the stream belongs to cluster %x, but this member belongs to "+
			"cluster %x", h.cluster, t.cfg.Cluster)
	case h.to != t.cfg.Self:
		return h, 0, fmt.Errorf("the stream is for member %x, but this is member %x; "+
			"the peer URL points to the wrong member", h.to, t.cfg.Self)
	case h.from == t.cfg.Self:
		return h, 0, fmt.Errorf("member %x connected to itself: two processes have the same "+
			"identity", h.from)
	}
	if err := t.cfg.Handler.Admit(h.visitor()); err != nil {
		return h, 0, err
	}
	if format, err = t.cfg.Formats.common(h.formats); err == nil {
		listen.MarkLoggedIn(ctx)
	}
	return h, format, err
}

// serveMessages serves one stream of Messages. The peer sends frames. This member identifies its
// process in the answer, and then sends an empty message once per aliveInterval.
func (t *Transport) serveMessages(stream grpc.ServerStream) error {
	h, format, err := t.welcome(stream.Context())
	if err != nil {
		t.log.Debug("stream refused", "member", memberName(h.from), "error", err)
		return toStatus(stream, err)
	}
	in := &inbound{
		from: h.from, instance: h.instance, visitor: h.visitor(), mark: h.mark,
		urls: readURLs(stream.Context()), stream: stream, format: format,
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := t.enter(in); err != nil {
		return toStatus(stream, err)
	}
	broken := make(chan error, 1)
	t.wg.Go(func() {
		defer close(in.done)
		broken <- t.receive(in)
	})
	err = in.keepAlive(answer{t.instance(), format}, broken)
	t.leave(in)
	return err
}

// keepAlive sends the answer and then "alive" messages until the stream ends.
func (in *inbound) keepAlive(a answer, broken <-chan error) error {
	if err := in.stream.SendHeader(a.header()); err != nil {
		return err
	}
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	for {
		select {
		case err := <-broken:
			return err
		case <-in.ended:
			return toStatus(in.stream, in.why)
		case <-ticker.C:
			if err := in.stream.SendMsg(new(blob)); err != nil {
				return err
			}
		}
	}
}

// enter makes in the current stream from its member. If there was a previous one, it ends that one
// first.
func (t *Transport) enter(in *inbound) error {
	if l := t.link(in.from); l != nil {
		if err := l.observe(in.process, in.mark); err != nil {
			return err
		}
	}
	t.mu.Lock()
	before := t.inbound[in.from]
	t.inbound[in.from] = in
	t.relinkLocked()
	l := t.links[in.from]
	t.mu.Unlock()
	if before != nil {
		before.end(errReplaced)
		<-before.done
	}
	var err error
	if l != nil {
		// the link may be new, or another process may have connected first
		err = l.observe(in.process, in.mark)
		wake(l.redial) // a member that dials is also listening
	}
	// Update may have rechecked which members are admitted before this stream was registered.
	if err == nil {
		err = t.cfg.Handler.Admit(in.visitor)
	}
	if err != nil {
		close(in.done)
		t.leave(in)
	}
	return err
}

// leave removes in. If there is a link to its member, leave makes the link check immediately
// whether the member is still alive.
func (t *Transport) leave(in *inbound) {
	t.mu.Lock()
	if t.inbound[in.from] == in {
		delete(t.inbound, in.from)
		t.relinkLocked()
	}
	l := t.links[in.from]
	t.mu.Unlock()
	if l != nil {
		wake(l.redial)
	}
}

// receive passes messages to the handler until the stream ends.
func (t *Transport) receive(in *inbound) (err error) {
	defer t.cfg.Panics.End("messages", &err)
	for {
		var frame blob
		if err := in.stream.RecvMsg(&frame); err != nil {
			return err
		}
		t.received(in.from, len(frame.data))
		rest, err := open(in.format, frame.data)
		for err == nil && len(rest) > 0 {
			var message []byte
			if message, rest, err = cut(rest); err == nil {
				t.cfg.Handler.Receive(in.from, message)
			}
		}
		if err != nil {
			t.badFrame.Do(func() {
				t.log.Error("stream ended", "member", memberName(in.from), "error", err)
			})
			return toStatus(in.stream, err)
		}
	}
}
