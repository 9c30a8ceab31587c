package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/channel"
)

const (
	// connectTime is the timeout for one attempt to become a relay of a member.
	connectTime = 2 * time.Second
	// The relay probes a member that has sent nothing for the duration beat. If the member does not
	// respond within silence, the relay leaves it. The timeout is oldSilence for a member that the
	// relay has already moved away from.
	beat       = 500 * time.Millisecond
	silence    = 2 * time.Second
	oldSilence = 500 * time.Millisecond
	// callsWait is how long calls wait for a member. After that, clients should go elsewhere.
	callsWait = time.Second
	// longestPause is the maximum time between two attempts.
	longestPause = 500 * time.Millisecond
)

var (
	errSilent  = errors.New("the member does not respond")
	errRetired = errors.New("all calls to the previous member have ended")
)

// upstream is the connection to a member and the stream over it.
type upstream struct {
	*channel.Link
	keeping  *keeping
	endpoint string
	end      func() // ends the connection
}

// leave ends the stream and its connection. Ending only the stream could block if the member does
// not read.
func (w *upstream) leave(why error) {
	w.End(why)
	w.end()
}

// members finds the member to which calls are sent, and maintains the stream to it.
type members struct {
	client *client.Client
	log    *slog.Logger
	count  *metrics
	all    sync.WaitGroup
	// changes is called when a member is found (there is true) or lost.
	changes func(there bool)

	mu      sync.Mutex // guards the following fields
	now     *upstream  // nil if there is none
	changed chan struct{}
	why     error  // why there is no connection to a member
	logged  string // the most recently logged failure, because there can be several per second
}

func newMembers(c *client.Client, log *slog.Logger, count *metrics) *members {
	return &members{
		client: c, log: log, count: count, changed: make(chan struct{}),
		changes: func(bool) {},
		why:     errors.New("no member has been found yet"),
	}
}

// get returns the current upstream. If there is none, it waits for up to callsWait.
func (m *members) get(ctx context.Context) (*upstream, error) {
	if w, _ := m.known(); w != nil {
		return w, nil
	}
	short, cancel := context.WithTimeout(ctx, callsWait)
	defer cancel()
	w, err := m.wait(short)
	switch {
	case err == nil:
		return w, nil
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return nil, status.Errorf(codes.Unavailable,
		"leasehold: the relay is not connected to a member: %v", m.why)
}

// wait waits for an upstream.
func (m *members) wait(ctx context.Context) (*upstream, error) {
	for {
		w, changed := m.known()
		if w != nil {
			return w, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// known returns the current upstream, or nil if there is none. It also returns a channel that is
// closed when the upstream changes.
func (m *members) known() (*upstream, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, m.changed
}

// set sets the current upstream. Calls on an earlier upstream stay there.
func (m *members) set(w *upstream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(w)
}

// lose records that an upstream has ended.
func (m *members) lose(w *upstream, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == w {
		m.why = why
		m.setLocked(nil)
	}
}

func (m *members) setLocked(w *upstream) {
	m.now = w
	if w != nil {
		m.logged = ""
	}
	close(m.changed)
	m.changed = make(chan struct{})
	m.changes(w != nil)
}

// run maintains an upstream until the context ends. Then it ends all upstreams.
func (m *members) run(ctx context.Context) {
	defer m.all.Wait()
	m.all.Go(func() { m.probe(ctx) })
	var w *upstream
	for failures := 0; ctx.Err() == nil; {
		at, err := m.client.Connection(ctx)
		if err != nil {
			continue // the context has ended
		}
		if now, _ := m.known(); now == nil || now.endpoint != at.Endpoint {
			next, err := m.connect(ctx)
			if err != nil {
				failures++
				m.failed(ctx, at.Endpoint, err)
				backoff.Sleep(ctx, backoff.Delay(failures, 5*time.Millisecond, longestPause))
				continue
			}
			w, failures = next, 0
			m.log.Info("forwarding calls to a member", "endpoint", w.endpoint)
			m.count.connects.Inc()
			m.set(w)
			m.all.Go(func() { m.watch(ctx, next) })
		}
		select {
		case <-at.Changed:
		case <-w.Done():
		case <-ctx.Done():
		}
	}
}

// failed records why a member does not accept calls.
func (m *members) failed(ctx context.Context, endpoint string, err error) {
	if ctx.Err() != nil {
		return
	}
	if status.Code(err) == codes.PermissionDenied {
		err = fmt.Errorf("%w; the relay needs a login with the relay role", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if why := endpoint + ": " + err.Error(); why != m.logged {
		m.logged = why
		m.log.Warn("a member rejects this relay's calls", "endpoint", endpoint, "error", err)
	}
	if m.now == nil {
		m.why = err
	}
}

// connect opens an upstream to the member that the client is using.
func (m *members) connect(ctx context.Context) (*upstream, error) {
	conn, at, err := m.client.DialMember(ctx, grpc.WithWriteBufferSize(128<<10),
		grpc.WithReadBufferSize(128<<10))
	if err != nil {
		return nil, err
	}
	open, cancel := context.WithCancelCause(ctx)
	end := func() {
		cancel(nil)
		_ = conn.Close() // ignore errors, because the connection is no longer needed
	}
	late := time.AfterFunc(connectTime, func() { cancel(errSilent) })
	s, err := pb.NewRelayServiceClient(conn).Relay(open)
	if err == nil {
		_, err = s.Recv() // the member confirms that it accepts the relay
	}
	if !late.Stop() {
		err = errSilent
	}
	if err != nil {
		end()
		return nil, err
	}
	w := &upstream{channel.New(messages{s}, math.MaxInt32, nil), newKeeping(), at.Endpoint, end}
	w.keeping.over(w.Link)
	m.all.Go(func() {
		defer end()
		err := w.Run(open)
		w.keeping.close()
		if ctx.Err() == nil {
			m.log.Info("the stream to a member has ended", "endpoint", w.endpoint, "why", err)
		}
		m.lose(w, err)
	})
	return w, nil
}

// watch ends an upstream if its member does not respond. It also ends an upstream that the relay
// has left, once no calls remain on it.
func (m *members) watch(ctx context.Context, w *upstream) {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		now, changed := m.known()
		patience := silence
		if now != w {
			patience = oldSilence
			if w.Channels() == 0 {
				w.leave(errRetired)
			}
		}
		if !w.Answers(ctx, patience) {
			w.leave(errSilent)
		}
		select {
		case <-t.C:
		case <-changed:
		case <-w.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// probe sends a read to the member every beat, unless the member has recently confirmed a round.
// This lets the relay's client detect when it should move to another member.
func (m *members) probe(ctx context.Context) {
	for ctx.Err() == nil {
		if w, _ := m.known(); w == nil || !w.keeping.confirmed(2*beat) {
			short, cancel := context.WithTimeout(ctx, silence)
			_ = m.read(short) // the client acts on the outcome
			cancel()
		}
		backoff.Sleep(ctx, beat)
	}
}

// read reads a key that never exists.
func (m *members) read(ctx context.Context) error {
	_, err := m.client.Range(ctx, store.Range{Key: "\x00", CountOnly: true})
	return err
}

// messages adapts the stream to a member to channel.Stream.
type messages struct {
	pb.RelayService_RelayClient
}

// Send implements channel.Stream.
func (s messages) Send(frames []*pb.RelayFrame) error {
	return s.RelayService_RelayClient.Send(&pb.RelayRequest{Frames: frames})
}

// Recv implements channel.Stream.
func (s messages) Recv() ([]*pb.RelayFrame, error) {
	m, err := s.RelayService_RelayClient.Recv()
	return m.GetFrames(), err
}

// there reports whether there is an upstream.
func (m *members) there() bool {
	w, _ := m.known()
	return w != nil
}
