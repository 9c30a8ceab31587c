package native

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/lease"
)

// Options configures the service.
type Options struct {
	// ClusterID and MemberID are included in the header of every response.
	ClusterID, MemberID uint64
	// MinTTL is the minimum TTL of a lease. The default is 100 ms.
	MinTTL lease.TTL
	// MaxCacheTTL is the maximum TTL of a lease that holds ranges. The default is 5 s.
	MaxCacheTTL lease.TTL
	// MaxKeys is the maximum number of keys that can be attached to a lease through this API. The
	// default is 10,000.
	MaxKeys int
	// MaxRequestBytes is the maximum size of a request. The default is 1.5 MiB.
	MaxRequestBytes int
	// MaxTxnOps limits the number of conditions in a transaction and the number of operations in
	// each branch. The default is 128.
	MaxTxnOps int
	// Guard wraps the methods of a service. It rejects calls to a learner, and calls that require a
	// leader when there is none. If it is nil, no calls are rejected.
	Guard func(grpc.ServiceDesc) *grpc.ServiceDesc
	// GuardStream is Guard for the streams of StreamService. Use intercept.Chain to create it.
	GuardStream intercept.Stream
	// Admit rejects a request on a stream if its caller exceeds its rate limit. If it is nil, no
	// requests are rejected.
	Admit func(context.Context) error
	// Renewals limits the load from one principal's renewals. If it is nil, the service creates its
	// own.
	Renewals *api.Renewals
	// Panics converts a panic in a call into an error. If it is nil, a panic ends the process.
	Panics *listen.Panics
	// Trace starts the trace of a request on a stream. It returns nil if the request is not
	// sampled. If Trace is nil, no requests are sampled.
	Trace func(r *pb.Request) Traced
	// Slow reports slow requests on a stream.
	Slow Slow
	// Bindings contains the member's bindings. It may be nil.
	Bindings *binding.Bindings
	// Evidence returns how the member identified a caller, and whether a binding made the caller a
	// principal. It may be nil if this is unknown.
	Evidence func(ctx context.Context) (by pb.WhoAmIResponse_Evidence, bound bool)
	// When Stop is closed, all streams and waiting calls end. It may be nil.
	Stop <-chan struct{}

	// maxAnswer limits the size of a response on a stream. A response that does not fit into a gRPC
	// message would end the stream and all its requests.
	maxAnswer int
	// linger is the minimum time between a request other than a renewal and the stream's next rest.
	linger time.Duration
}

// Slow configures the reporting of slow requests. The zero value reports none.
type Slow struct {
	// After is the minimum duration of a slow request.
	After time.Duration
	// Call returns the trace for a slow request. kind is the name of its field, and begun is when
	// it began. late is the argument that Late.Late received, or nil.
	Call func(kind string, begun time.Time, late Traced) Traced
}

// Traced is the trace of a request. It is either a set of spans or a log line with the time of each
// step.
type Traced interface {
	// In returns the context for calls to the Node on behalf of the request.
	In(ctx context.Context) context.Context
	// End ends the trace. Only the first call has an effect.
	End(err error)
}

func (o Options) withDefaults() Options {
	if o.MinTTL <= 0 {
		o.MinTTL = 100
	}
	if o.MaxCacheTTL <= 0 {
		o.MaxCacheTTL = usualCacheTTL
	}
	if o.MaxKeys <= 0 {
		o.MaxKeys = 10_000
	}
	if o.MaxRequestBytes <= 0 {
		o.MaxRequestBytes = 3 << 19
	}
	if o.MaxTxnOps <= 0 {
		o.MaxTxnOps = 128
	}
	if o.maxAnswer <= 0 {
		o.maxAnswer = math.MaxInt32 - 2*maxMessage
	}
	if o.linger <= 0 {
		o.linger = usualLinger
	}
	if o.Admit == nil {
		o.Admit = func(context.Context) error { return nil }
	}
	if o.Renewals == nil {
		o.Renewals = api.NewRenewals()
	}
	if o.Guard == nil {
		o.Guard = func(d grpc.ServiceDesc) *grpc.ServiceDesc { return &d }
	}
	if o.GuardStream == nil {
		o.GuardStream = intercept.Chain() // an empty chain
	}
	return o
}

// Register registers the services with a gRPC server.
func Register(s grpc.ServiceRegistrar, n Node, o Options) {
	o = o.withDefaults()
	svc := &leases{node: n, o: o}
	keys := &store{leases: svc, node: n}
	s.RegisterService(explained(o.Guard(pb.LeaseService_ServiceDesc)), unary{keys})
	s.RegisterService(explained(o.Guard(pb.AccessService_ServiceDesc)), names{leases: svc})
	s.RegisterService(explained(o.Guard(pb.StoreService_ServiceDesc)), unary{keys})
	s.RegisterService(&pb.StreamService_ServiceDesc, &streams{store: keys})
}

// leases implements the operations of LeaseService. Its methods return plain errors, without a gRPC
// status.
type leases struct {
	pb.UnsafeLeaseServiceServer
	node       Node
	o          Options
	causes     causes
	lateChecks lateChecks
}

// reads lists the methods that change nothing. They can be retried after any failure.
var reads = []string{
	pb.LeaseService_Describe_FullMethodName, pb.LeaseService_List_FullMethodName,
	pb.LeaseService_CheckToken_FullMethodName,
	pb.StoreService_Range_FullMethodName, pb.StoreService_Watch_FullMethodName,
	pb.AccessService_ListNames_FullMethodName, pb.AccessService_ListLimits_FullMethodName,
	pb.AccessService_ListBindings_FullMethodName, pb.AccessService_WhoAmI_FullMethodName,
}

// explained wraps the methods of a service so that their errors become statuses with a reason. The
// server's interceptors see these statuses.
func explained(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	return intercept.Inside(
		*d, func(context.Context) grpc.UnaryServerInterceptor { return explain }, nil,
	)
}

// explain is an interceptor that adds reasons to errors.
func explain(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	resp, err := next(ctx, req)
	if err == nil {
		return resp, nil
	}
	reason := api.Reason(err)
	if slices.Contains(reads, info.FullMethod) {
		reason = api.ReadReason(err)
	}
	return nil, api.NativeError(err, reason)
}

// ended returns the status for a read-only stream that ended with err. If the client canceled the
// stream or its deadline passed, the status reports that.
func (s *leases) ended(ctx context.Context, err error) error {
	if err == nil || api.Detail(err) != nil {
		return err
	}
	why := status.FromContextError(context.Cause(ctx))
	if c := why.Code(); (c == codes.Canceled || c == codes.DeadlineExceeded) && !s.stopping() {
		return why.Err()
	}
	return api.NativeError(err, api.ReadReason(err))
}

// stopping reports whether the server is stopping. Stopping may cancel calls.
func (s *leases) stopping() bool {
	select {
	case <-s.o.Stop:
		return true
	default:
		return false
	}
}

// header returns the header of a response that reports the given revision of the store.
func (s *leases) header(v *fsm.View, revision int64) *pb.Header {
	h := new(pb.Header)
	s.fillHeader(h, v, revision)
	return h
}

// fillHeader fills in an empty header.
func (s *leases) fillHeader(h *pb.Header, v *fsm.View, revision int64) {
	h.ClusterId, h.MemberId, h.Revision, h.Term = s.o.ClusterID, s.o.MemberID, revision, v.Term
}

// headerNow returns a header for the newest view.
func (s *leases) headerNow() *pb.Header {
	v := s.node.View()
	return s.header(v, v.KV.Revision())
}

// propose proposes a command and waits for its result. If the command fails when applied, propose
// returns its error.
func (s *leases) propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	res, err := s.node.Propose(ctx, c)
	if err == nil {
		err = res.Err
	}
	return res, err
}
