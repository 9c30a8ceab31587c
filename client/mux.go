package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	pb "leasehold.dev/leaseholdpb"
)

// mux keeps a link to one member at a time. One goroutine finds members and looks after
// the link.
type mux struct {
	endpoints []endpoint
	dial      dialer
	cfg       Config
	log       *slog.Logger
	ctx       context.Context // ends with close
	cancel    context.CancelCauseFunc
	all       sync.WaitGroup

	mu        sync.Mutex // guards what follows
	link      *link      // nil while there is none
	changed   chan struct{}
	failure   error // of the last try to connect
	followers map[follower]struct{}
}

// follower is a request that goes on until it is closed, whatever becomes of links.
type follower interface {
	// begin begins it on a link, if it is on none.
	begin(l *link)
	// end ends it.
	end(why error)
}

func newMux(c Config, list []endpoint, dial dialer) *mux {
	m := &mux{
		endpoints: list, dial: dial, cfg: c, log: c.Logger,
		changed: make(chan struct{}), followers: make(map[follower]struct{}),
	}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.all.Go(m.run)
	return m
}

// close ends everything, and waits until it has ended.
func (m *mux) close() {
	m.cancel(ErrClosed)
	m.mu.Lock()
	list := m.followers
	m.followers = nil
	m.mu.Unlock()
	for f := range list {
		f.end(ErrClosed)
	}
	m.all.Wait()
}

// get returns the link, and waits until there is one.
func (m *mux) get(ctx context.Context) (*link, error) {
	for {
		m.mu.Lock()
		l, changed, failure := m.link, m.changed, m.failure
		m.mu.Unlock()
		if m.ctx.Err() != nil {
			return nil, ErrClosed
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-m.ctx.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, notConnected(context.Cause(ctx), failure)
		}
	}
}

// notConnected is the error of a call that ends without a member to ask.
func notConnected(cause, failure error) error {
	if failure == nil {
		return fmt.Errorf("%w: not connected yet: %w", ErrUnavailable, cause)
	}
	return fmt.Errorf("%w: %w (last try to connect: %w)", ErrUnavailable, cause, failure)
}

// current returns the link, nil if there is none.
func (m *mux) current() *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.link
}

// run keeps a link until close.
func (m *mux) run() {
	for next, failures := 0, 0; m.ctx.Err() == nil; next++ {
		e := m.endpoints[next%len(m.endpoints)]
		l, err := m.connect(e)
		if err == nil {
			m.log.Info("connected", "endpoint", e.text)
			m.set(l)
			err = m.watch(l)
			m.set(nil)
			l.leave()
			if l.wasUseful() {
				failures = 0
			}
		}
		if m.ctx.Err() != nil {
			return
		}
		m.log.Warn("no member", "endpoint", e.text, "why", err)
		m.mu.Lock()
		m.failure = err
		m.mu.Unlock()
		failures++
		if round := failures / len(m.endpoints); round > 0 {
			_ = pause(m.ctx, backOff(round)) // the loop looks at the context
		}
	}
}

// connect opens a link to one member.
func (m *mux) connect(e endpoint) (*link, error) {
	conn, err := m.dial(e, m.cfg.DialTimeout)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(m.ctx)
	late := time.AfterFunc(m.cfg.DialTimeout, cancel)
	stream, err := conn.Open(ctx)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	l := newLink(e.text, conn, stream, cancel)
	m.all.Go(l.run)
	return l, nil
}

// enter adds a follower to those that are moved from link to link.
func (m *mux) enter(f follower) (*link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.followers == nil:
		return nil, ErrClosed
	case len(m.followers) >= maxWatches:
		return nil, errTooManyWatches
	}
	m.followers[f] = struct{}{}
	return m.link, nil
}

// exit takes a follower out.
func (m *mux) exit(f follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.followers, f)
}

// set says which link there is, and moves the followers to it.
func (m *mux) set(l *link) {
	m.mu.Lock()
	m.link = l
	close(m.changed)
	m.changed = make(chan struct{})
	list := slices.Collect(maps.Keys(m.followers))
	m.mu.Unlock()
	if l == nil {
		return
	}
	for _, f := range list {
		f.begin(l)
	}
}

// watch returns when the link has ended, or is to be left, and why.
func (m *mux) watch(l *link) error {
	look := time.NewTicker(m.cfg.Silence / 4)
	defer look.Stop()
	for {
		select {
		case <-l.ended:
			return l.why
		case <-l.bad:
			return errors.New("it refuses everything, or is silent")
		case <-m.ctx.Done():
			return ErrClosed
		case <-look.C:
			if l.silence() >= m.cfg.Silence {
				return errors.New("it is silent")
			}
			if l.idle(m.cfg.Silence) {
				_ = l.submit(newProbe()) // a link that has ended says so itself
			}
		}
	}
}

// newProbe asks whether a member can still serve reads: a client that only watches
// would not find out that it cannot.
func newProbe() *call {
	return &call{
		kind: read, done: func(*pb.Response, error) {},
		request: &pb.Request{Body: &pb.Request_Range{Range: &pb.RangeRequest{
			Key: []byte{0}, CountOnly: true,
		}}},
	}
}
