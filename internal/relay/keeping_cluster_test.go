package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/inprocess"
)

// session is a client that keeps one lease alive over a stream of its own.
type session struct {
	stream pb.StreamService_OpenClient
	lease  *pb.Lease
	last   uint64
}

func newSession(t testing.TB, conn *grpc.ClientConn) *session {
	t.Helper()
	stream, err := pb.NewStreamServiceClient(conn).Open(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &session{stream: stream}
	s.lease = s.ask(t, &pb.Request{Body: &pb.Request_Grant{
		Grant: &pb.GrantRequest{TtlMs: 60_000},
	}}).GetGrant().GetLease()
	return s
}

// ask sends a request and returns the answer, which is the next.
func (s *session) ask(t testing.TB, r *pb.Request) *pb.Response {
	t.Helper()
	s.last++
	r.Id = s.last
	if err := s.stream.Send(&pb.ClientMessage{Requests: []*pb.Request{r}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := s.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, resp := range m.Responses {
			if resp.Id != r.Id {
				t.Fatalf("the answer to %d is %v", r.Id, resp)
			}
			return resp
		}
	}
}

func (s *session) renew(t testing.TB) *pb.RenewResponse {
	t.Helper()
	return s.ask(t, &pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
		Ids: []int64{s.lease.Id}, Tokens: []uint64{s.lease.Token},
	}}}).GetRenew()
}

// metric returns a number of the page of metrics.
func (r *running) metric(t testing.TB, name string) (value string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return inprocess.Dialer(t)(ctx, r.endpoint)
		},
		DisableKeepAlives: true,
	}}
	resp, err := c.Get("http://relay/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ = strings.Cut(string(text), "\n"+name+" ")
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// Goal: renewals of many clients are answered by rounds, but for the first of each lease; each client
// hears what it would hear at a member, also that its lease is gone and why, and what else it asks for is done in between.
func TestRenewalsThroughRelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		conn := dial(t, r.endpoint)
		const sessions, renewals = 20, 5
		var all []*session
		for range sessions {
			all = append(all, newSession(t, conn))
		}
		var wg sync.WaitGroup
		for i, s := range all {
			wg.Go(func() {
				for k := range renewals {
					got := s.renew(t)
					if len(got.GetTtlMs()) != 1 || got.TtlMs[0] != 60_000 || got.Header.GetClusterId() == 0 {
						t.Errorf("renewal %d of session %d: %v", k, i, got)
					}
					put := s.ask(t, &pb.Request{Body: &pb.Request_Put{
						Put: &pb.PutRequest{Key: fmt.Append(nil, "k", i), Lease: s.lease.Id},
					}})
					if put.GetPut() == nil {
						t.Errorf("put %d of session %d: %v", k, i, put)
					}
				}
			})
		}
		wg.Wait()
		want := fmt.Sprint(sessions * (renewals - 1))
		if n := r.metric(t, "leasehold_relay_renewals_total"); n != want {
			t.Errorf("%s renewals are answered by rounds, not %s", n, want)
		}
		first, second := all[0], all[1]
		first.ask(t, &pb.Request{Body: &pb.Request_Revoke{Revoke: &pb.RevokeRequest{
			Leases: []*pb.LeaseRef{{Id: second.lease.Id}},
		}}})
		gone := second.renew(t)
		if len(gone.GetResults()) != 1 || gone.Results[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND ||
			gone.Results[0].Cause != pb.LeaseEvent_KIND_REVOKED {
			t.Errorf("of a lease that was revoked the client hears %v", gone)
		}
		if got := first.renew(t); len(got.GetTtlMs()) != 1 || got.TtlMs[0] != 60_000 {
			t.Errorf("another lease: %v", got)
		}
		// What has been asked when a client says no more is answered.
		if err := first.stream.Send(&pb.ClientMessage{Requests: []*pb.Request{{
			Id: 1000, Body: &pb.Request_Renew{Renew: &pb.RenewRequest{Ids: []int64{first.lease.Id}}},
		}}}); err != nil {
			t.Fatal(err)
		}
		if err := first.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		answered := 0
		for {
			m, err := first.stream.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) || answered != 1 {
					t.Errorf("at the end: %v, after %d answers", err, answered)
				}
				return
			}
			answered += len(m.Responses)
		}
	})
}

// receiving returns how many streams that relays carry have a goroutine that receives.
func receiving() (n int) {
	stacks := make([]byte, 1<<24)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("native.(*stream).receiveAll")) &&
			bytes.Contains(stack, []byte("channel.(*Channel)")) {
			n++
		}
	}
	return n
}

// Goal: a stream behind a relay that does nothing, or renews, has no goroutine at the member that
// receives; and has one again when something else comes. It is not parallel, as it counts the
// goroutines of the process.
func TestStreamsRestBehindRelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		conn := dial(t, r.endpoint)
		all := []*session{newSession(t, conn), newSession(t, conn), newSession(t, conn)}
		ctx := soon(t)
		rest := func() {
			t.Helper()
			for n := receiving(); n > 0; n = receiving() {
				select {
				case <-time.After(10 * time.Millisecond): // nothing tells that a goroutine has ended
				case <-ctx.Done():
					t.Fatalf("%d streams receive, and nothing comes", n)
				}
			}
		}
		for range 2 {
			for n := 1; n > 0; n = receiving() { // one that takes long at the member wakes its stream
				rest()
				for _, s := range all {
					if got := s.renew(t); len(got.GetTtlMs()) != 1 || got.TtlMs[0] != 60_000 {
						t.Fatal(got)
					}
				}
			}
			for i, s := range all {
				put := s.ask(t, &pb.Request{Body: &pb.Request_Put{
					Put: &pb.PutRequest{Key: fmt.Append(nil, "k", i), Lease: s.lease.Id},
				}})
				if put.GetPut() == nil {
					t.Errorf("put of session %d: %v", i, put)
				}
			}
		}
	})
}

// remaining returns for how long a lease will certainly live on, below 0 if there is none.
func (s *session) remaining(t testing.TB, id int64) time.Duration {
	t.Helper()
	l := s.ask(t, &pb.Request{Body: &pb.Request_Describe{
		Describe: &pb.DescribeRequest{Id: id},
	}}).GetDescribe().GetLease()
	if l == nil {
		return -1
	}
	return time.Duration(l.RemainingMs) * time.Millisecond
}

// Goal: the lease of a client that is gone, or silent, ends a TTL after its last renewal, although
// others behind the same relay are renewed with it until the relay notices.
func TestDeadClientBehindRelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		conn, other := dial(t, r.endpoint), dial(t, r.endpoint)
		alive, gone, silent := newSession(t, conn), newSession(t, other), newSession(t, conn)
		var last time.Time
		for range 3 {
			last = time.Now()
			for _, s := range []*session{gone, silent, alive} {
				s.renew(t)
			}
			time.Sleep(10 * time.Second)
		}
		rounds := func(until time.Duration) {
			for time.Since(last) < until {
				alive.renew(t)
				time.Sleep(5 * time.Second)
			}
		}
		rounds(15 * time.Second)
		_ = other.Close()
		rounds(40 * time.Second)
		// A renewal waits for a round, and what is said of a lease is rounded: a second is plenty.
		for name, s := range map[string]*session{"gone": gone, "silent": silent} {
			left, want := alive.remaining(t, s.lease.Id), time.Minute-time.Since(last)
			if left < want-time.Second || left > want+time.Second {
				t.Errorf("the client is %s: its lease lives on for %v, not %v", name, left, want)
			}
		}
		rounds(62 * time.Second)
		for name, s := range map[string]*session{"gone": gone, "silent": silent} {
			if left := alive.remaining(t, s.lease.Id); left >= 0 {
				t.Errorf("the client is %s, and its lease lives on for %v", name, left)
			}
		}
		if left := alive.remaining(t, alive.lease.Id); left < 50*time.Second {
			t.Errorf("the lease of the client that is there lives on for %v", left)
		}
	})
}
