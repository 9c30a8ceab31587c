package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	native "leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
)

// agentEnv names the variable that makes this binary an agent instead of a test: its value is
// what the agent is told.
const agentEnv = "LEASEHOLD_TEST_AGENT"

// fencedPrefix begins the keys that only the holder of a thing may write; usedPrefix those of
// the things.
const (
	fencedPrefix = "fenced/"
	usedPrefix   = "used/"
)

// orders are what an agent is told.
type orders struct {
	Name      string
	Endpoints []string
	Notes     string // its file
	Others    []string
}

// An agent is a process that uses all that the packages above the client have, in many goroutines
// and with a few clients, gives things back in all ways there are, and dies in some. It writes down
// what it has. On SIGUSR1 it does no harm any more; on SIGTERM it gives back what it has, says that
// it is idle, and stays.
type agent struct {
	orders
	*noteBook
	ctx   context.Context // ends when it is to stop
	calm  atomic.Bool
	spans atomic.Int64
	names atomic.Int64

	mu      sync.Mutex // guards what follows
	clients [4]*native.Client
}

// actAs does what an agent is told until it is killed.
func actAs(told string) error {
	a := &agent{}
	if err := json.Unmarshal([]byte(told), &a.orders); err != nil {
		return err
	}
	var err error
	a.noteBook, err = openNotes(a.Notes, fmt.Sprintf("%s.%d", a.Name, os.Getpid()))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a.ctx = ctx
	calm := make(chan os.Signal, 1)
	signal.Notify(calm, syscall.SIGUSR1)
	go func() {
		<-calm
		a.calm.Store(true)
	}()
	a.run()
	a.write(note{Verb: noteIdle})
	select {}
}

// run has all hands at work until the agent is to stop.
func (a *agent) run() {
	var all sync.WaitGroup
	for i, work := range []func(*hand) error{
		useMutex, useMutex, useLock, useRWMutex, useRWMutex, useSemaphore, useSemaphore,
		standForElection, observeElection, usePool, usePool, useGroup, watchGroup, beNode,
		pushItems, claimItems, workOnItems, requeueItems, look,
	} {
		h := &hand{agent: a, at: i, rng: rand.New(rand.NewPCG(rand.Uint64(), 0))}
		all.Go(func() {
			for a.ctx.Err() == nil {
				if err := work(h); err != nil && a.ctx.Err() == nil {
					a.write(note{Verb: noteError, What: h.doing, Text: err.Error()})
				}
				h.pause(1, 60)
			}
		})
	}
	all.Wait()
}

// client returns one of the clients, a new one if somebody has closed it.
func (a *agent) client(i int) *native.Client {
	a.mu.Lock()
	defer a.mu.Unlock()
	i %= len(a.clients)
	if a.clients[i] == nil {
		c, err := native.New(native.Config{Endpoints: a.Endpoints, Silence: time.Second})
		if err != nil {
			panic(err)
		}
		a.clients[i] = c
	}
	return a.clients[i]
}

// drop closes a client, for all who use it.
func (a *agent) drop(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i %= len(a.clients)
	if c := a.clients[i]; c != nil {
		_ = c.Close() // it never fails
		a.clients[i] = nil
	}
}

// unique returns a text that no agent has returned before.
func (a *agent) unique() string {
	return fmt.Sprintf("%s-%d", a.who, a.names.Add(1))
}

// A hand is a goroutine of an agent.
type hand struct {
	*agent
	at    int
	rng   *rand.Rand
	doing string // for notes of errors
}

func (h *hand) conn() *native.Client { return h.client(h.at) }

// one is true once in so many times, and never in calm.
func (h *hand) one(in int) bool { return !h.calm.Load() && h.rng.IntN(in) == 0 }

// pause waits for some milliseconds, or until the agent is to stop.
func (h *hand) pause(low, high int) {
	select {
	case <-time.After(between(h.rng, low, high)):
	case <-h.ctx.Done():
	}
}

// brief returns a context as long as a call may take; now and then it ends in the middle.
func (h *hand) brief() (context.Context, context.CancelFunc) {
	if h.one(4) {
		return context.WithTimeout(h.ctx, between(h.rng, 1, 60))
	}
	return context.WithTimeout(h.ctx, between(h.rng, 1000, 4000))
}

// last returns a context for giving something back, although the agent is to stop.
func (h *hand) last() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(h.ctx), 5*time.Second)
}

func (h *hand) ttl() time.Duration { return between(h.rng, 500, 1500) }

// session has a session for a few turns.
func (h *hand) session(turn func(*lock.Session) error) error {
	c := h.conn()
	ctx, cancel := h.brief()
	l, err := c.Grant(ctx, native.Grant{TTL: h.ttl()})
	cancel()
	if err != nil {
		return err
	}
	defer h.revoke(l)
	s := lock.NewSession(c, l)
	for range 1 + h.rng.IntN(4) {
		if err := turn(s); err != nil || l.Err() != nil {
			return err
		}
		h.pause(1, 30)
	}
	return nil
}

// revoke ends a lease, whatever becomes of it.
func (h *hand) revoke(l *native.Lease) {
	ctx, cancel := h.last()
	defer cancel()
	if err := l.Revoke(ctx); err != nil && l.State().Status != native.Ended {
		h.write(note{Verb: noteWrong, Text: fmt.Sprintf("revoked with %v, and goes on", err)})
	}
}

// A thing is what is held under a lease.
type thing struct {
	what, mode string
	token      uint64
	mark       int64
	lease      *native.Lease // nil for one that cannot be asked
	err        func() error  // why it is over
	owner      store.Compare
	give       func(context.Context) error
}

// The ways in which what is held ends, as far as its lease goes on living.
const (
	endGiven  = "given"  // it is given back, or tried to
	endClosed = "closed" // nobody renews the lease
)

// hold begins the span of a thing.
func (h *hand) hold(x *thing) (span int64) {
	span = h.spans.Add(1)
	h.write(note{
		Verb: noteHold, Span: span, What: x.what, Mode: x.mode, Token: x.token, Mark: x.mark,
	})
	return span
}

// have has a thing for a while, and notes until when that is valid. A writer writes while it has
// it.
func (h *hand) have(ctx context.Context, span int64, x *thing, d time.Duration) {
	over := time.After(d)
	for {
		// In this order, so that what is noted is never later than what is so.
		till := machineTime()
		if x.lease != nil {
			clock := time.Now()
			s := x.lease.State()
			if s.Err != nil {
				return
			}
			till += s.ValidUntil.Sub(clock)
		}
		if x.err() != nil {
			return
		}
		h.write(note{Verb: noteStill, Span: span, Till: till})
		if x.mode != modeShared && h.one(3) {
			h.fenced(ctx, x)
		}
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-time.After(between(h.rng, 5, 40)):
		}
	}
}

// fenced writes what only the holder may.
func (h *hand) fenced(ctx context.Context, x *thing) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	// Whether it is done does not matter here.
	_, _ = h.conn().Txn(ctx, store.Txn{
		If: []store.Compare{x.owner},
		Then: []store.Op{store.Put{
			Key: fencedPrefix + x.what, Value: fmt.Append(nil, x.token),
		}},
	})
}

func (h *hand) end(span int64, how string) {
	h.write(note{Verb: noteEnd, Span: span, Mode: how})
}

// stint is how long something is held.
func (h *hand) stint() time.Duration {
	if h.one(12) {
		return between(h.rng, 500, 2000)
	}
	return between(h.rng, 5, 150)
}

// use has a thing for a while and ends that, in one way or another.
func (h *hand) use(x *thing) error {
	span := h.hold(x)
	h.have(h.ctx, span, x, h.stint())
	way := h.rng.IntN(20)
	if h.calm.Load() || h.ctx.Err() != nil {
		way = 0
	}
	ctx, cancel := h.last()
	defer cancel()
	switch way {
	default:
		h.end(span, endGiven)
	case 15, 16:
		h.end(span, endGiven)
		return x.lease.Revoke(ctx)
	case 17:
		h.end(span, endClosed)
		x.lease.Close()
		return nil
	case 18:
		h.end(span, endGiven) // what waits to be given back may be, or not
		h.drop(h.at)
		return nil
	case 19:
		h.end(span, endGiven)
		hasty, cancel := context.WithTimeout(ctx, between(h.rng, 0, 5)-time.Millisecond)
		defer cancel()
		return x.give(hasty)
	}
	err := x.give(ctx)
	if err == nil && x.err() == nil {
		err = errors.New("given back, and still held")
		h.write(note{Verb: noteWrong, What: x.what, Text: err.Error()})
	}
	return err
}
