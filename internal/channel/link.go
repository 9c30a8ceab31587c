package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

const (
	// window is the initial window of a channel in each direction. cost is the part of the window
	// that each frame uses in addition to its data. Both are part of the protocol.
	window    = 64 << 10
	cost      = 64
	pieceSize = 16 << 10
	// parts is the number of parts into which Answers divides its timeout.
	parts = 8
	// shortMessage is the maximum size of messages that overtake pieces of other messages.
	shortMessage = 4 << 10
	// maxBatch limits the bytes in one message of the stream, not counting its last frame, so that
	// the message is smaller than 64 KiB. If other clients leave large responses unread, a member
	// delays messages larger than that, including any renewals in them.
	maxBatch = 40 << 10
	// maxChannels limits the number of channels that a link accepts. maxCall limits the size of a
	// call's description, in bytes.
	maxChannels = 1 << 18
	maxCall     = 128 << 10
	// maxFree limits the number of waiting frames that do not use the window. Each group in an
	// outcome counts as one additional frame.
	maxFree = 1 << 18
)

// ErrLost is wrapped by the errors of channels whose stream has ended.
var ErrLost = errors.New("the connection to the member was lost")

// errProtocol is wrapped by errors that report a protocol violation by the other end.
var errProtocol = errors.New("the other end violated the relay protocol")

// Stream is a stream of messages that contain several frames each.
type Stream interface {
	Send(frames []*pb.RelayFrame) error
	Recv() (frames []*pb.RelayFrame, err error)
}

// Accept starts serving a channel. The returned function is called once, when the call is
// abandoned. Neither function may block.
type Accept func(*Channel, *pb.RelayCall) (cancel func())

// Link is one end of a stream. Its methods are safe for concurrent use.
type Link struct {
	stream   Stream
	accept   Accept // nil on a relay, which does not accept channels
	most     int    // maximum message size
	wake     chan struct{}
	done     chan struct{} // closed when the link has ended
	received chan struct{} // capacity 1: something has been received
	groups   func(*Channel, *pb.RelayFrame)
	keeper   uint64

	mu       sync.Mutex // guards the following fields
	channels map[uint64]*Channel
	newest   uint64
	short    []outgoing // frames to send, before those in long
	long     []outgoing
	free     int   // number of frames in both queues that do not use the window
	finish   error // reason to end once everything has been sent; nil to continue
	why      error // why the link has ended; nil if it has not
}

// outgoing is a frame to send and its channel. The channel may be nil.
type outgoing struct {
	*pb.RelayFrame
	of *Channel
}

// New returns a link. most is the maximum size of a message, in bytes. accept must be nil on a
// relay.
func New(s Stream, most int, accept Accept) *Link {
	return &Link{
		stream: s, accept: accept, most: most,
		wake: make(chan struct{}, 1), received: make(chan struct{}, 1), done: make(chan struct{}),
		channels: make(map[uint64]*Channel),
	}
}

// TakeGroups makes the link call f for each frame about groups of leases. f must not block. For
// frames on channel 0, c is nil. On a member, keeper is the keeper of the relay's groups.
// TakeGroups must be called before Run.
func (l *Link) TakeGroups(keeper uint64, f func(c *Channel, frame *pb.RelayFrame)) {
	l.keeper, l.groups = keeper, f
}

// SendGroups sends a frame about groups of leases.
func (l *Link) SendGroups(f *pb.RelayFrame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == nil {
		l.pushLocked(f, nil)
	}
}

// Run transports frames until the stream, the context or the link ends. It returns the reason. The
// receiving goroutine ends with the stream, possibly after Run returns.
func (l *Link) Run(ctx context.Context) error {
	go l.receiveAll()
	for {
		frames, finish := l.next()
		switch {
		case len(frames) > 0:
		case finish != nil:
			l.End(finish)
			return l.reason()
		default:
			select {
			case <-l.wake:
				continue
			case <-l.done:
				return l.reason()
			case <-ctx.Done():
				l.End(context.Cause(ctx))
				return l.reason()
			}
		}
		if err := l.stream.Send(frames); err != nil {
			if errors.Is(err, io.EOF) { // the receiving goroutine gets the reason
				<-l.done
			}
			l.End(err)
			return l.reason()
		}
	}
}

func (l *Link) receiveAll() {
	for {
		m, err := l.stream.Recv()
		if err == nil {
			notify(l.received)
			err = l.receive(m)
		}
		if err != nil {
			l.End(err)
			return
		}
	}
}

// reason returns why the link has ended.
func (l *Link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// End ends the link and all its channels. It does nothing if the link has already ended.
func (l *Link) End(why error) {
	l.mu.Lock()
	if l.why != nil {
		l.mu.Unlock()
		return
	}
	l.why = fmt.Errorf("%w: %w", ErrLost, why)
	list := l.channels
	l.channels = nil
	for _, f := range slices.Concat(l.short, l.long) {
		if f.of != nil {
			f.of.countLocked(-len(f.Data))
		}
	}
	l.short, l.long = nil, nil
	cancels := make([]func(), 0, len(list))
	for _, c := range list {
		cancels = append(cancels, c.endLocked())
	}
	close(l.done)
	l.mu.Unlock()
	callAll(cancels)
}

// Finish ends the link once everything that is currently waiting has been sent.
func (l *Link) Finish(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish = why
	notify(l.wake)
}

// Done returns a channel that is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Channels returns the number of channels.
func (l *Link) Channels() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.channels)
}

// Answers reports whether the other end has sent anything since the last call. If not, Answers
// probes the other end and reports whether it responds within the timeout.
//
// The timeout is divided into parts, so that a process that was paused or got no CPU time misses
// only one or two parts. Answers yields after each part, because the scheduler prefers a goroutine
// whose timer has expired, and the goroutine with the response may be one of ten thousand that are
// ready to run. Only one goroutine may call Answers.
func (l *Link) Answers(ctx context.Context, within time.Duration) bool {
	select {
	case <-l.received:
		return true
	default:
	}
	l.mu.Lock()
	if l.why == nil {
		l.pushLocked(&pb.RelayFrame{}, nil)
	}
	l.mu.Unlock()
	part := within / parts
	t := time.NewTimer(part)
	defer t.Stop()
	for range parts {
		select {
		case <-l.received:
			return true
		case <-l.done:
			return true
		case <-ctx.Done():
			return true
		case <-t.C:
			runtime.Gosched()
			t.Reset(part)
		}
	}
	return false
}

// Open opens a channel.
func (l *Link) Open(call *pb.RelayCall) (*Channel, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return nil, l.why
	}
	l.newest++
	c := l.addLocked(l.newest)
	l.pushLocked(&pb.RelayFrame{Channel: c.id, Call: call}, c)
	return c, nil
}

func (l *Link) addLocked(id uint64) *Channel {
	c := &Channel{
		link: l, id: id, sendWindow: window,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
	}
	l.channels[id] = c
	return c
}

// receive processes one message of the stream. An error ends the link.
func (l *Link) receive(frames []*pb.RelayFrame) error {
	var after []func() // functions to call without holding the lock
	defer func() { callAll(after) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range frames {
		if l.why != nil {
			return l.why
		}
		about := f.Joined != nil || f.Round != nil || f.Outcome != nil
		switch {
		case f.Channel == 0 && about:
			if l.groups != nil {
				after = append(after, func() { l.groups(nil, f) })
			}
			continue
		case f.Channel == 0:
			if l.accept != nil {
				l.pushLocked(&pb.RelayFrame{}, nil)
			}
			continue
		case f.Call != nil:
			if l.accept == nil || f.Channel <= l.newest {
				return fmt.Errorf("%w: it opened channel %d after channel %d", errProtocol, f.Channel, l.newest)
			}
			l.newest = f.Channel
			if why := l.refusesLocked(f.Call); why != "" {
				l.pushLocked(&pb.RelayFrame{Channel: f.Channel, End: &pb.RelayEnd{
					Code: int32(codes.ResourceExhausted), Message: "leasehold: " + why,
				}}, nil)
				continue
			}
			c := l.addLocked(f.Channel)
			c.cancel = l.accept(c, f.Call)
		}
		c := l.channels[f.Channel]
		if c == nil { // the channel has ended here, but the other end has not been notified yet
			if about && l.groups != nil {
				after = append(after, func() { l.groups(nil, f) })
			}
			continue
		}
		if about && l.groups != nil {
			after = append(after, func() { l.groups(c, f) })
		}
		if err := c.receiveLocked(f); err != nil {
			return err
		}
		if f.End != nil {
			after = append(after, c.endLocked())
			delete(l.channels, c.id)
		}
	}
	if l.accept != nil && l.free > maxFree {
		return fmt.Errorf("%w: it is not reading; %d frames pending", errProtocol, l.free)
	}
	return nil
}

// refusesLocked returns the reason for rejecting a call, or "" to accept it.
func (l *Link) refusesLocked(call *pb.RelayCall) string {
	if len(l.channels) >= maxChannels {
		return fmt.Sprintf("the relay has %d calls in flight; use more relays", len(l.channels))
	}
	if n := proto.Size(call); n > maxCall {
		return fmt.Sprintf("the call's headers are %d bytes long; the limit is %d", n, maxCall)
	}
	return ""
}

func callAll(list []func()) {
	for _, f := range list {
		if f != nil {
			f()
		}
	}
}

// pushLocked queues a frame. A channel's frame never overtakes the pieces that the channel has
// already queued.
func (l *Link) pushLocked(f *pb.RelayFrame, c *Channel) {
	if c != nil {
		c.queued++
		c.countLocked(len(f.Data))
	}
	if c != nil && (c.long > 0 || len(f.Data) > shortMessage || len(f.Data) > 0 && !f.EndMessage) {
		c.long++
		l.long = append(l.long, outgoing{f, c})
	} else {
		l.short = append(l.short, outgoing{f, c})
	}
	if len(f.Data) == 0 && !f.EndMessage {
		l.free += 1 + len(f.Outcome.GetGroups())
	}
	notify(l.wake)
}

// next returns the frames for the next message. If there are none, finish is the reason to end the
// link, or nil to continue.
func (l *Link) next() (out []*pb.RelayFrame, finish error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for _, from := range []*[]outgoing{&l.short, &l.long} {
		n := 0
		for ; n < len(*from) && size < maxBatch; n++ {
			f, c := (*from)[n].RelayFrame, (*from)[n].of
			(*from)[n] = outgoing{}
			size += len(f.Data) + cost
			if len(f.Data) == 0 {
				size += proto.Size(f)
			}
			out = append(out, f)
			if len(f.Data) == 0 && !f.EndMessage {
				l.free -= 1 + len(f.Outcome.GetGroups())
			}
			if c != nil {
				c.countLocked(-len(f.Data))
				c.queued--
				if from == &l.long {
					c.long--
				}
			}
		}
		if *from = (*from)[n:]; len(*from) == 0 {
			*from = nil
		}
	}
	return out, l.finish
}

// notify sends a token to a channel of capacity 1, unless the channel already contains one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
