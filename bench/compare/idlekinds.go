package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
)

// ownWire is a session over the stream of leasehold.v1.
type ownWire struct {
	*wireConn
	id     int64
	token  uint64
	number uint64
}

const ownStream = 1

func dialOwnIdle(ctx context.Context, addr string, conf *tls.Config) (idleConn, error) {
	c, err := dialWire(ctx, addr, conf)
	if err != nil {
		return nil, err
	}
	return &ownWire{wireConn: c}, nil
}

var errGranted = errors.New("granted")

// open implements idleConn.
func (w *ownWire) open() error {
	err := w.wireConn.open(ownStream, leaseholdv1.StreamService_Open_FullMethodName)
	if err != nil {
		return err
	}
	w.number++
	err = w.send(ownStream, &leaseholdv1.ClientMessage{Requests: []*leaseholdv1.Request{{
		Id: w.number, Body: &leaseholdv1.Request_Grant{
			Grant: &leaseholdv1.GrantRequest{TtlMs: idleTTL.Milliseconds()},
		},
	}}}, false)
	if err != nil {
		return err
	}
	err = w.receive(func(_ uint32, b []byte) error {
		var m leaseholdv1.ServerMessage
		if err := proto.Unmarshal(b, &m); err != nil || len(m.Responses) == 0 {
			return err
		}
		g := m.Responses[0].GetGrant().GetLease()
		if g == nil {
			return fmt.Errorf("bench: no lease: %v", &m)
		}
		w.id, w.token = g.Id, g.Token
		return errGranted
	})
	if !errors.Is(err, errGranted) {
		return err
	}
	return nil
}

// renew implements idleConn.
func (w *ownWire) renew() error {
	w.number++
	return w.send(ownStream, &leaseholdv1.ClientMessage{Requests: []*leaseholdv1.Request{{
		Id: w.number, Body: &leaseholdv1.Request_Renew{
			Renew: &leaseholdv1.RenewRequest{Ids: []int64{w.id}, Tokens: []uint64{w.token}},
		},
	}}}, false)
}

// follow implements idleConn.
func (w *ownWire) follow(renewed func()) error {
	return w.receive(func(_ uint32, b []byte) error {
		var m leaseholdv1.ServerMessage
		if err := proto.Unmarshal(b, &m); err != nil {
			return err
		}
		for _, r := range m.Responses {
			ttl := r.GetRenew().GetTtlMs()
			if len(ttl) != 1 || ttl[0] <= 0 {
				return fmt.Errorf("bench: lease %d was not renewed: %v", w.id, r)
			}
			renewed()
		}
		return nil
	})
}

// etcdWire is a session over etcd's API: a call that grants, and a stream that keeps alive.
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

func dialZooIdle(ctx context.Context, addr string, _ *tls.Config) (idleConn, error) {
	z, err := dialZoo(ctx, addr, int32(idleTTL.Milliseconds()))
	if err != nil {
		return nil, err
	}
	return zooIdle{z}, nil
}

// zooIdle is a session of ZooKeeper.
type zooIdle struct{ *zooWire }

// open implements idleConn: to connect was all.
func (zooIdle) open() error { return nil }

// renew implements idleConn.
func (z zooIdle) renew() error { return z.ping() }

// follow implements idleConn.
func (z zooIdle) follow(renewed func()) error {
	for {
		if err := z.skip(); err != nil {
			return err
		}
		renewed()
	}
}
