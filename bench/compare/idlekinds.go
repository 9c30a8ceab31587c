package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/wire"
)

// ownSession is a session over leasehold.v1's framed stream.
type ownSession struct {
	*directStream
	ttl    time.Duration
	leases int // number of leases to grant
	ids    []int64
	tokens []uint64

	mu     sync.Mutex // held during a send
	number uint64     // number of the last request
}

// newOwnSession returns a session with one lease.
func newOwnSession(s *directStream) *ownSession {
	return &ownSession{directStream: s, ttl: idleTTL, leases: 1}
}

// directStream sends leasehold.v1 messages over its own connection.
type directStream struct {
	net.Conn
	leaseholdv1.StreamService_OpenClient
}

func dialDirectIdle(ctx context.Context, addr string, conf *tls.Config) (idleConn, error) {
	if conf != nil {
		conf = conf.Clone()
		conf.NextProtos = []string{direct.Protocol}
	}
	c, err := dialRaw(ctx, addr, conf)
	if err != nil {
		return nil, err
	}
	return newOwnSession(&directStream{Conn: c}), nil
}

func (s *directStream) begin() error {
	stream, err := direct.Open(context.Background(), s.Conn,
		leaseholdv1.StreamService_Open_FullMethodName, wire.Codec())
	s.StreamService_OpenClient = &grpc.GenericClientStream[
		leaseholdv1.ClientMessage, leaseholdv1.ServerMessage]{ClientStream: stream}
	return err
}

func (s *directStream) send(m *leaseholdv1.ClientMessage) error { return s.Send(m) }

// receive reads until the connection ends or f returns an error.
func (s *directStream) receive(f func(*leaseholdv1.ServerMessage) error) error {
	for {
		m, err := s.Recv()
		if err == nil {
			err = f(m)
		}
		if err != nil {
			return err
		}
	}
}

var errGranted = errors.New("granted")

// open implements idleConn.
func (w *ownSession) open() error {
	if err := w.begin(); err != nil {
		return err
	}
	m := &leaseholdv1.ClientMessage{}
	for range w.leases {
		w.number++
		m.Requests = append(m.Requests, &leaseholdv1.Request{
			Id: w.number, Body: &leaseholdv1.Request_Grant{
				Grant: &leaseholdv1.GrantRequest{TtlMs: w.ttl.Milliseconds()},
			},
		})
	}
	if err := w.send(m); err != nil {
		return err
	}
	err := w.receive(func(m *leaseholdv1.ServerMessage) error {
		for _, r := range m.Responses {
			g := r.GetGrant().GetLease()
			if g == nil {
				return fmt.Errorf("bench: no lease: %v", m)
			}
			w.ids, w.tokens = append(w.ids, g.Id), append(w.tokens, g.Token)
		}
		if len(w.ids) < w.leases {
			return nil
		}
		return errGranted
	})
	if !errors.Is(err, errGranted) {
		return err
	}
	return w.renew() // renew early, as clients do, before the member checkpoints the leases
}

// renew implements idleConn.
func (w *ownSession) renew() error { return w.request(w.renewal()) }

func (w *ownSession) renewal() *leaseholdv1.Request {
	return &leaseholdv1.Request{Body: &leaseholdv1.Request_Renew{
		Renew: &leaseholdv1.RenewRequest{Ids: w.ids, Tokens: w.tokens},
	}}
}

// request sends a request with the next number.
func (w *ownSession) request(r *leaseholdv1.Request) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	r.Id = w.number
	return w.send(&leaseholdv1.ClientMessage{Requests: []*leaseholdv1.Request{r}})
}

var errAnswered = errors.New("answered")

// ask sends a request and waits for its first response.
func (w *ownSession) ask(r *leaseholdv1.Request) error {
	if err := w.request(r); err != nil {
		return err
	}
	err := w.receive(func(m *leaseholdv1.ServerMessage) error {
		for _, got := range m.Responses {
			if got.Id != r.Id {
				continue
			}
			if e := got.GetError(); e != nil {
				return fmt.Errorf("bench: %v", e)
			}
			return errAnswered
		}
		return nil
	})
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}

// follow implements idleConn.
func (w *ownSession) follow(renewed func()) error {
	var unknown uint64 // the request that contains a lease whose renewal outcome is unknown
	return w.receive(func(m *leaseholdv1.ServerMessage) error {
		for _, r := range m.Responses {
			if r.GetError().GetReason() == leaseholdv1.Reason_REASON_UNAVAILABLE {
				// The member is busy, but the next renewal comes long before the leases expire.
				continue
			}
			if r.GetRenew() == nil {
				return fmt.Errorf("bench: leases %d were not renewed: %v", w.ids, r)
			}
			for _, x := range r.GetRenew().Results {
				switch x.Reason {
				case leaseholdv1.Reason_REASON_UNSPECIFIED:
				case leaseholdv1.Reason_REASON_LEASE_NOT_FOUND:
					return fmt.Errorf("bench: lease %d has ended: %v", x.Id, x)
				default:
					unknown = r.Id
				}
			}
			if !r.More && r.Id != unknown {
				renewed()
			}
		}
		return nil
	})
}

// etcdWire is a session over etcd's API. It consists of a call that grants the lease and a stream
// that keeps the lease alive.
type etcdWire struct {
	*wireConn
	id int64
}

const (
	grantStream = 1
	keepStream  = 3
)

func dialEtcdIdle(ctx context.Context, addr string, conf *tls.Config) (idleConn, error) {
	c, err := dialWire(ctx, addr, conf)
	if err != nil {
		return nil, err
	}
	return &etcdWire{wireConn: c}, nil
}

// open implements idleConn.
func (w *etcdWire) open() error {
	if err := w.wireConn.open(grantStream, pb.Lease_LeaseGrant_FullMethodName); err != nil {
		return err
	}
	grant := &pb.LeaseGrantRequest{TTL: int64(idleTTL / time.Second)}
	if err := w.send(grantStream, grant, true); err != nil {
		return err
	}
	err := w.receive(func(_ uint32, b []byte) error {
		var m pb.LeaseGrantResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			return err
		}
		w.id = m.ID
		return errGranted
	})
	if !errors.Is(err, errGranted) {
		return err
	}
	return w.wireConn.open(keepStream, pb.Lease_LeaseKeepAlive_FullMethodName)
}

// renew implements idleConn.
func (w *etcdWire) renew() error {
	return w.send(keepStream, &pb.LeaseKeepAliveRequest{ID: w.id}, false)
}

// follow implements idleConn.
func (w *etcdWire) follow(renewed func()) error {
	return w.receive(func(_ uint32, b []byte) error {
		var m pb.LeaseKeepAliveResponse
		if err := proto.Unmarshal(b, &m); err != nil {
			return err
		}
		if m.ID != w.id || m.TTL <= 0 {
			return fmt.Errorf("bench: lease %d was not renewed: %v", w.id, &m)
		}
		renewed()
		return nil
	})
}
