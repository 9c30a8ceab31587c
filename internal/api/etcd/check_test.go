package etcd

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

func putOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte("v")},
	}}
}

func delOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}}
}

func getOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)},
	}}
}

func txnOp(then, other []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
		RequestTxn: &pb.TxnRequest{Success: then, Failure: other},
	}}
}

func repeat(n int, f func(i int) *pb.RequestOp) []*pb.RequestOp {
	out := make([]*pb.RequestOp, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// TestTxnOps checks that the number of operations is bounded. Each level counts as many operations
// as its longest list has. Nested transactions can use what the enclosing levels leave.
func TestTxnOps(t *testing.T) {
	get := func(int) *pb.RequestOp { return getOp("a", "") }
	compare := func(n int) []*pb.Compare {
		out := make([]*pb.Compare, n)
		for i := range out {
			out[i] = &pb.Compare{Key: []byte("a")}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		txn  *pb.TxnRequest
		want error
	}{
		{"empty", &pb.TxnRequest{}, nil},
		{"full", &pb.TxnRequest{Success: repeat(8, get), Failure: repeat(8, get)}, nil},
		{"then", &pb.TxnRequest{Success: repeat(9, get)}, rpctypes.ErrGRPCTooManyOps},
		{"else", &pb.TxnRequest{Failure: repeat(9, get)}, rpctypes.ErrGRPCTooManyOps},
		{"compare", &pb.TxnRequest{Compare: compare(9)}, rpctypes.ErrGRPCTooManyOps},
		{"nested full", &pb.TxnRequest{
			Success: []*pb.RequestOp{txnOp(repeat(7, get), nil)},
		}, nil},
		{"nested", &pb.TxnRequest{
			Success: []*pb.RequestOp{txnOp(repeat(8, get), nil)},
		}, rpctypes.ErrGRPCTooManyOps},
		{"nested below a wide level", &pb.TxnRequest{
			Compare: compare(7), Success: []*pb.RequestOp{txnOp(nil, repeat(2, get))},
		}, rpctypes.ErrGRPCTooManyOps},
		{"no operation", &pb.TxnRequest{
			Success: []*pb.RequestOp{{}},
		}, rpctypes.ErrGRPCKeyNotFound},
		{"unknown target", &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("a"), Target: 9}},
		}, errCompare},
		{"unknown relation", &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("a"), Result: -1}},
		}, errCompare},
	} {
		t.Run(tt.name, func(t *testing.T) { wantStatus(t, checkTxn(tt.txn, 8), tt.want) })
	}
}

// checkOverlaps checks a transaction for overlapping keys, as Txn does.
func checkOverlaps(r *pb.TxnRequest) error { return api.Error(api.CheckTxn(txnCommand(r, 0), 128)) }

// slowOverlaps is a reference implementation of checkOverlaps that follows its definition and does
// not merge spans.
type slowOverlaps struct {
	puts map[string]bool
	dels [][2]string // [begin, end), where the end "\x00" means no end
}

func slow(ops []*pb.RequestOp) (*slowOverlaps, bool) {
	s := &slowOverlaps{puts: make(map[string]bool)}
	put := func(key string) bool {
		for _, d := range s.dels {
			if d[0] <= key && (d[1] == "\x00" || key < d[1]) {
				return false
			}
		}
		if s.puts[key] {
			return false
		}
		s.puts[key] = true
		return true
	}
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			end := string(d.RangeEnd)
			if end == "" {
				end = string(d.Key) + "\x00"
			}
			s.dels = append(s.dels, [2]string{string(d.Key), end})
		}
	}
	for _, op := range ops {
		n := op.GetRequestTxn()
		if n == nil {
			continue
		}
		then, ok := slow(n.Success)
		if !ok {
			return nil, false
		}
		other, ok := slow(n.Failure)
		if !ok {
			return nil, false
		}
		for k := range then.puts {
			if !put(k) {
				return nil, false
			}
		}
		for k := range other.puts {
			if !then.puts[k] && !put(k) {
				return nil, false
			}
		}
		s.dels = append(append(s.dels, then.dels...), other.dels...)
	}
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil && !put(string(p.Key)) {
			return nil, false
		}
	}
	return s, true
}

// TestOverlapsModel checks that checkOverlaps agrees with slowOverlaps for random transactions on
// few keys.
func TestOverlapsModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	key := func() string { return string(rune('a' + r.IntN(8))) }
	var ops func(depth int) []*pb.RequestOp
	ops = func(depth int) []*pb.RequestOp {
		return repeat(r.IntN(4), func(int) *pb.RequestOp {
			switch n := r.IntN(10); {
			case n < 4:
				return putOp(key())
			case n < 6:
				return delOp(key(), "")
			case n == 6:
				return delOp(key(), key())
			case n == 7:
				return delOp(key(), "\x00")
			case depth > 0:
				return txnOp(ops(depth-1), ops(depth-1))
			default:
				return getOp(key(), "")
			}
		})
	}
	refused := 0
	for i := range 20000 {
		txn := &pb.TxnRequest{Success: ops(2), Failure: ops(1)}
		_, ok := slow(txn.Success)
		if ok {
			_, ok = slow(txn.Failure)
		}
		err := checkOverlaps(txn)
		if (err == nil) != ok {
			t.Fatalf("transaction %d: %v, the model says %v: %v", i, err, ok, txn)
		}
		if err != nil {
			refused++
		}
	}
	if refused < 2000 || refused > 18000 {
		t.Errorf("%d of 20000 were refused: the test is one-sided", refused)
	}
}

// TestOverlapsCost checks that checking the largest transaction that fits into a request does not
// take quadratic time.
func TestOverlapsCost(t *testing.T) {
	n := 0
	wide := txnOp(repeat(60, func(int) *pb.RequestOp {
		return txnOp(repeat(60, func(int) *pb.RequestOp {
			n++
			return delOp(fmt.Sprintf("%08d", n), "")
		}), nil)
	}), nil)
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{wide, putOp("x")}}
	if err := checkTxn(txn, 128); err != nil {
		t.Fatal(err)
	}
	if err := checkOverlaps(txn); err != nil {
		t.Fatal(err)
	}
	txn.Success = append(txn.Success, putOp(fmt.Sprintf("%08d", n)))
	wantStatus(t, checkOverlaps(txn), rpctypes.ErrGRPCDuplicateKey)
}

// FuzzTxn checks that every transaction that passes the checks can be converted, applied and
// converted back without a panic. A rejected transaction changes nothing.
func FuzzTxn(f *testing.F) {
	for _, txn := range []*pb.TxnRequest{
		{},
		{Success: []*pb.RequestOp{putOp("a"), getOp("a", "b"), delOp("b", "c")}},
		{
			Compare: []*pb.Compare{{
				Key: []byte("a"), Target: pb.Compare_VALUE,
				TargetUnion: &pb.Compare_Value{Value: []byte("x")},
			}},
			Failure: []*pb.RequestOp{txnOp([]*pb.RequestOp{putOp("n")}, []*pb.RequestOp{putOp("n")})},
		},
		{Success: []*pb.RequestOp{{}}},
		{Success: []*pb.RequestOp{delOp("\x00", "\x00"), putOp(strings.Repeat("k", 300))}},
	} {
		b, err := proto.Marshal(txn)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r pb.TxnRequest
		if proto.Unmarshal(b, &r) != nil || checkTxn(&r, 16) != nil || checkOverlaps(&r) != nil {
			return
		}
		m := fsm.New(fsm.Config{})
		m.Begin(1, 1)
		m.Apply(&fsm.Put{Key: "a", Value: []byte("x")})
		before := m.View().KV.Revision()
		m.Begin(2, 1)
		res := m.Apply(txnCommand(&r, 0))
		if res.Err != nil {
			if res.Revision != before {
				t.Fatalf("refused with %v, yet the revision is %d", res.Err, res.Revision)
			}
			return
		}
		resp := txnResponse(&r, res.Value.(*fsm.TxnResult), res.Revision)
		if _, err := proto.Marshal(resp); err != nil {
			t.Fatal(err)
		}
		if want := before; changed(res.Value.(*fsm.TxnResult)) {
			if res.Revision != want+1 {
				t.Fatalf("changed something, yet the revision is %d", res.Revision)
			}
		} else if res.Revision != want {
			t.Fatalf("changed nothing, yet the revision is %d", res.Revision)
		}
	})
}
