package e2e

import (
	"context"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

var limits = []limit{
	{
		name: "put of an empty key",
		call: put(&pb.PutRequest{}),
		want: "InvalidArgument: etcdserver: key is not provided",
	},
	{
		name: "put of a key that is a zero byte",
		call: put(&pb.PutRequest{Key: []byte{0}}),
		want: "OK",
	},
	{
		name: "put on an unknown lease",
		call: put(&pb.PutRequest{Key: []byte("k"), Lease: 12345}),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "put on lease -1",
		call: put(&pb.PutRequest{Key: []byte("k"), Lease: -1}),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "put on the smallest lease",
		call: put(&pb.PutRequest{Key: []byte("k"), Lease: math.MinInt64}),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "put with a value it is to ignore",
		call: put(&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), IgnoreValue: true}),
		want: "InvalidArgument: etcdserver: value is provided",
	},
	{
		name: "put with a lease it is to ignore",
		call: put(&pb.PutRequest{Key: []byte("k"), Lease: 77, IgnoreLease: true}),
		want: "InvalidArgument: etcdserver: lease is provided",
	},
	{
		name: "put that keeps the value of no key",
		call: put(&pb.PutRequest{Key: []byte("none"), IgnoreValue: true}),
		want: "InvalidArgument: etcdserver: key not found",
	},
	{
		name: "put that keeps the lease of no key",
		call: put(&pb.PutRequest{Key: []byte("none"), IgnoreLease: true}),
		want: "InvalidArgument: etcdserver: key not found",
	},
	{
		name: "put just small enough",
		call: put(&pb.PutRequest{Key: []byte("k"), Value: make([]byte, maxBytes-100)}),
		want: "OK",
	},
	{
		name: "put too large",
		call: put(&pb.PutRequest{Key: []byte("k"), Value: make([]byte, maxBytes)}),
		want: "InvalidArgument: etcdserver: request is too large",
	},
	{
		name: "put of 2 MiB",
		call: put(&pb.PutRequest{Key: []byte("k"), Value: make([]byte, 2<<20)}),
		want: "ResourceExhausted: grpc: received message larger than max (2097160 vs. 2097152)",
	},
	{
		name: "put of 3 MiB",
		call: put(&pb.PutRequest{Key: []byte("k"), Value: make([]byte, 3<<20)}),
		want: "ResourceExhausted: grpc: received message larger than max (3145736 vs. 2097152)",
	},
	{
		name: "range of an empty key",
		call: scan(&pb.RangeRequest{}),
		want: "InvalidArgument: etcdserver: key is not provided",
	},
	{
		name: "range with its end before its begin",
		call: scan(&pb.RangeRequest{Key: []byte("z"), RangeEnd: []byte("a")}),
		want: "OK 0",
	},
	{
		name: "range with limit -1",
		call: scan(&pb.RangeRequest{Key: []byte("there"), Limit: -1}),
		want: "OK 1",
	},
	{
		name: "range at revision -1",
		call: scan(&pb.RangeRequest{Key: []byte("there"), Revision: -1}),
		want: "OK 1",
	},
	{
		name: "range at a revision to come",
		call: scan(&pb.RangeRequest{Key: []byte("there"), Revision: 1 << 40}),
		want: "OutOfRange: etcdserver: mvcc: required revision is a future revision",
	},
	{
		name: "range at the largest revision",
		call: scan(&pb.RangeRequest{Key: []byte("there"), Revision: math.MaxInt64}),
		want: "OutOfRange: etcdserver: mvcc: required revision is a future revision",
	},
	{
		name: "range in an unknown order",
		call: scan(&pb.RangeRequest{Key: []byte("there"), SortOrder: 9}),
		want: "InvalidArgument: etcdserver: invalid sort option",
	},
	{
		name: "range by an unknown field",
		call: scan(&pb.RangeRequest{Key: []byte("there"), SortTarget: 9}),
		want: "InvalidArgument: etcdserver: invalid sort option",
	},
	{
		name: "range in order -1",
		call: scan(&pb.RangeRequest{Key: []byte("there"), SortOrder: -1}),
		want: "InvalidArgument: etcdserver: invalid sort option",
	},
	{
		name: "range with impossible bounds",
		call: scan(&pb.RangeRequest{
			Key: []byte("there"), MinModRevision: 9, MaxModRevision: 1,
		}),
		want: "OK 1",
	},
	{
		name: "range with negative bounds",
		call: scan(&pb.RangeRequest{Key: []byte("there"), MaxModRevision: -1}),
		want: "OK 1",
	},
	{
		name: "delete of an empty key",
		call: func(ctx context.Context, c limitClients) (any, error) {
			_, err := c.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{})
			return "", err
		},
		want: "InvalidArgument: etcdserver: key is not provided",
	},
	{
		name: "empty txn",
		call: txn(&pb.TxnRequest{}),
		want: "OK true",
	},
	{
		name: "txn with 128 operations",
		call: txn(&pb.TxnRequest{Success: ops(128)}),
		want: "OK true",
	},
	{
		name: "txn with 129 operations",
		call: txn(&pb.TxnRequest{Success: ops(129)}),
		want: "InvalidArgument: etcdserver: too many operations in txn request",
	},
	{
		name: "txn with 129 operations that are not run",
		call: txn(&pb.TxnRequest{Failure: ops(129)}),
		want: "InvalidArgument: etcdserver: too many operations in txn request",
	},
	{
		name: "txn with 129 comparisons",
		call: txn(&pb.TxnRequest{Compare: comparisons(129)}),
		want: "InvalidArgument: etcdserver: too many operations in txn request",
	},
	{
		name: "txn with 129 operations inside",
		call: txn(&pb.TxnRequest{Success: nested(&pb.TxnRequest{Success: ops(129)})}),
		want: "InvalidArgument: etcdserver: too many operations in txn request",
	},
	{
		name: "txn with 128 operations inside each",
		call: txn(&pb.TxnRequest{
			Success: append(ops(127), nested(&pb.TxnRequest{Success: ops(1)[:0]})...),
		}),
		want: "OK true",
	},
	{
		name: "txn with a key twice",
		call: txn(&pb.TxnRequest{Success: append(ops(1), ops(1)...)}),
		want: "InvalidArgument: etcdserver: duplicate key given in txn request",
	},
	{
		name: "txn with a key twice, one inside",
		call: txn(&pb.TxnRequest{
			Success: append(ops(1), nested(&pb.TxnRequest{Failure: ops(1)})...),
		}),
		want: "InvalidArgument: etcdserver: duplicate key given in txn request",
	},
	{
		name: "txn with an empty key",
		call: txn(&pb.TxnRequest{Success: []*pb.RequestOp{putOp("")}}),
		want: "InvalidArgument: etcdserver: key is not provided",
	},
	{
		name: "txn with an empty operation",
		call: txn(&pb.TxnRequest{Success: []*pb.RequestOp{{}}}),
		want: "InvalidArgument: etcdserver: key not found",
	},
	{
		name: "txn comparing an empty key",
		call: txn(&pb.TxnRequest{Compare: []*pb.Compare{{}}}),
		want: "InvalidArgument: etcdserver: key is not provided",
	},
	{
		name: "txn comparing an unknown field",
		call: txn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("there"), Target: 9}}}),
		want: "OK true",
		ours: "InvalidArgument: etcdserver: invalid compare in txn request",
		why:  "a comparison that means nothing must not hold",
	},
	{
		name: "txn comparing in an unknown way",
		call: txn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("there"), Result: 9}}}),
		want: "OK true",
		ours: "InvalidArgument: etcdserver: invalid compare in txn request",
		why:  "a comparison that means nothing must not hold",
	},
	{
		name: "txn with an unknown lease",
		call: txn(&pb.TxnRequest{Success: []*pb.RequestOp{leasedPut(12345)}}),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "txn with lease -1",
		call: txn(&pb.TxnRequest{Success: []*pb.RequestOp{leasedPut(-1)}}),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "compaction at 0",
		call: compact(0),
		want: "OK",
		ours: "OutOfRange: etcdserver: mvcc: required revision has been compacted",
		why:  "nothing is older than revision 1",
	},
	{
		name: "compaction at -1",
		call: compact(-1),
		want: "OutOfRange: etcdserver: mvcc: required revision has been compacted",
	},
	{
		name: "compaction to come",
		call: compact(1 << 40),
		want: "OutOfRange: etcdserver: mvcc: required revision is a future revision",
	},
	{
		name: "compaction at the largest revision",
		call: compact(math.MaxInt64),
		want: "OutOfRange: etcdserver: mvcc: required revision is a future revision",
	},
	{
		name: "grant for 0 s",
		call: grantOf(100, 0),
		want: "OK 2",
		ours: "OK 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "grant for -1 s",
		call: grantOf(101, -1),
		want: "OK 2",
		ours: "OK 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "grant for the smallest time",
		call: grantOf(102, math.MinInt64),
		want: "OK 2",
		ours: "OK 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "grant for 1 s",
		call: grantOf(103, 1),
		want: "OK 2",
		ours: "OK 1",
		why:  "leases may be shorter than two seconds here; shown is the next whole one",
	},
	{
		name: "grant for the longest time",
		call: grantOf(104, maxTTL),
		want: "OK 9000000000",
	},
	{
		name: "grant for one second more",
		call: grantOf(105, maxTTL+1),
		want: "OutOfRange: etcdserver: too large lease TTL",
	},
	{
		name: "grant for the largest number",
		call: grantOf(106, math.MaxInt64),
		want: "OutOfRange: etcdserver: too large lease TTL",
	},
	{
		name: "grant of no id",
		call: grantOf(0, 60),
		want: "OK 60",
	},
	{
		name: "grant of id -1",
		call: grantOf(-1, 60),
		want: "OK 60",
		ours: "InvalidArgument: etcdserver: lease ID is negative",
		why:  "an id below zero is a mistake, not a lease",
	},
	{
		name: "grant of the smallest id",
		call: grantOf(math.MinInt64, 60),
		want: "OK 60",
		ours: "InvalidArgument: etcdserver: lease ID is negative",
		why:  "an id below zero is a mistake, not a lease",
	},
	{
		name: "grant of the largest id",
		call: grantOf(math.MaxInt64, 60),
		want: "OK 60",
	},
	{
		name: "grant of a used id",
		call: grantOf(77, 60),
		want: "FailedPrecondition: etcdserver: lease already exists",
	},
	{
		name: "grant of a used id, too long",
		call: grantOf(77, maxTTL+1),
		want: "OutOfRange: etcdserver: too large lease TTL",
	},
	{
		name: "revoke of lease 0",
		call: revoke(0),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "revoke of lease -7",
		call: revoke(-7),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "revoke of an unknown lease",
		call: revoke(12345),
		want: "NotFound: etcdserver: requested lease not found",
	},
	{
		name: "time to live of lease 0",
		call: timeToLive(0),
		want: "OK -1",
	},
	{
		name: "time to live of lease -7",
		call: timeToLive(-7),
		want: "OK -1",
	},
	{
		name: "time to live of an unknown lease",
		call: timeToLive(12345),
		want: "OK -1",
	},
	{
		name: "renewal of lease 0",
		call: keepAlive(0),
		want: "OK 0",
	},
	{
		name: "renewal of lease -7",
		call: keepAlive(-7),
		want: "OK 0",
	},
	{
		name: "renewal of an unknown lease",
		call: keepAlive(12345),
		want: "OK 0",
	},
	{
		name: "watch of an empty key",
		call: watchFrom(&pb.WatchCreateRequest{}),
		want: "OK true false",
	},
	{
		name: "watch with its end before its begin",
		call: watchFrom(&pb.WatchCreateRequest{Key: []byte("z"), RangeEnd: []byte("a")}),
		want: "OK true true mvcc: watcher range is empty",
	},
	{
		name: "watch from revision -1",
		call: watchFrom(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: -1}),
		want: "OK true true etcdserver: mvcc: required revision has been compacted",
	},
	{
		name: "watch with id -1",
		call: watchFrom(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: -1}),
		want: "OK true false",
		ours: "OK true true etcdserver: watch ID is negative",
		why:  "etcd itself answers with -1 to say that there is no watch",
	},
	{
		name: "watch with an unknown filter",
		call: watchFrom(&pb.WatchCreateRequest{
			Key: []byte("k"), Filters: []pb.WatchCreateRequest_FilterType{9},
		}),
		want: "OK true false",
	},
}
