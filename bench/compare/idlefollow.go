package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/load"
)

const (
	// followed is the prefix of the keys that followers follow, and followedEnd the end of that range.
	followed, followedEnd = "many/", "many0"
	// followTime bounds how long one event may take.
	followTime = time.Minute
)

// followWorkloads are those of sessions that follow the same keys.
func followWorkloads() (list []Workload) {
	for _, k := range []*followKind{&watches, &waits, &caches} {
		list = append(list, Workload{
			Name: k.name, Relays: true, Sheet: true, Once: true, Profiled: true, run: k.run,
			Doc: k.doc + " (-sessions), at relays (-relays) that are in this program",
		})
	}
	return list
}

// followKind is what followers do.
type followKind struct {
	name, doc string
	lasting   bool // their leases outlast the run
	one       bool // an event is for one of them
	// begin asks for what the session follows, once it has its lease.
	begin func(*followers, *ownSession) error
	// take takes a response to a session.
	take func(*followers, *ownSession, *leaseholdv1.Response) error
	// cause makes an event happen.
	cause func(*followers, *timed) error
}

// followers are sessions of relays in this process that follow the same keys.
type followers struct {
	*idleCrowd
	kind   *followKind
	relays memoryRelays
	before ownUse

	pending atomic.Int64  // sessions that are to hear of the current event
	all     chan struct{} // capacity 1: they have
	turn    atomic.Int64  // the lease whose turn it is
	puts    sample
	more    figures
}

// run measures what a member spends on them, and what an event does.
func (k *followKind) run(ctx context.Context, e *Env) (_ Result, err error) {
	// As in runManySessions.
	defer debug.SetGCPercent(debug.SetGCPercent(manyGC))
	f := &followers{kind: k, all: make(chan struct{}, 1)}
	defer func() { err = errors.Join(err, f.relays.stop()) }()
	if f.relays, err = e.startMemoryRelays(ctx); err != nil {
		return Result{}, err
	}
	f.idleCrowd = newIdleCrowd(e, f.connect)
	f.ttl = e.TTL
	f.before = ownState()
	r, err := e.measureIdle(ctx, e.TTL, f)
	r.More = append(r.More, f.more...)
	return r, err
}

// follower is one of them.
type follower struct {
	*ownSession
	of *followers
}

func (f *followers) connect(ctx context.Context, _ string, _ *tls.Config) (idleConn, error) {
	s, err := f.relays.dial(ctx)
	if err != nil {
		return nil, err
	}
	s.ttl = longTTL * time.Second
	if !f.kind.lasting {
		s.ttl = f.ttl
		s.holds = []*leaseholdv1.KeyRange{{Key: []byte(followed), RangeEnd: []byte(followedEnd)}}
	}
	return follower{s, f}, nil
}

// open implements idleConn.
func (w follower) open() error {
	return errors.Join(w.ownSession.open(), w.of.kind.begin(w.of, w.ownSession))
}

// renew implements idleConn.
func (w follower) renew() error {
	if w.of.kind.lasting {
		return nil
	}
	return w.ownSession.renew()
}

// follow implements idleConn.
func (w follower) follow(func()) error {
	return w.receive(func(m *leaseholdv1.ServerMessage) error {
		for _, r := range m.Responses {
			if e := r.GetError(); e != nil {
				return fmt.Errorf("bench: %v", e)
			}
			if n := r.GetRenew(); n != nil && slices.Min(n.TtlMs) <= 0 {
				return fmt.Errorf("bench: leases %d were not renewed: %v", w.ids, r)
			}
			if err := w.of.kind.take(w.of, w.ownSession, r); err != nil {
				return err
			}
		}
		return nil
	})
}

// heard notes that one has heard of an event.
func (f *followers) heard() {
	if f.pending.Add(-1) == 0 {
		f.all <- struct{}{}
	}
}

// check implements idlers: it lets events happen while all is as it was measured.
func (f *followers) check() error {
	ctx := context.Background()
	n := float64(f.env.IdleSessions)
	f.more.add("relay and client of one", (ownState().memory-f.before.memory)/n, "bytes")
	t := &timed{addr: f.env.Server.members[0].endpoint}
	if err := t.open(ctx, longTTL*time.Second); err != nil {
		return err
	}
	defer t.Close()
	before, err := f.spent(ctx)
	if err != nil {
		return err
	}
	var took sample
	for began := time.Now(); time.Since(began) < f.env.Duration; {
		d, err := f.event(t)
		if err = errors.Join(err, f.complete()); err != nil {
			return err
		}
		took = append(took, d)
	}
	after, err := f.spent(ctx)
	if err != nil {
		return err
	}
	events := float64(len(took))
	f.more.add("events", events, "events")
	f.more = append(f.more, took.metrics("until all have heard")...)
	if len(f.puts) > 0 {
		f.more = append(f.more, f.puts.metrics("put")...)
	}
	each := func(before, after float64) float64 {
		return (after - before) / events / float64(f.env.Relays)
	}
	f.more.add("messages to a relay", each(before.messages, after.messages), "an event")
	f.more.add("CPU of the member", load.Millis(after.cpu-before.cpu)/events, "ms an event")
	if told := each(before.told, after.told); told > 1 {
		return fmt.Errorf("bench: the member has told a relay %.2f times of an event that all "+
			"watches there share", told)
	}
	return nil
}

// followSpent is what a member has spent so far: messages to relays, in all and of shared watches,
// and time.
type followSpent struct {
	messages, told float64
	cpu            time.Duration
}

func (f *followers) spent(ctx context.Context) (s followSpent, err error) {
	if s.messages, err = f.env.relayMessages(ctx, "sent"); err != nil {
		return s, err
	}
	if f.kind == &watches {
		s.told, err = pageFigure(ctx, "http://"+f.env.Server.members[0].endpoint+"/metrics",
			`grpc_server_msg_sent_total{grpc_method="Watch",`+
				`grpc_service="leasehold.v1.StoreService",grpc_type="server_stream"} `)
	}
	u, usage := f.env.Server.Usage()
	s.cpu = u.CPU
	return s, errors.Join(err, usage)
}

// event makes one happen and returns how long it takes until those that it is for have heard.
func (f *followers) event(t *timed) (time.Duration, error) {
	f.pending.Store(int64(len(f.members)))
	if f.kind.one {
		f.pending.Store(1)
	}
	began := time.Now()
	if err := f.kind.cause(f, t); err != nil {
		return 0, err
	}
	limit := time.NewTimer(followTime)
	defer limit.Stop()
	select {
	case <-f.all:
		return time.Since(began), nil
	case <-limit.C:
		return 0, fmt.Errorf("bench: %d sessions have not heard of an event", f.pending.Load())
	}
}

func putFollowed(f *followers, t *timed) error {
	began := time.Now()
	_, err := t.ask(putRequest(followed + "key"))
	f.puts = append(f.puts, time.Since(began))
	return err
}

var watches = followKind{
	name: "watches-many", doc: "watchers of one prefix", lasting: true,
	begin: func(_ *followers, s *ownSession) error {
		_, err := s.ask(&leaseholdv1.Request{Body: &leaseholdv1.Request_Watch{
			Watch: &leaseholdv1.WatchRequest{Key: []byte(followed), RangeEnd: []byte(followedEnd)},
		}})
		return err
	},
	take: func(f *followers, _ *ownSession, r *leaseholdv1.Response) error {
		for range r.GetWatch().GetEvents() {
			f.heard()
		}
		return nil
	},
	cause: putFollowed,
}

var waits = followKind{
	name: "waits-many", doc: "waiters for one lock", lasting: true, one: true,
	begin: func(f *followers, s *ownSession) error {
		key := fmt.Appendf(nil, "%s%x", followed, s.ids[0])
		r, err := s.ask(&leaseholdv1.Request{Body: &leaseholdv1.Request_Txn{
			Txn: &leaseholdv1.TxnRequest{
				Success: []*leaseholdv1.Op{{Op: &leaseholdv1.Op_Put{
					Put: &leaseholdv1.PutRequest{Key: key, Lease: s.ids[0]},
				}}},
				Wait: &leaseholdv1.Wait{Key: key, Prefix: []byte(followed)},
			},
		}})
		if r.GetTxn().GetTicket().GetState() == leaseholdv1.Ticket_STATE_READY {
			f.turn.Store(s.ids[0])
		}
		return err
	},
	take: func(f *followers, s *ownSession, r *leaseholdv1.Response) error {
		if r.GetTxn().GetTicket().GetState() == leaseholdv1.Ticket_STATE_READY {
			f.turn.Store(s.ids[0])
			f.heard()
		}
		return nil
	},
	cause: func(f *followers, t *timed) error {
		_, err := t.ask(&leaseholdv1.Request{Body: &leaseholdv1.Request_Revoke{
			Revoke: &leaseholdv1.RevokeRequest{
				Leases: []*leaseholdv1.LeaseRef{{Id: f.turn.Load()}},
			},
		}})
		return err
	},
}

var caches = followKind{
	name: "caches-many", doc: "caches of one key",
	begin: func(_ *followers, s *ownSession) error {
		r, err := s.ask(&leaseholdv1.Request{Body: &leaseholdv1.Request_Cache{
			Cache: &leaseholdv1.CacheRequest{Lease: s.lease()},
		}})
		if err != nil {
			return err
		}
		s.term = r.GetCache().GetTerm()
		if err := s.acknowledge(0); err != nil {
			return err
		}
		for { // a change, or the opening of the cache, may be under way
			r, err := s.ask(s.cached())
			if err != nil || r.GetReadRange().GetCacheTerm() != 0 {
				return err
			}
		}
	},
	take: func(f *followers, s *ownSession, r *leaseholdv1.Response) error {
		switch c := r.GetCache(); {
		case r.GetReadRange().GetCacheTerm() != 0:
			f.heard() // it has the new value
			return nil
		case r.GetReadRange() != nil:
			return s.request(s.cached())
		case len(c.GetDrop()) == 0:
			return nil
		default:
			return s.acknowledge(c.Seq)
		}
	},
	// While the put waits, a copy that is read may not be kept: all read when it is answered.
	cause: func(f *followers, t *timed) error {
		err := putFollowed(f, t)
		for i := range f.members {
			s := f.members[i].conn.(follower)
			err = errors.Join(err, s.request(s.cached()))
		}
		return err
	},
}

func (w *ownSession) lease() *leaseholdv1.LeaseRef {
	return &leaseholdv1.LeaseRef{Id: w.ids[0], Token: w.tokens[0]}
}

// acknowledge says that the cache has dropped what was asked for up to seq.
func (w *ownSession) acknowledge(seq uint64) error {
	return w.request(&leaseholdv1.Request{Body: &leaseholdv1.Request_CacheAck{
		CacheAck: &leaseholdv1.CacheAck{Lease: w.lease(), Term: w.term, Seq: seq, Open: w.term},
	}})
}

// cached reads what is to be cached.
func (w *ownSession) cached() *leaseholdv1.Request {
	return &leaseholdv1.Request{Body: &leaseholdv1.Request_ReadRange{
		ReadRange: &leaseholdv1.RangeRequest{Key: []byte(followed + "key"), Cache: w.lease()},
	}}
}
