package native

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
)

// Each operation of leasehold.v1 is implemented by one function, which checks the request and
// returns a job. A unary call performs one job and waits for it. A stream performs many jobs
// concurrently. JSON, the framed stream, and relays use the same calls and streams.

// job describes how to get from a request to its response. Either the run function does everything,
// or the answer function creates the response. Before answer is called, the job proposes a command,
// waits for a confirm round, or does neither.
type job struct {
	// command is proposed if it is not nil.
	command fsm.Command
	// confirm waits for a confirm round.
	confirm bool
	// fill requests permission to cache the result of the confirm round.
	fill *replica.Fill
	// permit returns an error if the caller may not receive the response. Its argument comes from
	// the view used for the response. permit is nil if the result of the command already determines
	// this.
	permit func(authorizer) error
	// answer creates the response.
	answer answerer
	// rest returns more steps for some outcomes of the command, and nil for the others. The
	// response from these steps replaces answer's response. rest may be nil.
	rest rester
	// run performs several steps and may block.
	run steps
	// writes reports whether run may change something.
	writes bool
	// large reports whether run may return a large response.
	large bool
}

// steps are blocking steps that produce a response.
type steps func(context.Context) (proto.Message, error)

type rester interface {
	rest(res *fsm.Result, err error) steps
}

// An answerer creates a response from a view and, if there was a command, from its result.
type answerer interface {
	answer(v *fsm.View, res *fsm.Result) (proto.Message, error)
}

// answer implements answerer with a function. The most frequent requests use other types, which do
// not allocate.
type answer func(v *fsm.View, res *fsm.Result) (proto.Message, error)

func (f answer) answer(v *fsm.View, res *fsm.Result) (proto.Message, error) { return f(v, res) }

// jobOf checks a request and returns its job. A nonzero number identifies the write in its session.
// jobOf applies the number to the commands that run proposes. The caller of jobOf must apply it to
// job.command.
func (s *store) jobOf(ctx context.Context, r proto.Message, n number) (job, error) {
	switch r := r.(type) {
	case *pb.PutRequest:
		return s.putJob(ctx, r)
	case *pb.DeleteRequest:
		return s.deleteJob(r)
	case *pb.RangeRequest:
		return s.rangeJob(r)
	case *pb.TxnRequest:
		return s.txnJob(ctx, r, api.Caller(ctx))
	case *pb.GrantRequest:
		return s.grantJob(ctx, r)
	case *pb.SessionRequest:
		return s.sessionJob(r)
	case *pb.DescribeRequest:
		return reading(s.describe, r, r.Keys), nil
	case *pb.ListRequest:
		return reading(s.list, r, true), nil
	case *pb.CheckTokenRequest:
		return reading(s.checkToken, r, false), nil
	case *pb.RevokeRequest:
		return writing(s.revoke, r, n), nil
	case *pb.ChangeTTLRequest:
		return writing(s.changeTTL, r, n), nil
	case *pb.HandOverRequest:
		return writing(s.handOver, r, n), nil
	case *pb.ResumeRequest:
		return writing(s.resume, r, n), nil
	case *pb.AttachRequest:
		return writing(s.attach, r, n), nil
	case *pb.DetachRequest:
		return writing(s.detach, r, n), nil
	default:
		return job{}, invalid("the request has an unsupported body")
	}
}

func reading[Request, Response proto.Message](
	f func(context.Context, Request) (Response, error), r Request, large bool,
) job {
	run := func(ctx context.Context) (proto.Message, error) { return f(ctx, r) }
	return job{run: run, large: large}
}

func writing[Request, Response proto.Message](
	f func(context.Context, Request, number) (Response, error), r Request, n number,
) job {
	run := func(ctx context.Context) (proto.Message, error) { return f(ctx, r, n) }
	return job{run: run, writes: true}
}

// perform performs the job of a unary call.
func perform[Response proto.Message](
	ctx context.Context, s *store, r proto.Message,
) (out Response, err error) {
	j, err := s.jobOf(ctx, r, number{})
	if err != nil {
		return out, err
	}
	m, err := s.perform(ctx, j, r)
	if err != nil {
		return out, err
	}
	return m.(Response), nil
}

func (s *store) perform(ctx context.Context, j job, r proto.Message) (proto.Message, error) {
	if j.run != nil {
		return j.run(ctx)
	}
	if mayReadMuch(j, r) {
		if err := listen.RoomFor(ctx, s.keysRead(j, r)); err != nil {
			return nil, err
		}
	}
	var res fsm.Result
	var err error
	if j.command != nil {
		res, err = s.propose(ctx, j.command)
		if j.rest != nil {
			if rest := j.rest.rest(&res, err); rest != nil {
				return rest(ctx)
			}
		}
	} else if j.confirm {
		err = s.leases.node.Inspect(ctx, nil)
	}
	v := s.leases.node.View()
	if err == nil && j.permit != nil {
		err = j.permit(authorizerOf(ctx, v))
	}
	if err != nil {
		return nil, err
	}
	return j.answer.answer(v, &res)
}

// mayReadMuch reports whether the response to a request may contain many key-value pairs.
func mayReadMuch(j job, r proto.Message) bool {
	if j.command != nil {
		return api.MayBeLarge(j.command)
	}
	one, ok := r.(*pb.RangeRequest)
	return ok && !one.CountOnly && api.ManyKeys(string(one.RangeEnd), one.Limit)
}

// keysRead returns the approximate number of key-value pairs in the response to a request.
func (s *store) keysRead(j job, r proto.Message) int64 {
	v := s.leases.node.View().KV
	if j.command != nil {
		return api.KeysReturned(j.command, v)
	}
	if one, ok := r.(*pb.RangeRequest); ok {
		return v.Visits(string(one.Key), string(one.RangeEnd), mvcc.RangeOptions{Limit: one.Limit})
	}
	return 0
}

// unary serves the unary calls of LeaseService, except Renew, and of StoreService.
type unary struct{ *store }

var (
	_ pb.LeaseServiceServer = unary{}
	_ pb.StoreServiceServer = unary{}
)

// Put implements pb.StoreServiceServer.
func (u unary) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return perform[*pb.PutResponse](ctx, u.store, r)
}

// Delete implements pb.StoreServiceServer.
func (u unary) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return perform[*pb.DeleteResponse](ctx, u.store, r)
}

// Range implements pb.StoreServiceServer.
func (u unary) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return perform[*pb.RangeResponse](ctx, u.store, r)
}

// Txn implements pb.StoreServiceServer.
func (u unary) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if r.GetWait() != nil {
		return nil, invalid("only a transaction on a stream can wait")
	}
	return perform[*pb.TxnResponse](ctx, u.store, r)
}

// Grant implements pb.LeaseServiceServer.
func (u unary) Grant(ctx context.Context, r *pb.GrantRequest) (*pb.GrantResponse, error) {
	return perform[*pb.GrantResponse](ctx, u.store, r)
}

// Describe implements pb.LeaseServiceServer.
func (u unary) Describe(ctx context.Context, r *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return perform[*pb.DescribeResponse](ctx, u.store, r)
}

// List implements pb.LeaseServiceServer.
func (u unary) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	return perform[*pb.ListResponse](ctx, u.store, r)
}

// CheckToken implements pb.LeaseServiceServer.
func (u unary) CheckToken(
	ctx context.Context, r *pb.CheckTokenRequest,
) (*pb.CheckTokenResponse, error) {
	return perform[*pb.CheckTokenResponse](ctx, u.store, r)
}

// Revoke implements pb.LeaseServiceServer.
func (u unary) Revoke(ctx context.Context, r *pb.RevokeRequest) (*pb.RevokeResponse, error) {
	return perform[*pb.RevokeResponse](ctx, u.store, r)
}

// ChangeTTL implements pb.LeaseServiceServer.
func (u unary) ChangeTTL(
	ctx context.Context, r *pb.ChangeTTLRequest,
) (*pb.ChangeTTLResponse, error) {
	return perform[*pb.ChangeTTLResponse](ctx, u.store, r)
}

// HandOver implements pb.LeaseServiceServer.
func (u unary) HandOver(ctx context.Context, r *pb.HandOverRequest) (*pb.HandOverResponse, error) {
	return perform[*pb.HandOverResponse](ctx, u.store, r)
}

// Resume implements pb.LeaseServiceServer.
func (u unary) Resume(ctx context.Context, r *pb.ResumeRequest) (*pb.ResumeResponse, error) {
	return perform[*pb.ResumeResponse](ctx, u.store, r)
}

// Attach implements pb.LeaseServiceServer.
func (u unary) Attach(ctx context.Context, r *pb.AttachRequest) (*pb.AttachResponse, error) {
	return perform[*pb.AttachResponse](ctx, u.store, r)
}

// Detach implements pb.LeaseServiceServer.
func (u unary) Detach(ctx context.Context, r *pb.DetachRequest) (*pb.DetachResponse, error) {
	return perform[*pb.DetachResponse](ctx, u.store, r)
}

// Watch implements pb.StoreServiceServer.
func (u unary) Watch(r *pb.WatchRequest, out grpc.ServerStreamingServer[pb.WatchResponse]) error {
	return u.ended(out.Context(), u.watch(r, out))
}
