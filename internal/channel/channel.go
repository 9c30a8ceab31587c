package channel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
)

// errEnded means that the receiver's call has ended.
var errEnded = errors.New("the call has ended")

// Channel is one end of a call. Only one goroutine at a time may receive.
type Channel struct {
	link *Link
	id   uint64
	// cancel is called when the other end abandons the call. It is nil on a relay.
	cancel   func()
	readable chan struct{} // capacity 1: there may be something to receive
	writable chan struct{} // capacity 1: there may be room to send

	// The link's mu guards the fields below.
	pieces []piece // received pieces, in order
	// delivered contains complete messages that originate on this side (see Deliver). They may
	// overtake pieces of other messages.
	delivered   [][]byte
	undelivered int  // total bytes in delivered
	recvUsed    int  // window used by received frames and not yet returned
	consumed    int  // part of recvUsed that the receiver has consumed
	halfClosed  bool // the other end has half-closed the channel, and all pieces have arrived
	sendWindow  int  // number of bytes that may be sent
	queued      int  // number of frames waiting to be sent
	long        int  // number of those frames that are in the link's long queue
	header      header
	end         *pb.RelayEnd // received from the other end
	sendClosed  bool         // nothing more will be sent
	ended       bool         // the channel has ended
	reason      error        // why the link ended, if that ended the channel
	onReceive   func()       // see Park; nil while a receiver is active
	count       func(int)    // see Count
	kept        int          // bytes in pieces and delivered

	sending sync.Mutex // held while a message is being sent

	buffer []byte // beginning of an incomplete message; owned by the receiver
}

// header is the header of the response.
type header struct {
	*pb.RelayHeader      // nil until it has arrived
	unread          bool // true if the receiver may not have read it yet
}

// piece is part of a message.
type piece struct {
	bytes      []byte
	last       bool
	windowless bool // whether it is exempt from the window
}

// receiveLocked processes a frame of this channel.
func (c *Channel) receiveLocked(f *pb.RelayFrame) error {
	if f.Window > 0 {
		if f.Window > 2*window || c.sendWindow+int(f.Window) > window {
			return fmt.Errorf("%w: it increased the window by too many bytes: %d",
				errProtocol, f.Window)
		}
		c.sendWindow += int(f.Window)
		notify(c.writable)
	}
	if f.Header != nil {
		c.header = header{f.Header, true}
	}
	if len(f.Data) > 0 || f.EndMessage {
		n := len(f.Data) + cost
		// The other end may send a frame as long as any of the window is left, so only its last
		// frame may exceed the window.
		if len(f.Data) > pieceSize || c.recvUsed >= window || c.halfClosed {
			return fmt.Errorf("%w: unexpected frame of %d bytes on channel %d (%d bytes unread)",
				errProtocol, len(f.Data), c.id, c.recvUsed)
		}
		c.recvUsed += n
		c.keepLocked(n)
		c.pieces = append(c.pieces, piece{bytes: f.Data, last: f.EndMessage})
	}
	c.halfClosed = c.halfClosed || f.HalfClose || f.End != nil
	if f.End != nil {
		c.end = f.End
	}
	c.wakeLocked()
	return nil
}

// endLocked records that the channel has ended. It returns cancel, which the caller must call
// without the lock.
func (c *Channel) endLocked() (cancel func()) {
	c.ended, c.reason = true, c.link.why
	c.wakeLocked()
	notify(c.writable)
	return c.cancel
}

// Send sends a message. It blocks while the window is exhausted.
func (c *Channel) Send(ctx context.Context, message []byte) error {
	return c.SendPieces(ctx, message, func(int) {})
}

// SendPieces is Send with a callback. It calls sent with the length of each piece that fits into
// the window.
func (c *Channel) SendPieces(ctx context.Context, message []byte, sent func(bytes int)) error {
	return c.send(ctx, message, func(piece []byte) []byte { return piece }, sent)
}

// SendCopy is SendPieces for a message in memory that the caller will reuse.
func (c *Channel) SendCopy(ctx context.Context, message []byte, sent func(bytes int)) error {
	return c.send(ctx, message, bytes.Clone, sent)
}

func (c *Channel) send(
	ctx context.Context, message []byte, keep func(piece []byte) []byte, sent func(bytes int),
) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	for {
		n := min(len(message), pieceSize)
		f := &pb.RelayFrame{
			Channel: c.id, Data: keep(message[:n:n]), EndMessage: n == len(message),
		}
		if err := c.push(ctx, f); err != nil {
			return err
		}
		if sent(n); f.EndMessage {
			return nil
		}
		message = message[n:]
	}
}

// push sends a piece as soon as the window allows it.
func (c *Channel) push(ctx context.Context, f *pb.RelayFrame) error {
	for {
		c.link.mu.Lock()
		ended, fits := c.ended || c.sendClosed, c.sendWindow > 0
		if !ended && fits {
			c.sendWindow -= len(f.Data) + cost
			c.link.pushLocked(f, c)
		}
		reason := c.reason
		c.link.mu.Unlock()
		switch {
		case ended && reason != nil:
			return reason
		case ended:
			return errEnded
		case fits:
			return nil
		}
		select {
		case <-c.writable:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// CloseSend signals that this side will not send any more messages. Any goroutine may call it. If a
// message has not been sent completely, it will never arrive.
func (c *Channel) CloseSend() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.ended || c.sendClosed {
		return
	}
	c.sendClosed = true
	c.link.pushLocked(&pb.RelayFrame{Channel: c.id, HalfClose: true}, c)
	notify(c.writable)
}

// SendHeader sends the header of the response.
func (c *Channel) SendHeader(h *pb.RelayHeader) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if !c.ended {
		c.link.pushLocked(&pb.RelayFrame{Channel: c.id, Header: h}, c)
	}
}

// Await waits up to d and reports whether there may be something to receive. Only the receiver may
// call it.
func (c *Channel) Await(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for !c.hasInput() {
		select {
		case <-c.readable: // the token may be left over from something already consumed
		case <-t.C:
			return false
		}
	}
	return true
}

// hasInput reports whether there is something to receive or nothing more will arrive.
func (c *Channel) hasInput() bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.hasNewsLocked()
}

func (c *Channel) hasNewsLocked() bool {
	return len(c.pieces)+len(c.delivered) > 0 || c.halfClosed || c.ended
}

// Park lets the receiver's goroutine end. The link calls onReceive on a new goroutine when there is
// something to receive. If there already is something, Park returns false. Only the receiver may
// call it.
func (c *Channel) Park(onReceive func()) bool {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.hasNewsLocked() {
		return false
	}
	c.onReceive = onReceive
	return true
}

// wakeLocked wakes the receiver because there is something to receive or nothing more will arrive.
func (c *Channel) wakeLocked() {
	notify(c.readable)
	if f := c.onReceive; f != nil {
		c.onReceive = nil
		go f()
	}
}

// ErrOther is returned by RecvOr when there is something to handle other than a message.
var ErrOther = errors.New("received something other than a message")

// Recv returns the next message. After the last message, it returns io.EOF. If the channel ended
// early, it returns the reason.
func (c *Channel) Recv(ctx context.Context) ([]byte, error) {
	for {
		b, err := c.RecvOr(ctx, nil)
		if !errors.Is(err, ErrOther) {
			return b, err
		}
	}
}

// RecvOr is Recv, except that it returns ErrOther if the header arrives, or if other has a token
// before a message is complete.
func (c *Channel) RecvOr(ctx context.Context, other <-chan struct{}) ([]byte, error) {
	for {
		list, err := c.received()
		for _, p := range list {
			if p.windowless {
				return p.bytes, nil
			}
			if len(c.buffer)+len(p.bytes) > c.link.most {
				return nil, status.Errorf(codes.ResourceExhausted,
					"leasehold: message exceeds %d bytes", c.link.most)
			}
			message := p.bytes
			if len(c.buffer) > 0 || !p.last {
				c.buffer = append(c.buffer, p.bytes...)
				message = c.buffer
			}
			if p.last {
				c.buffer = nil
				return message, nil
			}
		}
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-c.readable:
		case <-other:
			return nil, ErrOther
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// received consumes pieces up to the end of a message and returns their window to the other end. If
// there are no pieces and none will arrive, it returns the reason.
func (c *Channel) received() (list []piece, err error) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(c.delivered) > 0 {
		list = []piece{{bytes: c.delivered[0], last: true, windowless: true}}
		c.undelivered -= len(c.delivered[0])
		c.keepLocked(-len(c.delivered[0]))
		if c.delivered = c.delivered[1:]; len(c.delivered) == 0 {
			c.delivered = nil
		}
		return list, nil
	}
	n := 0
	for n < len(c.pieces) {
		n++
		if c.pieces[n-1].last {
			break
		}
	}
	if n == 0 {
		switch {
		case c.ended && c.end == nil && !c.halfClosed:
			err = errEnded
			if c.reason != nil {
				err = c.reason
			}
		case c.halfClosed:
			err = io.EOF
		case c.header.unread:
			err = ErrOther
		}
		c.header.unread = false
		return nil, err
	}
	list = c.pieces[:n:n]
	if c.pieces = c.pieces[n:]; len(c.pieces) == 0 {
		c.pieces = nil
	}
	consumed := 0
	for _, p := range list {
		consumed += len(p.bytes) + cost
	}
	c.consumed += consumed
	c.keepLocked(-consumed)
	// Do not return the window for each message, which would double the number of frames.
	if c.consumed >= window/2 && !c.ended {
		c.recvUsed -= c.consumed
		l.pushLocked(&pb.RelayFrame{Channel: c.id, Window: uint64(c.consumed)}, nil)
		c.consumed = 0
	}
	return list, nil
}

// Header returns the header that has been received, or nil.
func (c *Channel) Header() *pb.RelayHeader {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.header.RelayHeader
}

// Ended returns the RelayEnd sent by the other end, or nil if there was none.
func (c *Channel) Ended() *pb.RelayEnd {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.end
}

// End ends the channel from this side. It drops everything that has not been received.
func (c *Channel) End(e *pb.RelayEnd) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	c.keepLocked(-c.kept)
	c.pieces, c.delivered = nil, nil
	if c.ended {
		return
	}
	l.pushLocked(&pb.RelayFrame{Channel: c.id, End: e}, c)
	c.ended = true
	delete(l.channels, c.id)
	c.wakeLocked()
	notify(c.writable)
}

// SendJoined reports to the relay which leases have joined its groups.
func (c *Channel) SendJoined(j *pb.RelayJoined) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	f, via := &pb.RelayFrame{Channel: c.id, Joined: j}, c
	if c.ended {
		// send it anyway, or the leases would stay in their groups without the relay's knowledge
		via = nil
	}
	c.link.pushLocked(f, via)
}

// Deliver adds a message from this side to the received messages. The caller must limit the memory
// used by such messages; see Behind and Undelivered.
func (c *Channel) Deliver(message []byte) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if !c.ended && !c.halfClosed {
		c.delivered = append(c.delivered, message)
		c.undelivered += len(message)
		c.keepLocked(len(message))
		c.wakeLocked()
	}
}

// Behind returns the number of frames waiting to be sent plus the number of pieces waiting to be
// received.
func (c *Channel) Behind() int {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.queued + len(c.pieces) + len(c.delivered)
}

// Undelivered returns the number of bytes passed to Deliver that have not been received yet.
func (c *Channel) Undelivered() int {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.undelivered
}

// Count makes the channel call f whenever the number of bytes that this end buffers for the channel
// changes. These are pieces waiting to be sent and data that has arrived but has not been received.
// f must not block and must not call methods of the channel.
func (c *Channel) Count(f func(bytes int)) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.count = f
}

// keepLocked changes the number of bytes that have arrived but have not been received or dropped.
func (c *Channel) keepLocked(bytes int) {
	c.kept += bytes
	c.countLocked(bytes)
}

func (c *Channel) countLocked(bytes int) {
	if c.count != nil && bytes != 0 {
		c.count(bytes)
	}
}

// Keeper returns the keeper passed to Link.TakeGroups, or 0.
func (c *Channel) Keeper() uint64 { return c.link.keeper }

type contextKey struct{}

// Context returns a context that contains the channel.
func (c *Channel) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// Of returns the channel in the context of a call. It returns nil if the call did not come through
// a relay.
func Of(ctx context.Context) *Channel {
	c, _ := ctx.Value(contextKey{}).(*Channel)
	return c
}
