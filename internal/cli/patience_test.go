package cli

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/apptest"
	"leasehold.dev/test/tier"
)

// shut is a listener that closes every connection it accepts until open is set.
type shut struct {
	net.Listener
	open atomic.Bool
}

func (l *shut) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && !l.open.Load() {
		_ = c.Close()
	}
	return c, err
}

// TestWaitingCommandsReportOutage checks that a command without a timeout reports that it is
// waiting for a member.
func TestWaitingCommandsReportOutage(t *testing.T) {
	for _, command := range []string{
		"lease keep-alive --once 77", "lease timetolive 77", "user list", "user get ann --detail",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			defer s.Stop()
			member := &shut{Listener: l}
			go func() { _ = s.Serve(member) }()
			errs := apptest.NewStderr(10)
			a := &app.App{Process: app.Process{Stderr: errs, Stdout: &bytes.Buffer{}}}
			root := newRoot(a, nil)
			root.SetArgs(append(strings.Fields(command), "--endpoints", l.Addr().String()))
			a.Flags.CommandTimeout = 0 // the command runs for more than a second anyway
			ended := make(chan error)
			go func() { ended <- root.Execute() }()
			errs.Await(t, "No member responds, retrying")
			member.open.Store(true)
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "unknown service") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// silent is a member that accepts calls and does not answer them.
type silent struct {
	etcdpb.UnimplementedLeaseServer
	pb.UnimplementedLeaseServiceServer
	ended            chan struct{}
	asked, described atomic.Bool
}

func (m *silent) LeaseKeepAlive(etcdpb.Lease_LeaseKeepAliveServer) error {
	m.asked.Store(true)
	<-m.ended
	return nil
}

func (m *silent) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	m.described.Store(true)
	<-m.ended
	return nil, nil
}

// TestKeepAliveOnceOfSilentMember checks that a renewal times out if the member does not answer.
// The error must not blame the connection, because the client is connected.
func TestKeepAliveOnceOfSilentMember(t *testing.T) {
	tier.Campaign(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := silent{ended: make(chan struct{})}
	s := grpc.NewServer()
	etcdpb.RegisterLeaseServer(s, &m)
	pb.RegisterLeaseServiceServer(s, &m)
	go func() { _ = s.Serve(l) }()
	code := 0
	for range 5 {
		if m.asked.Load() { // otherwise this process was paused for the whole timeout
			break
		}
		m.described.Store(false)
		code, _, _ = try(app.Process{Args: []string{
			"lease", "keep-alive", "--once", "77", "--command-timeout", "1s", "--endpoints",
			l.Addr().String(),
		}})
	}
	close(m.ended)
	s.Stop() // waits until all calls have ended
	if !m.asked.Load() {
		t.Error("the member was never asked")
	}
	if code != app.ExitConnection {
		t.Errorf("it ends with %d, want %d", code, app.ExitConnection)
	}
	if m.described.Load() {
		t.Error("another call was made when the time was up")
	}
}

// stalling is a member that hangs after it has answered the first renewal on its first stream.
type stalling struct {
	etcdpb.UnimplementedLeaseServer
	streams atomic.Int32
	ended   chan struct{}
}

func (m *stalling) LeaseKeepAlive(s etcdpb.Lease_LeaseKeepAliveServer) error {
	first := m.streams.Add(1) == 1
	for ttl := int64(2); ; ttl = 0 {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&etcdpb.LeaseKeepAliveResponse{ID: r.ID, TTL: ttl}); err != nil {
			return err
		}
		if first {
			<-m.ended
			return nil
		}
	}
}

func (m *stalling) LeaseTimeToLive(
	_ context.Context, r *etcdpb.LeaseTimeToLiveRequest,
) (*etcdpb.LeaseTimeToLiveResponse, error) {
	return &etcdpb.LeaseTimeToLiveResponse{ID: r.ID, TTL: -1}, nil
}

// TestKeepAliveOfHangingMember checks that the lease is renewed in time over another stream if the
// member hangs while its connection remains open.
func TestKeepAliveOfHangingMember(t *testing.T) {
	tier.RealTime(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := stalling{ended: make(chan struct{})}
	s := grpc.NewServer()
	etcdpb.RegisterLeaseServer(s, &m)
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	defer close(m.ended)
	_, out, errs := try(app.Process{Args: []string{
		"lease", "keep-alive", "4d", "--endpoints", l.Addr().String(),
	}})
	if n := strings.Count(out, "keepalived with TTL(2)"); n < 2 {
		t.Errorf("%d renewals over %d streams:\n%s%s", n, m.streams.Load(), out, errs)
	}
}
