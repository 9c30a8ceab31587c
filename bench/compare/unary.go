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

// unary returns a workload of closed-loop callers that perform one operation.
func unary(name string, callers int, prepare unaryOp) Workload {
	doc := fmt.Sprintf("closed loop, callers: %d", callers)
	return Workload{Name: name, Doc: doc, Ceiling: true, run: inLoop(callers, prepare)}
}

// inLoop measures an operation in a closed loop of callers.
func inLoop(callers int, prepare unaryOp) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		f, err := prepare(ctx, e)
		if err != nil {
			return Result{}, err
		}
		var cold load.Histogram
		before := max(warmUp, e.Server.Target.WarmUp)
		if err := closedLoop(ctx, callers, before, &cold, f); err != nil {
			return Result{}, err
		}
		var m measure
		err = m.during(e.Server, func() error {
			return closedLoop(ctx, callers, e.Duration, &m.hist, f)
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

// nodeLeases is the number of node leases that nodeLeaseOp updates. The largest Kubernetes clusters
// with published measurements have that many nodes.
const nodeLeases = 130_000

// nodeLeaseOp updates a node's lease object the way kube-apiserver does. A transaction puts the
// object if its revision is still the one last read, and otherwise reads it. An object has about
// 400 bytes.
func nodeLeaseOp(ctx context.Context, e *Env) (load.Op, error) {
	name := func(i int) []byte {
		return fmt.Appendf(nil, "/registry/leases/kube-node-lease/node-%06d", i)
	}
	value := make([]byte, 400)
	revisions := make([]int64, nodeLeases) // each element is written by one caller
	err := load.Spread(ctx, 512, nodeLeases, func(ctx context.Context, caller, i int) error {
		r, err := e.Client.KV(caller).Put(ctx, &pb.PutRequest{Key: name(i), Value: value})
		revisions[i] = r.GetHeader().GetRevision()
		return err
	})
	const callers = 64
	return func(ctx context.Context, caller, i int) error {
		node := (caller + i*callers) % (nodeLeases / callers * callers)
		key := name(node)
		r, err := e.Client.KV(caller).Txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{{
				Key: key, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
				TargetUnion: &pb.Compare_ModRevision{ModRevision: revisions[node]},
			}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{
				RequestPut: &pb.PutRequest{Key: key, Value: value},
			}}},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{
				RequestRange: &pb.RangeRequest{Key: key},
			}}},
		})
		if err == nil && !r.Succeeded {
			err = fmt.Errorf("bench: the update of node %d at revision %d failed", node, revisions[node])
		}
		revisions[node] = r.GetHeader().GetRevision()
		return err
	}, err
}

// runRevoke alternates between granting and revoking, and measures only the revokes.
func runRevoke(ctx context.Context, e *Env) (Result, error) {
	const batch = 10_000
	var m measure
	for m.elapsed < e.Duration {
		leases, err := e.grantMany(ctx, batch, longTTL)
		if err != nil {
			return Result{}, err
		}
		hists := make([]load.Histogram, 64)
		err = m.during(e.Server, func() error {
			return load.Spread(ctx, len(hists), batch, func(ctx context.Context, caller, i int) error {
				began := time.Now()
				_, err := e.Client.Lease(caller).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: leases[i]})
				hists[caller].Add(time.Since(began))
				return err
			})
		})
		if err != nil {
			return Result{}, err
		}
		for i := range hists {
			m.hist.Merge(&hists[i])
		}
	}
	return m.result(), nil
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

func (e *Env) put(ctx context.Context, caller int, r *pb.PutRequest) error {
	_, err := e.Client.KV(caller).Put(ctx, r)
	return err
}
