package compare

import (
	"context"
	"fmt"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

// warmUp is how long an open-ended workload runs before it is measured.
const warmUp = 500 * time.Millisecond

// A unaryOp prepares an operation in an Env.
type unaryOp func(context.Context, *Env) (load.Op, error)

// loopCallers is the number of callers in a closed loop.
const loopCallers = 64

// unary returns a workload of closed-loop callers that perform one operation.
func unary(name string, prepare unaryOp) Workload {
	return Workload{
		Name: fmt.Sprintf("%s/%d", name, loopCallers), Ceiling: true, run: inLoop(prepare),
		Doc: fmt.Sprintf("closed loop, callers: %d", loopCallers),
	}
}

// inLoop measures an operation in a closed loop of callers.
func inLoop(prepare unaryOp) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		f, err := prepare(ctx, e)
		if err != nil {
			return Result{}, err
		}
		var cold load.Histogram
		before := max(warmUp, e.Server.Target.WarmUp)
		if err := closedLoop(ctx, loopCallers, before, &cold, f); err != nil {
			return Result{}, err
		}
		var m measure
		err = m.during(e.Server, func() error {
			return closedLoop(ctx, loopCallers, e.Duration, &m.hist, f)
		})
		return m.result(), err
	}
}

func grantOp(_ context.Context, e *Env) (load.Op, error) {
	return func(ctx context.Context, caller, _ int) error {
		_, err := e.grant(ctx, caller, longTTL)
		return err
	}, nil
}

// putOp puts 128 bytes into one of 1,000 keys per caller. Each key is attached to the caller's
// lease.
func putOp(ctx context.Context, e *Env) (load.Op, error) {
	const keys = 1000
	leases, err := e.grantMany(ctx, 1024, longTTL)
	if err != nil {
		return nil, err
	}
	value := make([]byte, load.ValueSize)
	return func(ctx context.Context, caller, i int) error {
		key := fmt.Appendf(nil, "put/%04d/%04d", caller, i%keys)
		return e.put(ctx, caller, &pb.PutRequest{Key: key, Value: value, Lease: leases[caller]})
	}, nil
}

// getOp reads one of 1,000 keys, linearizably.
func getOp(ctx context.Context, e *Env) (load.Op, error) {
	const keys = 1000
	value := make([]byte, load.ValueSize)
	name := func(i int) []byte { return append([]byte("get/"), strconv.Itoa(i%keys)...) }
	err := load.Spread(ctx, 64, keys, func(ctx context.Context, caller, i int) error {
		return e.put(ctx, caller, &pb.PutRequest{Key: name(i), Value: value})
	})
	return func(ctx context.Context, caller, i int) error {
		r, err := e.Client.KV(caller).Range(ctx, &pb.RangeRequest{Key: name(caller + i)})
		if err == nil && len(r.Kvs) != 1 {
			err = fmt.Errorf("bench: got %d pairs for a key that exists", len(r.Kvs))
		}
		return err
	}, err
}

// awaitApplied waits until each connected member has applied everything acknowledged so far, so
// that serializable reads return it.
func (e *Env) awaitApplied(ctx context.Context) error {
	for i := range e.Client.Len() {
		if _, err := e.Client.KV(i).Range(ctx, rangeRequest([]byte("ready"), false)); err != nil {
			return err
		}
	}
	return nil
}

// grant grants a lease with a TTL in seconds.
func (e *Env) grant(ctx context.Context, caller int, ttl int64) (int64, error) {
	r, err := e.Client.Lease(caller).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: ttl})
	if err != nil {
		return 0, err
	}
	return r.ID, nil
}

// grantMany grants n leases from many callers.
//
// Leases are granted over the connection of the stream that renews them, because they belong to
// that connection's user.
func (e *Env) grantMany(ctx context.Context, n int, ttl int64) ([]int64, error) {
	leases := make([]int64, n)
	err := load.Spread(ctx, min(n, 512), n, func(ctx context.Context, _, i int) error {
		id, err := e.grant(ctx, i*load.RenewStreams/n, ttl)
		leases[i] = id
		return err
	})
	return leases, err
}

// grantWithKey grants a lease and attaches a key to it.
func (e *Env) grantWithKey(ctx context.Context, caller int, key []byte, ttl int64) error {
	id, err := e.grant(ctx, caller, ttl)
	if err != nil {
		return err
	}
	return e.put(ctx, caller, &pb.PutRequest{Key: key, Value: make([]byte, load.ValueSize), Lease: id})
}

func (e *Env) put(ctx context.Context, caller int, r *pb.PutRequest) error {
	_, err := e.Client.KV(caller).Put(ctx, r)
	return err
}
