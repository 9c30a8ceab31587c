package load

import (
	"context"
	"net"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// ServeCeiling responds immediately to KV and Lease calls on addr without doing any work, until ctx
// ends. It uses unmodified grpc-go with default options, so its throughput is an upper bound for
// etcd's API on this machine.
//
// If store is not nil, the response to a put, grant or revoke is sent only after store returns.
// Many goroutines call store concurrently.
func ServeCeiling(ctx context.Context, addr string, store func(request []byte) error) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return serveCeiling(ctx, l, store)
}

func serveCeiling(ctx context.Context, l net.Listener, store func(request []byte) error) error {
	s := grpc.NewServer()
	c := &ceiling{value: make([]byte, ValueSize), store: store}
	pb.RegisterKVServer(s, c)
	pb.RegisterLeaseServer(s, ceilingLease{c: c})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	return s.Serve(l)
}

// ceiling makes up responses of the same size as a real server's.
type ceiling struct {
	pb.UnimplementedKVServer
	value    []byte
	store    func(request []byte) error // nil means that nothing is stored
	revision atomic.Int64
}

// keep stores a request if a store function is given.
func (c *ceiling) keep(m proto.Message) error {
	if c.store == nil {
		return nil
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return c.store(b)
}

func (c *ceiling) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: 0xcdf818194e3a8c32, MemberId: 0x8e9e05c52164694d, RaftTerm: 2,
		Revision: c.revision.Add(1),
	}
}

func (c *ceiling) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	h := c.header()
	kv := &mvccpb.KeyValue{
		Key: r.Key, Value: c.value, Version: 1, CreateRevision: h.Revision, ModRevision: h.Revision,
	}
	return &pb.RangeResponse{Header: h, Kvs: []*mvccpb.KeyValue{kv}, Count: 1}, nil
}

func (c *ceiling) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return &pb.PutResponse{Header: c.header()}, c.keep(r)
}

type ceilingLease struct {
	pb.UnimplementedLeaseServer
	c *ceiling
}

func (s ceilingLease) LeaseGrant(
	_ context.Context, r *pb.LeaseGrantRequest,
) (*pb.LeaseGrantResponse, error) {
	h := s.c.header()
	id := r.ID
	if id == 0 {
		id = 0x694d9d3a3c4e0000 + h.Revision // its encoding is as long as a real ID's
	}
	return &pb.LeaseGrantResponse{Header: h, ID: id, TTL: r.TTL}, s.c.keep(r)
}

func (s ceilingLease) LeaseRevoke(
	_ context.Context, r *pb.LeaseRevokeRequest,
) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{Header: s.c.header()}, s.c.keep(r)
}

func (s ceilingLease) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil // the client is done
		}
		resp := &pb.LeaseKeepAliveResponse{Header: s.c.header(), ID: r.ID, TTL: 3600}
		if err := stream.Send(resp); err != nil {
			return nil
		}
	}
}
