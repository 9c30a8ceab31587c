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

// Options say how the service is served.
type Options struct {
	// ClusterID and MemberID are told in every answer.
	ClusterID, MemberID uint64
	// MinTTL is the shortest TTL of a lease: 100 ms.
	MinTTL lease.TTL
	// MaxCacheTTL is the longest TTL of a lease that holds ranges: 5 s.
	MaxCacheTTL lease.TTL
	// MaxKeys is how many keys a lease may have that were attached by this API: 10,000.
	MaxKeys int
	// MaxRequestBytes bounds a request: 1.5 MiB.
	MaxRequestBytes int
	// MaxTxnOps bounds the conditions, and the operations of each branch, of a
	// transaction: 128.
	MaxTxnOps int
	// Guard puts before the methods of a service what refuses calls of clients that
	// want a leader, and calls to a learner; nil refuses none.
	Guard func(grpc.ServiceDesc) *grpc.ServiceDesc
	// GuardStream is Guard for the streams of StreamService. It is an intercept.Chain.
	GuardStream intercept.Stream
	// Admit refuses a request on a stream if its caller makes too many. Nil refuses none.
	Admit func(context.Context) error
	// Renewals bounds what the renewals of one principal cost. Nil: an own bound.
	Renewals *api.Renewals
	// Panics ends the calls that panic. Nil ends none: the process does.
	Panics *listen.Panics
	// Trace begins the trace of a request of a stream, nil for one of which no spans are made. Nil
	// makes none of any.
	Trace func(r *pb.Request) Traced
	// Slow takes note of requests of a stream that take long.
	Slow Slow
	// Bindings are those by which the member goes; nil for one that binds nobody.
	Bindings *binding.Bindings
	// Evidence tells by what the member knows who makes a call, and whether a binding says so; nil
	// for a member that does not tell.
	Evidence func(ctx context.Context) (by pb.WhoAmIResponse_Evidence, bound bool)
	// Stop, when it is closed, ends all waits. Nil never ends them.
	Stop <-chan struct{}

	// maxAnswer bounds a response over a stream: one for which gRPC has no room in a message
	// would end the stream for all its requests.
	maxAnswer int
	// linger is how long a stream does not rest after a request that is no renewal.
	linger time.Duration
}

// Slow says which requests take long. The zero value takes note of none.
type Slow struct {
	// After is how long a request may take.
	After time.Duration
	// Call returns what becomes of a request of a kind that has begun at an instant. If its
	// Submission was told of as Late, late is that, otherwise nil.
	Call func(kind string, begun time.Time, late Traced) Traced
}

// Traced is a request of which spans are made, or of which it is told where its time went.
type Traced interface {
	// In returns the context of what is asked of the Node for the request.
	In(ctx context.Context) context.Context
	// End says that the request has its answer. Only the first time counts.
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
		o.GuardStream = intercept.Chain() // of nothing
	}
	return o
}

// Register adds the service to a gRPC server, or to what stands for one.
func Register(s grpc.ServiceRegistrar, n Node, o Options) {
	o = o.withDefaults()
	svc := &leases{node: n, o: o}
	keys := &store{leases: svc, node: n}
	s.RegisterService(explained(o.Guard(pb.LeaseService_ServiceDesc)), unary{keys})
	s.RegisterService(explained(o.Guard(pb.AccessService_ServiceDesc)), names{leases: svc})
	s.RegisterService(explained(o.Guard(pb.StoreService_ServiceDesc)), unary{keys})
	s.RegisterService(&pb.StreamService_ServiceDesc, &streams{store: keys})
}

// leases implements the operations of LeaseService. Its methods return plain errors.
type leases struct {
	pb.UnsafeLeaseServiceServer
	node   leaseNode
	o      Options
	causes causes
	lates  lates
}

// reads are the methods that change nothing, so that a failed call can be repeated.
var reads = []string{
	pb.LeaseService_Describe_FullMethodName, pb.LeaseService_List_FullMethodName,
	pb.LeaseService_CheckToken_FullMethodName,
	pb.StoreService_Range_FullMethodName, pb.StoreService_Watch_FullMethodName,
	pb.AccessService_ListNames_FullMethodName, pb.AccessService_ListLimits_FullMethodName,
	pb.AccessService_ListBindings_FullMethodName, pb.AccessService_WhoAmI_FullMethodName,
}

// explained returns the service with each error made a status that explains it, those of
// the guard too. Interceptors of the server see that status.
func explained(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	out := *d
	out.Methods = slices.Clone(d.Methods)
	for i := range out.Methods {
		next := out.Methods[i].Handler
		out.Methods[i].Handler = func(
			srv any, ctx context.Context, dec func(any) error, outer grpc.UnaryServerInterceptor,
		) (any, error) {
			return next(srv, ctx, dec, explain(outer))
		}
	}
	return &out
}

// explain returns an interceptor inside outer, which may be nil.
func explain(outer grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	inner := func(
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
	if outer == nil {
		return inner
	}
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		return outer(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return inner(ctx, req, info, next)
		})
	}
}

// ended returns the status with which a stream of a context ends that has ended with err, and that
// changes nothing. One that its client has ended, or given so much time, says so, and nothing of
// this member.
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

// stopping reports whether the server stops. It may cancel calls then.
func (s *leases) stopping() bool {
	select {
	case <-s.o.Stop:
		return true
	default:
		return false
	}
}

// header returns the header of an answer as of a revision of the store.
func (s *leases) header(v *fsm.View, revision int64) *pb.Header {
	h := new(pb.Header)
	s.fillHeader(h, v, revision)
	return h
}

// fillHeader makes an empty header that of an answer.
func (s *leases) fillHeader(h *pb.Header, v *fsm.View, revision int64) {
	h.ClusterId, h.MemberId, h.Revision, h.Term = s.o.ClusterID, s.o.MemberID, revision, v.Term
}

// header now is as of the newest view.
func (s *leases) headerNow() *pb.Header {
	v := s.node.View()
	return s.header(v, v.KV.Revision())
}

// propose proposes a command, whose refusal is an error like any other.
func (s *leases) propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	res, err := s.node.Propose(ctx, c)
	if err == nil {
		err = res.Err
	}
	return res, err
}
