package etcd

import (
	"runtime"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/intercept"
)

// Register registers all services, server reflection and the health service. The server must have
// been created with ServerOptions, called with the same options.
func Register(s reflection.GRPCServer, n Node, o Options) {
	o = o.withDefaults()
	st := n.Status()
	id := identity{cluster: st.ClusterID, member: st.MemberID}
	hs := health.NewServer()
	stop := stopping(o.Stop, hs.Shutdown)
	q := queue{identity: id, node: n, maxKeys: o.MaxKeys, stop: stop}
	guard, _ := Guard(n, o)

	for _, svc := range []struct {
		desc *grpc.ServiceDesc
		impl any
	}{
		{&etcdserverpb.KV_ServiceDesc, &kvService{
			identity: id, node: n, maxOps: o.MaxTxnOps, maxKeys: o.MaxKeys, maxBytes: o.MaxRequestBytes,
		}},
		{&etcdserverpb.Lease_ServiceDesc, &leaseService{
			identity: id, node: n, stop: stop, panics: o.Panics, renewals: o.Renewals,
		}},
		{&etcdserverpb.Watch_ServiceDesc, &watchService{
			identity: id, node: n, maxBytes: o.MaxRequestBytes + requestOverhead,
			interval: o.ProgressInterval, stop: stop, panics: o.Panics,
			admit: o.Admit,
		}},
		{&etcdserverpb.Maintenance_ServiceDesc, &maintenanceService{
			identity: id, node: n, snapshots: make(chan struct{}, maxSnapshots),
			hashing: make(chan struct{}, 1),
		}},
		{&etcdserverpb.Cluster_ServiceDesc, &clusterService{identity: id, node: n}},
		{&etcdserverpb.Auth_ServiceDesc, &authService{identity: id, node: n}},
		{&v3lockpb.Lock_ServiceDesc, &lockService{queue: q}},
		{&v3electionpb.Election_ServiceDesc, &electionService{queue: q}},
	} {
		s.RegisterService(guard(*svc.desc), svc.impl)
	}
	grpc_health_v1.RegisterHealthServer(s, hs)
	registerReflection(s)
}

// Guard returns the checks that Register adds to each service. When there is no leader, calls that
// require one are rejected, and streams that require one end. A learner serves only a few methods.
// Use Guard for services of other packages on the same server. The returned stream function does
// the same for streams without a service.
func Guard(n Node, o Options) (
	service func(grpc.ServiceDesc) *grpc.ServiceDesc, stream intercept.Stream,
) {
	st := n.Status()
	g := &leaderGuard{node: n, interval: o.withDefaults().LeaderInterval}
	learner := learnerGuard{identity: identity{st.ClusterID, st.MemberID}, node: n}
	service = func(d grpc.ServiceDesc) *grpc.ServiceDesc { return learner.guard(*g.guard(d)) }
	return service, intercept.Chain(learner.stream, g.stream)
}

// streamWorkers returns the number of goroutines that gRPC keeps for calls. A reused goroutine
// already has a large enough stack. Each call beyond that number gets a new goroutine. In a
// benchmark on two CPUs with 64 concurrent puts, a put cost 36 us of CPU time (client included)
// without workers, and 30 us with 64 to 256 of them.
func streamWorkers() uint32 { return uint32(64 * runtime.GOMAXPROCS(0)) }
