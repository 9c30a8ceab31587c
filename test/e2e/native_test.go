package e2e

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/tier"
)

// leases returns a client of leasehold.v1.
func (m *member) leases() pb.LeaseServiceClient {
	m.t.Helper()
	conn, err := grpc.NewClient(m.url[len("http://"):],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewLeaseServiceClient(conn)
}

// TestNativeLeaseSurvivesKill: all that a lease of leasehold.v1 is survives SIGKILL: its
// name, owner, labels, token, lock delay, what becomes of its keys, and its secret; the
// request that made it is still known, and the next token is larger (T3, L5).
func TestNativeLeaseSurvivesKill(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	ours(t)
	m := startMember(t)
	ctx, c := t.Context(), m.leases()
	request := &pb.GrantRequest{
		TtlMs: 600_000, Name: "n", Owner: "o", Labels: map[string]string{"a": "b"},
		RequestId: "r", LockDelayMs: 500, AtExpiry: pb.AtExpiry_AT_EXPIRY_KEEP,
		Resumable: true, Keys: []*pb.Pair{{Key: []byte("k"), Value: []byte("v")}},
	}
	granted, err := c.Grant(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	describe := func() *pb.Lease {
		t.Helper()
		resp, err := c.Describe(ctx, &pb.DescribeRequest{Name: "n", Keys: true})
		if err != nil {
			t.Fatal(err)
		}
		resp.Lease.RemainingMs = 0 // differs from time to time
		return resp.Lease
	}
	before := describe()
	m.kill()
	m.start()
	if after := describe(); !proto.Equal(before, after) {
		t.Errorf("after the kill:\n%v, before:\n%v", after, before)
	}
	again, err := c.Grant(ctx, request)
	if err != nil || !again.Existed || again.Lease.Token != granted.Lease.Token {
		t.Errorf("repeated: %v, %v", again, err)
	}
	resumed, err := c.Resume(ctx, &pb.ResumeRequest{Name: "n", Secret: granted.Secret})
	if err != nil || resumed.Lease.Token <= granted.Lease.Token {
		t.Fatalf("resumed: %v, %v", resumed, err)
	}
	m.kill()
	m.start()
	if after := describe(); after.Token != resumed.Lease.Token {
		t.Errorf("after the second kill: %v, resumed %v", after, resumed)
	}
	renewed, err := c.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{
		{Id: granted.Lease.Id, Token: granted.Lease.Token},
		{Id: granted.Lease.Id, Token: resumed.Lease.Token},
	}})
	if err != nil || renewed.Results[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND ||
		renewed.Results[1].Reason != pb.Reason_REASON_UNSPECIFIED {
		t.Errorf("renewed: %v, %v", renewed, err)
	}
}
