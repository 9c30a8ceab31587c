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

// session is a client that keeps a single lease alive over its own stream.
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

// ask sends a request and returns the next response.
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
				t.Fatalf("response to %d: %v", r.Id, resp)
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

// metric returns the value of a metric.
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

// TestRenewalsThroughRelay checks that rounds answer the renewals of many clients, except for the
// first renewal of each lease. Each client receives what a member would return, including why its
// lease is gone, and can send other requests in between.
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
			t.Errorf("%s renewals answered by rounds, want %s", n, want)
		}
		first, second := all[0], all[1]
		first.ask(t, &pb.Request{Body: &pb.Request_Revoke{Revoke: &pb.RevokeRequest{
			Leases: []*pb.LeaseRef{{Id: second.lease.Id}},
		}}})
		gone := second.renew(t)
		if len(gone.GetResults()) != 1 || gone.Results[0].Reason != pb.Reason_REASON_LEASE_NOT_FOUND ||
			gone.Results[0].Cause != pb.LeaseEvent_KIND_REVOKED {
			t.Errorf("revoked lease: %v", gone)
		}
		if got := first.renew(t); len(got.GetTtlMs()) != 1 || got.TtlMs[0] != 60_000 {
			t.Errorf("other lease: %v", got)
		}
		// Requests sent before the client half-closes are answered.
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
					t.Errorf("at the end: %v, after %d responses", err, answered)
				}
				return
			}
			answered += len(m.Responses)
		}
	})
}

// receiving returns the number of relayed streams that have a receiving goroutine.
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

// TestStreamsRestBehindRelay checks that a relayed stream that is idle, or only renews, has no
// receiving goroutine at the member. It gets one when any other request arrives. The test is not
// parallel because it counts goroutines of the whole process.
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
				// there is no signal for the end of a goroutine
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
					t.Fatalf("%d idle streams have a receiving goroutine", n)
				}
			}
		}
		for range 2 {
			for n := 1; n > 0; n = receiving() { // a slow request wakes its stream
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

// remaining returns a lower bound on the lease's remaining time, or a negative value if the lease
// is gone.
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

// TestDeadClientBehindRelay checks that the lease of a client that is gone or silent ends one TTL
// after its last renewal, even though the relay renews the lease's group until it notices.
func TestDeadClientBehindRelay(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		conn, other := dial(t, r.endpoint), dial(t, r.endpoint)
		alive, gone, silent := newSession(t, conn), newSession(t, other), newSession(t, conn)
		last := make(map[*session]time.Time)
		for range 3 {
			for _, s := range []*session{gone, silent, alive} {
				last[s] = time.Now()
				s.renew(t)
			}
			time.Sleep(10 * time.Second)
		}
		rounds := func(until time.Duration) {
			for time.Since(last[gone]) < until {
				alive.renew(t)
				time.Sleep(5 * time.Second)
			}
		}
		rounds(15 * time.Second)
		_ = other.Close()
		rounds(40 * time.Second)
		// Allow one second, because a renewal waits for a round and remaining times are rounded.
		for name, s := range map[string]*session{"gone": gone, "silent": silent} {
			left, want := alive.remaining(t, s.lease.Id), time.Minute-time.Since(last[s])
			if left < want-time.Second || left > want+time.Second {
				t.Errorf("client %s: its lease has %v left, want %v", name, left, want)
			}
		}
		rounds(62 * time.Second)
		for name, s := range map[string]*session{"gone": gone, "silent": silent} {
			if left := alive.remaining(t, s.lease.Id); left >= 0 {
				t.Errorf("client %s: its lease has %v left", name, left)
			}
		}
		if left := alive.remaining(t, alive.lease.Id); left < 50*time.Second {
			t.Errorf("lease of the live client: %v left", left)
		}
	})
}
