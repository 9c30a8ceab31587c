package native

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestPageBounds checks that a page has as many keys and bytes as fit into a message. A larger
// lease gets its own page.
func TestPageBounds(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	keys := func(from, to int) (out []*pb.Pair) {
		for i := from; i < to; i++ {
			out = append(out, &pb.Pair{Key: fmt.Append(nil, i)})
		}
		return out
	}
	for i, count := range []int{4000, 6000, 1, 10_000, 2} {
		grant(t, s, &pb.GrantRequest{
			TtlMs: 5000, Id: int64(i + 1), Keys: keys(i*10_000, i*10_000+count),
		})
	}
	if got := pageSizes(t, s, &pb.ListRequest{Keys: true}); got != "2 1 1 1" {
		t.Errorf("with keys: pages of %s leases", got)
	}
	if got := pageSizes(t, s, &pb.ListRequest{}); got != "5" {
		t.Errorf("without: pages of %s leases", got)
	}
	wide := strings.Repeat("x", 16<<10-1)
	for i := range 300 {
		grant(t, s, &pb.GrantRequest{
			TtlMs: 5000, Name: fmt.Sprintf("n%03d", i), Labels: map[string]string{"l": wide},
		})
	}
	if got := pageSizes(t, s, &pb.ListRequest{NamePrefix: "n"}); got != "127 127 46" {
		t.Errorf("wide leases: pages of %s leases", got)
	}
}

func pageSizes(t *testing.T, s unary, r *pb.ListRequest) string {
	t.Helper()
	var sizes []string
	for {
		resp, err := s.List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(resp); n > maxPageBytes+1024 {
			t.Errorf("a page of %d bytes", n)
		}
		sizes = append(sizes, fmt.Sprint(len(resp.Leases)))
		if r.PageToken = resp.NextPageToken; r.PageToken == "" {
			return strings.Join(sizes, " ")
		}
	}
}

// TestPageToken checks that a page token is accepted only with the query that it belongs to, and
// that a modified token is detected.
func TestPageToken(t *testing.T) {
	queries := []*pb.ListRequest{
		{},
		{Owner: "o"},
		{NamePrefix: "n"},
		{NamePrefix: "n", Owner: "o"},
		{Labels: map[string]string{"a": "b"}},
		{Labels: map[string]string{"ab": ""}},
		{Ids: []int64{1}},
		{Ids: []int64{1, 2}},
	}
	places := []cursor{{id: 1}, {id: 1<<63 - 1, name: "n\x00\xff"}, {id: 77, name: "name"}}
	for i, from := range queries {
		for _, at := range places {
			token := at.token(from)
			for k, to := range queries {
				r := proto.CloneOf(to)
				r.PageToken, r.PageSize, r.Keys = token, 5, true // these can change
				got, err := readCursor(r)
				if (err == nil) != (i == k && strings.HasPrefix(at.name, from.NamePrefix)) {
					t.Errorf("%v: from %v to %v: %v", at, from, to, err)
				}
				if err == nil && (from.NamePrefix == "" && got.id != at.id ||
					from.NamePrefix != "" && got.name != at.name) {
					t.Errorf("%v became %v", at, got)
				}
			}
		}
	}
}

// FuzzPageToken checks that every page token is either rejected or continues a list.
func FuzzPageToken(f *testing.F) {
	f.Add("n", cursor{name: "n1"}.token(&pb.ListRequest{NamePrefix: "n"}))
	f.Add("", cursor{id: 7}.token(&pb.ListRequest{}))
	f.Add("", "AQ")
	f.Fuzz(func(t *testing.T, prefix, token string) {
		r := &pb.ListRequest{NamePrefix: prefix, PageToken: token}
		if c, err := readCursor(r); err == nil && token != "" && c.token(r) != token {
			t.Errorf("%q reads as %v, and that is %q", token, c, c.token(r))
		}
	})
}

// TestListsUnread checks that if many lists are requested on a stream, only a few of them are built
// before the client reads. All of them arrive eventually.
func TestListsUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var made atomic.Int64
		n.between = func() { made.Add(1) }
		leases := service(n, Options{})
		grant(t, leases, &pb.GrantRequest{TtlMs: 60_000})
		const all = 50
		ctx, cancel := context.WithCancel(t.Context())
		w := &pipe{
			ctx: ctx, requests: make(chan *pb.ClientMessage), answers: make(chan *pb.ServerMessage),
		}
		ended := make(chan error, 1)
		go func() { ended <- (&streams{store: &store{leases: leases.leases, node: n}}).Open(w) }()
		<-w.answers // the first message names the leader
		var m pb.ClientMessage
		for i := range all {
			m.Requests = append(m.Requests, &pb.Request{
				Id: uint64(i + 1), Body: &pb.Request_List{List: &pb.ListRequest{}},
			})
		}
		w.requests <- &m
		synctest.Wait()
		if made := made.Load(); made > 2*maxPages {
			t.Errorf("%d lists were built for a client that does not read", made)
		}
		got := 0
		for got < all {
			for _, r := range (<-w.answers).Responses {
				if len(r.GetList().GetLeases()) != 1 {
					t.Fatalf("response %v", r)
				}
				got++
			}
		}
		cancel()
		<-ended
	})
}

// TestListTheseLeases checks that listing by IDs returns every existing lease once, in order,
// across several pages, and applies the other conditions.
func TestListTheseLeases(t *testing.T) {
	n := newNode()
	s := service(n, Options{})
	for id := range int64(10) {
		owner := "even"
		if id%2 == 0 {
			owner = "odd"
		}
		grant(t, s, &pb.GrantRequest{TtlMs: 5000, Id: id + 1, Owner: owner})
	}
	for _, c := range []struct {
		r    *pb.ListRequest
		want string
	}{
		{&pb.ListRequest{Ids: []int64{7, 3, 99, 7, -1, 0}}, "3 7"},
		{&pb.ListRequest{Ids: []int64{99}}, ""},
		{&pb.ListRequest{Ids: []int64{1, 2, 3, 4}, Owner: "even"}, "2 4"},
		{&pb.ListRequest{Ids: []int64{9, 8, 7, 6, 5}, PageSize: 2}, "5 6, 7 8, 9"},
		{&pb.ListRequest{Ids: []int64{9, 8}, PageSize: 2}, "8 9"},
	} {
		var pages []string
		for {
			resp, err := s.List(t.Context(), c.r)
			if err != nil {
				t.Fatal(err)
			}
			var page []string
			for _, l := range resp.Leases {
				page = append(page, fmt.Sprint(l.Id))
				if l.RemainingMs == 0 {
					t.Errorf("nothing is left of lease %d", l.Id)
				}
			}
			pages = append(pages, strings.Join(page, " "))
			if c.r.PageToken = resp.NextPageToken; c.r.PageToken == "" {
				break
			}
		}
		if got := strings.Join(pages, ", "); got != c.want {
			t.Errorf("%v: %q, not %q", c.r, got, c.want)
		}
	}
	for _, bad := range []*pb.ListRequest{
		{Ids: []int64{1}, NamePrefix: "a"},
		{Ids: make([]int64, maxPage+1)},
		{Ids: []int64{1}, PageToken: cursor{id: 1}.token(&pb.ListRequest{Ids: []int64{2}})},
	} {
		if _, err := s.List(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d ids, prefix %q: %v", len(bad.Ids), bad.NamePrefix, err)
		}
	}
}
