package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// service returns the services without a gRPC server.
func service(n Node, o Options) unary {
	return unary{&store{leases: &leases{node: n, o: o.withDefaults()}}}
}

func grant(t *testing.T, s unary, r *pb.GrantRequest) *pb.GrantResponse {
	t.Helper()
	resp, err := s.Grant(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestRenewAnswersBeforeDeadline checks that a lease whose renewal has no outcome delays the
// response only until just before the call's deadline (T15). It is then reported as unknown, and a
// later outcome is ignored.
func TestRenewAnswersBeforeDeadline(t *testing.T) {
	for _, tt := range []struct {
		deadline, answered time.Duration // 0 means none
	}{
		{time.Second, 900 * time.Millisecond},
		{5 * time.Second, 4750 * time.Millisecond},
		{time.Hour, 7 * time.Second},
		{0, 7 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			s := service(n, Options{})
			one := grant(t, s, &pb.GrantRequest{TtlMs: 5000}).Lease
			two := grant(t, s, &pb.GrantRequest{TtlMs: 6000}).Lease
			n.held[lease.ID(one.Id)] = nil
			ctx := t.Context()
			if tt.deadline > 0 {
				c, cancel := context.WithTimeout(ctx, tt.deadline)
				defer cancel()
				ctx = c
			}
			begin := time.Now()
			resp, err := s.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{
				{Id: one.Id}, {Id: two.Id, Token: two.Token}, {Id: two.Id, Token: one.Token},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin); d != tt.answered {
				t.Errorf("deadline %v: answered after %v, want %v", tt.deadline, d, tt.answered)
			}
			want := &pb.RenewResponse{Header: resp.Header, Results: []*pb.RenewResult{
				{Id: one.Id, Reason: pb.Reason_REASON_UNKNOWN_OUTCOME},
				{Id: two.Id, TtlMs: 6000},
				{Id: two.Id, Reason: pb.Reason_REASON_LEASE_NOT_FOUND},
			}}
			n.held[lease.ID(one.Id)][0](5000)
			if !proto.Equal(resp, want) {
				t.Errorf("answer %v", resp)
			}
		})
	}
}

// TestRenewEnds checks that a renewal stops waiting when the service stops, and that a failed
// renewal has a reason.
func TestRenewEnds(t *testing.T) {
	n := newNode()
	stop := make(chan struct{})
	s := service(n, Options{Stop: stop})
	id := grant(t, s, &pb.GrantRequest{TtlMs: 5000}).Lease.Id
	n.held[lease.ID(id)] = nil
	refs := []*pb.LeaseRef{{Id: id}}
	close(stop)
	resp, err := s.Renew(t.Context(), &pb.RenewRequest{Leases: refs})
	if err != nil || resp.Results[0].Reason != pb.Reason_REASON_UNKNOWN_OUTCOME {
		t.Errorf("stopped: %v, %v", resp, err)
	}
	b := newBatch(&pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 1}, {Id: 2}}}, nil)
	b.wait()
	b.RenewedOne(1, 0, replica.ErrNoLeader)
	b.RenewedOne(0, 0, lease.ErrNotFound)
	<-b.done
	if r := b.end().Results; r[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND ||
		r[1].Reason != pb.Reason_REASON_UNAVAILABLE {
		t.Errorf("results %v", r)
	}
	n.refuse = api.ErrTooManyRequests
	if _, err := s.Renew(t.Context(), &pb.RenewRequest{Leases: refs}); !errors.Is(err, n.refuse) {
		t.Errorf("refused: %v", err)
	}
	if resp, err := s.Renew(t.Context(), &pb.RenewRequest{}); err != nil || len(resp.Results) != 0 {
		t.Errorf("none: %v, %v", resp, err)
	}
}

// TestEveryErrorHasDetails checks that every error has details, regardless of the layer that
// returns it. A failed read can be retried, but a failed command's outcome can be unknown.
func TestEveryErrorHasDetails(t *testing.T) {
	guard := func(refusal error) func(grpc.ServiceDesc) *grpc.ServiceDesc {
		return func(d grpc.ServiceDesc) *grpc.ServiceDesc {
			d.Methods = slices.Clone(d.Methods)
			for i := range d.Methods {
				next := d.Methods[i].Handler
				d.Methods[i].Handler = func(
					srv any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor,
				) (any, error) {
					return next(srv, ctx, dec, func(
						ctx context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler,
					) (any, error) {
						return in(ctx, req, info, func(context.Context, any) (any, error) {
							return nil, refusal
						})
					})
				}
			}
			return &d
		}
	}
	for _, refusal := range []error{
		rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCNotSupportedForLearner,
	} {
		c := serve(t, newNode(), Options{Guard: guard(refusal)})
		_, err := c.Renew(t.Context(), &pb.RenewRequest{})
		if d := api.Detail(err); d.GetReason() != pb.Reason_REASON_UNAVAILABLE {
			t.Errorf("%v: %v, %v", refusal, err, d)
		}
	}
	n := newNode()
	n.fail = api.ErrTimeout
	c := serve(t, n, Options{})
	_, err := c.Describe(t.Context(), &pb.DescribeRequest{Id: 1})
	if d := api.Detail(err); d.GetReason() != pb.Reason_REASON_UNAVAILABLE {
		t.Errorf("a read: %v, %v", err, d)
	}
	_, err = c.Grant(t.Context(), &pb.GrantRequest{TtlMs: 5000})
	if d := api.Detail(err); d.GetReason() != pb.Reason_REASON_UNKNOWN_OUTCOME {
		t.Errorf("a command: %v, %v", err, d)
	}
}

// TestInvalidRequests checks that invalid requests are rejected before anything is read or
// proposed.
func TestInvalidRequests(t *testing.T) {
	n := newNode()
	n.fail = errors.New("the leader was asked")
	c := serve(t, n, Options{MinTTL: 200, MaxKeys: 3})
	long := strings.Repeat("x", 1025)
	key := func(keys ...string) (out [][]byte) {
		for _, k := range keys {
			out = append(out, []byte(k))
		}
		return out
	}
	many := make(map[string]string)
	for i := range 65 {
		many[fmt.Sprint(i)] = ""
	}
	good := &pb.LeaseRef{Id: 1, Token: 1}
	secret := make([]byte, 32)
	for name, call := range map[string]func(context.Context) (any, error){
		"ttl 199 ms is not between 200 and": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 199})
		},
		"id must be positive, or 0": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, Id: -1})
		},
		"name is 1025 bytes long": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, Name: long})
		},
		"request_id is 1025 bytes long": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, RequestId: long})
		},
		"65 labels": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, Labels: many})
		},
		"a label has no name": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, Labels: map[string]string{"": "x"}})
		},
		"the labels are": func(ctx context.Context) (any, error) {
			labels := map[string]string{"x": strings.Repeat("x", 16<<10)}
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, Labels: labels})
		},
		"lock_delay_ms must be between 0 and 9000000000000, not -1": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, LockDelayMs: -1})
		},
		"at_expiry 7": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, AtExpiry: 7})
		},
		"a key is empty": func(ctx context.Context) (any, error) {
			return c.Grant(ctx, &pb.GrantRequest{TtlMs: 200, Keys: []*pb.Pair{{}}})
		},
		"leases[1]: the lease's id or name must be set": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{good, {}}})
		},
		"leases[0]: the lease's token must be set": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{{Name: "n"}}})
		},
		"the lease's name is 1025 bytes long": func(ctx context.Context) (any, error) {
			return c.Attach(ctx, &pb.AttachRequest{Lease: &pb.LeaseRef{Name: long}, Keys: key("a")})
		},
		"leases and ids must not both be set": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{good}, Ids: []int64{1}})
		},
		"2 tokens for 1 ids": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Ids: []int64{1}, Tokens: []uint64{1, 2}})
		},
		"1 tokens for 0 ids": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Tokens: []uint64{1}})
		},
		"ids[1]: the lease's id must be positive, not -5": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Ids: []int64{1, -5}})
		},
		"ids contains 10001 IDs; the limit is 10000": func(ctx context.Context) (any, error) {
			return c.Renew(ctx, &pb.RenewRequest{Ids: make([]int64, 10_001)})
		},
		"10001 leases": func(ctx context.Context) (any, error) {
			return c.Revoke(ctx, &pb.RevokeRequest{Leases: make([]*pb.LeaseRef, 10_001)})
		},
		"either id or name must": func(ctx context.Context) (any, error) {
			return c.Describe(ctx, &pb.DescribeRequest{})
		},
		"id and name must not both be set": func(ctx context.Context) (any, error) {
			return c.Resume(ctx, &pb.ResumeRequest{Id: 1, Name: "n", Secret: secret})
		},
		"secret must be 32 bytes long, not 3": func(ctx context.Context) (any, error) {
			return c.Resume(ctx, &pb.ResumeRequest{Id: 1, Secret: []byte("abc")})
		},
		"token must be set": func(ctx context.Context) (any, error) {
			return c.HandOver(ctx, &pb.HandOverRequest{Lease: &pb.LeaseRef{Id: 1}})
		},
		"owner is 1025 bytes long": func(ctx context.Context) (any, error) {
			return c.HandOver(ctx, &pb.HandOverRequest{Lease: good, Owner: long})
		},
		"id must be positive, not -1": func(ctx context.Context) (any, error) {
			return c.CheckToken(ctx, &pb.CheckTokenRequest{Id: -1, Token: 1})
		},
		"token is required": func(ctx context.Context) (any, error) {
			return c.CheckToken(ctx, &pb.CheckTokenRequest{Id: 1})
		},
		"no keys": func(ctx context.Context) (any, error) {
			return c.Attach(ctx, &pb.AttachRequest{Lease: good})
		},
		`key "a" is repeated`: func(ctx context.Context) (any, error) {
			return c.Detach(ctx, &pb.DetachRequest{Keys: key("a", "b", "a")})
		},
	} {
		_, err := call(t.Context())
		d := api.Detail(err)
		if d.GetReason() != pb.Reason_REASON_INVALID || !strings.Contains(d.GetMessage(), name) {
			t.Errorf("want %q: %v, %v", name, err, d)
		}
	}
	if len(n.commands) > 0 {
		t.Errorf("proposed: %v", n.commands)
	}
}

// TestLeaderDecides checks that what the leader knows about a lease overrides this member's state.
func TestLeaderDecides(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	l := grant(t, s, &pb.GrantRequest{TtlMs: 5000, Name: "n"}).Lease
	for _, tt := range []struct {
		left    replica.Left
		gone    bool
		delayed bool
	}{
		{replica.Left{TTL: 3000, Found: true}, false, false},
		{replica.Left{TTL: 0, Found: true}, false, false}, // its end has been decided
		{replica.Left{}, true, false},
		{replica.Left{TTL: 700}, false, true}, // its lock delay has begun
	} {
		n.left = func(lease.ID) replica.Left { return tt.left }
		for _, r := range []*pb.DescribeRequest{{Id: l.Id}, {Name: "n"}} {
			resp, err := s.Describe(t.Context(), r)
			if tt.gone {
				if !errors.Is(err, lease.ErrNotFound) {
					t.Errorf("%+v: %v, %v", tt, resp, err)
				}
				continue
			}
			if err != nil || resp.Lease.RemainingMs != int64(tt.left.TTL) ||
				resp.Lease.Delayed != tt.delayed {
				t.Errorf("%+v: %v, %v", tt, resp, err)
			}
		}
		list, err := s.List(t.Context(), &pb.ListRequest{})
		if err != nil || len(list.Leases) != 1 || // it existed when the page was built
			list.Leases[0].RemainingMs != int64(tt.left.TTL) || list.Leases[0].Delayed != tt.delayed {
			t.Errorf("%+v: %v, %v", tt, list, err)
		}
	}
}

// TestDescribeMovedName checks that if a name moves to another lease during a Describe, the
// response describes the new lease.
func TestDescribeMovedName(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	old := grant(t, s, &pb.GrantRequest{TtlMs: 5000, Name: "n"}).Lease
	var next *pb.Lease
	n.between = func() {
		if next != nil {
			return
		}
		refs := []*pb.LeaseRef{{Id: old.Id}}
		if _, err := s.Revoke(t.Context(), &pb.RevokeRequest{Leases: refs}); err != nil {
			t.Fatal(err)
		}
		next = grant(t, s, &pb.GrantRequest{TtlMs: 6000, Name: "n"}).Lease
	}
	resp, err := s.Describe(t.Context(), &pb.DescribeRequest{Name: "n"})
	if err != nil || resp.Lease.Id != next.Id || resp.Lease.TtlMs != 6000 {
		t.Errorf("%v, %v; want %v", resp, err, next)
	}
}

// TestSecretNotLogged checks that the member generates the secret and that only its hash is written
// to the log.
func TestSecretNotLogged(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	resp := grant(t, s, &pb.GrantRequest{TtlMs: 5000, Resumable: true, RequestId: "r"})
	if len(resp.Secret) != 32 || bytes.Equal(resp.Secret, make([]byte, 32)) {
		t.Fatalf("secret %x", resp.Secret)
	}
	log := fsm.AppendCommand(nil, n.commands[0])
	hash := sha256.Sum256(resp.Secret)
	if bytes.Contains(log, resp.Secret) || !bytes.Contains(log, hash[:]) {
		t.Errorf("the log has %x of the secret %x", log, resp.Secret)
	}
	again := grant(t, s, &pb.GrantRequest{TtlMs: 5000, Resumable: true, RequestId: "r"})
	if !again.Existed || again.Secret != nil {
		t.Errorf("repeated: %v", again)
	}
	// The remedy is a hand-over to the same owner.
	over, err := s.HandOver(t.Context(), &pb.HandOverRequest{
		Lease: &pb.LeaseRef{Id: resp.Lease.Id, Token: resp.Lease.Token}, Resumable: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Resume(t.Context(), &pb.ResumeRequest{Id: resp.Lease.Id, Secret: over.Secret})
	if err != nil {
		t.Error(err)
	}
}

// TestChosenIDInUse checks that a grant is retried if the ID chosen by the server is in use.
func TestChosenIDInUse(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	id := chooseID(&lease.Terms{RequestID: "r"}, 0)
	grant(t, s, &pb.GrantRequest{Id: int64(id), TtlMs: 5000})
	first := grant(t, s, &pb.GrantRequest{RequestId: "r", TtlMs: 5000})
	again := grant(t, s, &pb.GrantRequest{RequestId: "r", TtlMs: 5000})
	if first.Existed || !again.Existed || first.Lease.Id != again.Lease.Id ||
		first.Lease.Id == int64(id) {
		t.Errorf("first %v, again %v", first, again)
	}
}
