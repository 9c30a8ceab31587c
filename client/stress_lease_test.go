package client

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// lessor simulates the leases of a ledger's members. TTLs start when the request is handled, an
// election restarts them, and leases that are not renewed expire with nanosecond precision.
type lessor struct {
	*ledger
	leases map[int64]*leased // this and the following fields are guarded by the fake's mu
	byAsk  map[string]int64  // by request ID
	tokens uint64
}

// leased is a lease.
type leased struct {
	token  uint64
	ttl    int64 // milliseconds
	expiry time.Time
}

func (l *lessor) find(id int64, token uint64) *leased {
	x := l.leases[id]
	if x == nil || x.token != token || !time.Now().Before(x.expiry) {
		return nil
	}
	return x
}

// run restarts the TTL of a lease and returns the lease.
func (x *leased) run(id int64) *pb.Lease {
	if at := time.Now().Add(time.Duration(x.ttl) * time.Millisecond); at.After(x.expiry) {
		x.expiry = at
	}
	return &pb.Lease{Id: id, Token: x.token, TtlMs: x.ttl, RemainingMs: x.ttl}
}

// elect simulates the election of a new leader, which restarts all TTLs.
func (l *lessor) elect() {
	for id, x := range l.leases {
		if l.find(id, x.token) != nil {
			x.expiry = time.Time{}
			x.run(id)
		}
	}
}

// do handles requests about leases. It returns nil for all other requests.
func (l *lessor) do(r *pb.Request) *pb.Response {
	out := &pb.Response{Id: r.Id}
	switch q := r.Body.(type) {
	case *pb.Request_Grant:
		out.Body = &pb.Response_Grant{Grant: &pb.GrantResponse{Lease: l.grant(q.Grant)}}
	case *pb.Request_Renew:
		m := &pb.RenewResponse{TtlMs: make([]int64, len(q.Renew.Ids))}
		for i, id := range q.Renew.Ids {
			if x := l.find(id, q.Renew.Tokens[i]); x != nil {
				m.TtlMs[i] = x.run(id).TtlMs
			} else {
				m.Results = append(m.Results, &pb.RenewResult{
					Id: id, Reason: pb.Reason_REASON_LEASE_NOT_FOUND,
				})
			}
		}
		out.Body = &pb.Response_Renew{Renew: m}
	case *pb.Request_ChangeTtl:
		ref := q.ChangeTtl.Lease
		x := l.find(ref.Id, ref.Token)
		if x == nil {
			return refuse(r, pb.Reason_REASON_LEASE_NOT_FOUND)[0]
		}
		x.ttl = q.ChangeTtl.TtlMs
		out.Body = &pb.Response_ChangeTtl{ChangeTtl: &pb.ChangeTTLResponse{Lease: x.run(ref.Id)}}
	case *pb.Request_HandOver:
		ref := q.HandOver.Lease
		x := l.find(ref.Id, ref.Token)
		if x == nil {
			return refuse(r, pb.Reason_REASON_LEASE_NOT_FOUND)[0]
		}
		l.tokens++
		x.token = l.tokens
		out.Body = &pb.Response_HandOver{HandOver: &pb.HandOverResponse{Lease: x.run(ref.Id)}}
	default:
		return nil
	}
	return out
}

func (l *lessor) grant(r *pb.GrantRequest) *pb.Lease {
	id, ok := l.byAsk[r.RequestId]
	if x := l.leases[id]; ok && l.find(id, x.token) != nil {
		return x.run(id)
	}
	l.tokens++
	id = int64(l.tokens)
	l.byAsk[r.RequestId] = id
	l.leases[id] = &leased{token: l.tokens, ttl: r.TtlMs}
	return l.leases[id].run(id)
}

// again returns the response to a repeated request. The lease in it is renewed, or omitted if it no
// longer exists.
func (l *lessor) again(done *pb.Response) *pb.Response {
	out := proto.CloneOf(done)
	m := out.GetChangeTtl().GetLease()
	if m == nil {
		m = out.GetHandOver().GetLease()
	}
	if m == nil {
		return out
	}
	m.RemainingMs = 0
	if x := l.find(m.Id, m.Token); x != nil {
		m.TtlMs, m.RemainingMs = x.run(m.Id).TtlMs, x.ttl
	}
	return out
}

// TestHolders checks that no client considers a lease valid that the lessor may have ended or that
// has a different token. Meanwhile, responses are lost and delayed, streams break, requests are
// delayed, leaders and TTLs change, and leases are handed over.
func TestHolders(t *testing.T) {
	for seed := range uint64(12) {
		holders(t, seed)
	}
}

func holders(t *testing.T, seed uint64) {
	inBubble(t, 3, exact, func(t *testing.T, c *Client, f *fake) {
		l := &lessor{
			ledger: newLedger(f, seed), leases: make(map[int64]*leased), byAsk: make(map[string]int64),
		}
		l.ledger.leases = l
		f.set(func() { f.take = l.take })
		var mu sync.Mutex // guards the following fields
		var all []*Lease
		var working sync.WaitGroup
		var over atomic.Bool
		time.AfterFunc(5*time.Minute, func() { over.Store(true) })
		for w := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, w+2))
			working.Go(func() {
				for !over.Load() {
					held := holdOne(t.Context(), c, rng)
					for held != nil && !over.Load() {
						mu.Lock()
						all = append(all, held)
						mu.Unlock()
						held = use(t.Context(), c, held, rng)
					}
				}
			})
		}
		ok := 0
		for rng := rand.New(rand.NewPCG(seed, 1)); !over.Load(); {
			pass(time.Duration(rng.IntN(100)) * time.Millisecond)
			mu.Lock()
			for _, held := range all {
				f.mu.Lock() // so that nothing changes in between
				ended := l.find(int64(held.ID()), uint64(held.Token())) == nil
				valid := held.Valid()
				f.mu.Unlock()
				switch {
				case valid && ended:
					t.Errorf("seed %d: lease %d is valid, until %v, and was ended",
						seed, held.ID(), held.ValidUntil())
					over.Store(true)
				case valid:
					ok++
				}
			}
			mu.Unlock()
			if rng.IntN(20) == 0 {
				f.set(l.elect)
			}
		}
		working.Wait()
		if ok < 1000 {
			t.Errorf("seed %d: of all leases only %d times one was valid", seed, ok)
		}
	})
}

// holdOne returns a lease that is kept alive, or nil if none could be granted in time.
func holdOne(ctx context.Context, c *Client, rng *rand.Rand) *Lease {
	ctx, cancel := context.WithTimeout(ctx, patience(rng))
	defer cancel()
	l, err := c.Grant(ctx, Grant{TTL: someTTL(rng), Grace: time.Duration(rng.IntN(2)) * time.Second})
	if err != nil {
		return nil
	}
	return l
}

func someTTL(rng *rand.Rand) time.Duration { return time.Duration(1+rng.IntN(10)) * time.Second }

// use performs operations on a lease. It returns the next lease to use, or nil.
func use(ctx context.Context, c *Client, l *Lease, rng *rand.Rand) *Lease {
	for range 1 + rng.IntN(5) {
		pass(time.Duration(rng.IntN(8000)) * time.Millisecond)
		ctx, cancel := context.WithTimeout(ctx, patience(rng))
		_ = l.ChangeTTL(ctx, someTTL(rng))
		cancel()
	}
	ctx, cancel := context.WithTimeout(ctx, patience(rng))
	defer cancel()
	if g, err := l.HandOver(ctx, "me"); err == nil {
		if next, err := c.Keep(g, 0); err == nil {
			return next
		}
	}
	return nil
}
