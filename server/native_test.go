package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/test/virtual"
)

// nativeTest is a leasehold.v1 client of one member. Each test uses its own prefix for names and
// keys.
type nativeTest struct {
	pb.LeaseServiceClient
	*running
	t      *testing.T
	prefix string
}

// TestNative checks that every member serves every call. Each scenario runs against a single
// member, a leader and a follower.
func TestNative(t *testing.T) { virtual.Test(t, testNative) }

func testNative(t *testing.T) {
	alone := run(t, testConfig(shortDir(t)))
	members := runAll(t, clusterConfigs(t, 3)...)
	first, others := leader(t, members)
	scenarios := []struct {
		name string
		run  func(nativeTest)
	}{
		{"request id", nativeTest.requestID},
		{"batch", nativeTest.batch},
		{"list", nativeTest.list},
		{"resume", nativeTest.resume},
		{"lock delay", nativeTest.lockDelay},
		{"etcd clients", nativeTest.interplay},
	}
	for i, m := range []*running{alone, first, others[0]} {
		where := []string{"alone", "leader", "follower"}[i]
		for _, s := range scenarios {
			virtual.Step(t, where+"/"+s.name, func(t *testing.T) {
				s.run(nativeTest{
					LeaseServiceClient: pb.NewLeaseServiceClient(m.client.ActiveConnection()),
					running:            m, t: t, prefix: where + "/" + s.name + "/",
				})
			})
		}
	}
}

func (n nativeTest) grant(r *pb.GrantRequest) *pb.GrantResponse {
	n.t.Helper()
	if r.TtlMs == 0 {
		r.TtlMs = 60_000
	}
	resp, err := n.Grant(n.t.Context(), r)
	if err != nil {
		n.t.Fatal(err)
	}
	l := resp.Lease
	if l.Id <= 0 || l.Token == 0 || l.TtlMs != r.TtlMs || l.RemainingMs <= 0 ||
		l.RemainingMs > l.TtlMs || resp.Header.ClusterId == 0 || resp.Header.Term == 0 {
		n.t.Fatalf("granted %v", resp)
	}
	return resp
}

// is checks that an error has the given reason, and returns its details.
func (n nativeTest) is(err error, reason pb.Reason) *pb.Error {
	n.t.Helper()
	d := api.Detail(err)
	if d == nil {
		n.t.Fatalf("error %v has no details, want %v", err, reason)
	}
	if d.Reason != reason || d.Message == "" {
		n.t.Errorf("error %v: %v, want %v", err, d.Reason, reason)
	}
	return d
}

func (n nativeTest) describe(id int64) *pb.Lease {
	n.t.Helper()
	resp, err := n.Describe(n.t.Context(), &pb.DescribeRequest{Id: id, Keys: true})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Lease
}

// ended waits until a lease no longer exists.
func (n nativeTest) ended(id int64) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("lease %d ends", id), func() bool {
		_, err := n.Describe(n.t.Context(), &pb.DescribeRequest{Id: id})
		return err != nil && n.is(err, pb.Reason_REASON_LEASE_NOT_FOUND) != nil
	})
}

func (n nativeTest) renew(refs ...*pb.LeaseRef) []*pb.RenewResult {
	n.t.Helper()
	resp, err := n.Renew(n.t.Context(), &pb.RenewRequest{Leases: refs})
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.Results
}

func ref(l *pb.Lease) *pb.LeaseRef { return &pb.LeaseRef{Id: l.Id, Token: l.Token} }

func (n nativeTest) revoke(l *pb.Lease) {
	n.t.Helper()
	resp, err := n.Revoke(n.t.Context(), &pb.RevokeRequest{Leases: []*pb.LeaseRef{ref(l)}})
	if err != nil || resp.Results[0].Reason != 0 {
		n.t.Fatalf("revoke: %v, %v", resp, err)
	}
}

// requestID checks T3: a retried grant returns the existing lease, with or without a name, and does
// not put its keys again.
func (n nativeTest) requestID() {
	for _, name := range []string{"", n.prefix} {
		key := []byte(n.prefix + "k" + name)
		r := &pb.GrantRequest{
			Name: name, Owner: n.prefix, RequestId: "r1" + name, Resumable: true,
			Keys: []*pb.Pair{{Key: key, Value: []byte("first")}},
		}
		first := n.grant(r)
		if first.Existed || len(first.Secret) != 32 {
			n.t.Errorf("the first: %v", first)
		}
		n.put(n.t, string(key), "changed", clientv3.WithIgnoreLease())
		again := n.grant(r)
		if !again.Existed || again.Lease.Id != first.Lease.Id ||
			again.Lease.Token != first.Lease.Token || len(again.Secret) != 0 {
			n.t.Errorf("repeated: %v, first %v", again, first)
		}
		if got := n.get(n.t, string(key)); got != "changed" {
			n.t.Errorf("the repetition made the key %q", got)
		}
		other := &pb.GrantRequest{Owner: n.prefix, RequestId: "r2" + name, TtlMs: 5000, Name: name}
		switch resp, err := n.Grant(n.t.Context(), other); {
		case name != "":
			n.is(err, pb.Reason_REASON_NAME_TAKEN)
		case err != nil || resp.Lease.Id == first.Lease.Id:
			n.t.Errorf("another request: %v, %v", resp, err)
		}
	}
}

// batch checks that thousands of renewals fit in one call, each with its own result.
func (n nativeTest) batch() {
	const size = 5000
	refs := make([]*pb.LeaseRef, size)
	gate := make(chan struct{}, 200)
	errs := make(chan error, size)
	for i := range refs {
		gate <- struct{}{}
		go func() {
			l, err := n.Grant(n.t.Context(), &pb.GrantRequest{TtlMs: 600_000, Owner: n.prefix})
			if err == nil {
				refs[i] = ref(l.Lease)
			}
			<-gate
			errs <- err
		}()
	}
	for range refs {
		if err := <-errs; err != nil {
			n.t.Fatal(err)
		}
	}
	gone := refs[17:19]
	if _, err := n.Revoke(n.t.Context(), &pb.RevokeRequest{Leases: gone}); err != nil {
		n.t.Fatal(err)
	}
	for i, r := range n.renew(refs...) {
		want := pb.Reason_REASON_UNSPECIFIED
		if i == 17 || i == 18 {
			want = pb.Reason_REASON_LEASE_NOT_FOUND
		}
		if r.Id != refs[i].Id || r.Reason != want || (want == 0) != (r.TtlMs == 600_000) {
			n.t.Fatalf("renewal %d: %v", i, r)
		}
	}
	n.columns(refs)
	resp, err := n.Revoke(n.t.Context(), &pb.RevokeRequest{Leases: refs})
	if err != nil {
		n.t.Fatal(err)
	}
	for i, r := range resp.Results {
		if (r.Reason == 0) == (i == 17 || i == 18) {
			n.t.Fatalf("revoke %d: %v", i, r)
		}
	}
	_, err = n.Renew(n.t.Context(), &pb.RenewRequest{Leases: slices.Concat(refs, refs, refs)})
	n.is(err, pb.Reason_REASON_INVALID)
}

// columns renews leases with parallel arrays of IDs and tokens. The 18th and 19th no longer exist.
func (n nativeTest) columns(refs []*pb.LeaseRef) {
	n.t.Helper()
	ask := &pb.RenewRequest{}
	for _, r := range refs {
		ask.Ids, ask.Tokens = append(ask.Ids, r.Id), append(ask.Tokens, r.Token)
	}
	resp, err := n.Renew(n.t.Context(), ask)
	if err != nil {
		n.t.Fatal(err)
	}
	if got := resp.Results; len(got) != 2 || got[0].Id != refs[17].Id || got[1].Id != refs[18].Id {
		n.t.Fatalf("not renewed: %v", got)
	}
	for i, ttl := range resp.TtlMs {
		if gone := i == 17 || i == 18; gone != (ttl == 0) || !gone && ttl != 600_000 {
			n.t.Fatalf("renewal %d: %d ms", i, ttl)
		}
	}
}

// list checks that the pages of a listing are sorted and contain each lease exactly once, even if
// other leases are granted or revoked between pages.
func (n nativeTest) list() {
	const count = 25
	granted := make(map[string]*pb.Lease)
	for i := range count {
		l := n.grant(&pb.GrantRequest{
			Name: fmt.Sprintf("%s%02d", n.prefix, i), Owner: n.prefix + fmt.Sprint(i%2),
			Labels: map[string]string{"zone": string(rune('a' + i%3)), "test": n.prefix},
			Keys:   []*pb.Pair{{Key: fmt.Appendf(nil, "%s%02d", n.prefix, i)}},
		}).Lease
		granted[l.Name] = l
	}
	all := n.pages(&pb.ListRequest{NamePrefix: n.prefix, PageSize: 10, Keys: true}, func(page int) {
		switch page { // change names on both sides of the page boundary
		case 0:
			n.revoke(granted[n.prefix+"09"])
			n.grant(&pb.GrantRequest{Name: n.prefix + "00a"})
		case 1:
			n.revoke(granted[n.prefix+"22"])
		}
	})
	if len(all) != count-1 || !slices.IsSortedFunc(all, func(a, b *pb.Lease) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		n.t.Errorf("%d leases by name: %v", len(all), all)
	}
	for _, l := range all {
		g := granted[l.Name]
		if l.Id != g.Id || l.RemainingMs <= 0 || l.RemainingMs > l.TtlMs || l.KeyCount != 1 ||
			len(l.Keys) != 1 || string(l.Keys[0]) != l.Name || l.Labels["test"] != n.prefix {
			n.t.Errorf("listed %v, granted %v", l, g)
		}
	}
	byOwner := n.pages(&pb.ListRequest{Owner: n.prefix + "1", PageSize: 5}, nil)
	if len(byOwner) != count/2-1 || !slices.IsSortedFunc(byOwner, func(a, b *pb.Lease) int {
		return int(a.Id>>32 - b.Id>>32)
	}) {
		n.t.Errorf("%d leases of an owner: %v", len(byOwner), byOwner)
	}
	labels := map[string]string{"zone": "c", "test": n.prefix}
	if l := n.pages(&pb.ListRequest{Labels: labels}, nil); len(l) != 8 {
		n.t.Errorf("%d leases with two labels: %v", len(l), l)
	}
	first, err := n.List(n.t.Context(), &pb.ListRequest{NamePrefix: n.prefix, PageSize: 1})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, r := range []*pb.ListRequest{
		{PageToken: first.NextPageToken},
		{NamePrefix: n.prefix, Owner: "x", PageToken: first.NextPageToken},
		{NamePrefix: n.prefix, PageToken: first.NextPageToken + "A"},
		{NamePrefix: n.prefix, PageToken: "?"},
		{PageSize: 1001},
		{PageSize: -1},
	} {
		_, err := n.List(n.t.Context(), r)
		n.is(err, pb.Reason_REASON_INVALID)
	}
}

// pages lists all pages and returns their leases. After every page except the last, it calls the
// function after.
func (n nativeTest) pages(r *pb.ListRequest, after func(page int)) []*pb.Lease {
	n.t.Helper()
	var all []*pb.Lease
	for page := 0; ; page++ {
		resp, err := n.List(n.t.Context(), r)
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, resp.Leases...)
		if r.PageToken = resp.NextPageToken; r.PageToken == "" {
			return all
		}
		if r.PageSize > 0 && len(resp.Leases) != int(r.PageSize) {
			n.t.Errorf("page %d has %d leases", page, len(resp.Leases))
		}
		if after != nil {
			after(page)
		}
	}
}
