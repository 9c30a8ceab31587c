package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/test/tier"
)

// heard is a standard error that says when something was written to it.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.text.Write(b)
	h.news <- struct{}{}
	return n, err
}

func (h *heard) await(t *testing.T, want string) {
	t.Helper()
	<-h.news
	h.mu.Lock()
	defer h.mu.Unlock()
	if !strings.Contains(h.text.String(), want) {
		t.Errorf("complained %q, want %q", h.text.String(), want)
	}
	h.text.Reset()
}

// mute takes streams and answers nothing.
type mute struct {
	pb.UnimplementedStreamServiceServer
}

func (mute) Open(s pb.StreamService_OpenServer) error {
	<-s.Context().Done()
	return nil
}

// Goal: who waits for a cluster that is away, or has no leader, is told so, with the reason, and
// when it is back.
func TestTellOutages(t *testing.T) {
	s := grpc.NewServer()
	pb.RegisterStreamServiceServer(s, mute{})
	defer s.Stop()
	up := make(chan net.Listener, 1)
	c, err := client.New(client.Config{
		Endpoints: []string{"http://a.member:1"},
		Dial: func(context.Context, string) (net.Conn, error) {
			select {
			case l := <-up:
				up <- l
				return net.Dial("tcp", l.Addr().String())
			default:
				return nil, &net.DNSError{Err: "away for the test"}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	errs := &heard{news: make(chan struct{})}
	a := &app{Process: Process{Stderr: errs}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.tellOutages(c, 300*time.Millisecond)
	}()
	errs.await(t, "away for the test")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	up <- l
	errs.await(t, "Connected to http://a.member:1")
	errs.await(t, "The cluster does not answer") // since this member never does
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// Goal: of servers that are none of ours the command says so by ending, and nobody is told
// that it tries on.
func TestTellNoOutage(t *testing.T) {
	s := grpc.NewServer()
	defer s.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	c, err := client.New(client.Config{Endpoints: []string{"http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var errs bytes.Buffer
	a := &app{Process: Process{Stderr: &errs}}
	a.tellOutages(c, patience)
	if errs.Len() > 0 {
		t.Errorf("complained %q", errs.String())
	}
}

// Goal: a command that gives up after its limit of time, and takes a moment for that, does not say
// that it tries on.
func TestTellAfterLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New(client.Config{
			Endpoints: []string{"http://a.member:1"},
			Dial: func(context.Context, string) (net.Conn, error) {
				return nil, &net.DNSError{Err: "away for the test"}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		errs := &heard{news: make(chan struct{})}
		a := &app{Process: Process{Stderr: errs}}
		ended, began := make(chan struct{}), time.Now()
		go func() {
			defer close(ended)
			a.tellOutages(c, patience)
		}()
		errs.await(t, "away for the test")
		if after := time.Since(began); after != patience+lastWord {
			t.Errorf("told after %v, not %v", after, patience+lastWord)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// denies takes streams and denies all that is read.
type denies struct {
	pb.UnimplementedStreamServiceServer
	asked chan struct{}
}

func (d denies) Open(s pb.StreamService_OpenServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		for _, r := range m.Requests {
			if err := s.Send(&pb.ServerMessage{Responses: []*pb.Response{{
				Id: r.Id, Body: &pb.Response_Error{Error: &pb.Error{
					Reason: pb.Reason_REASON_PERMISSION_DENIED,
				}},
			}}}); err != nil {
				return err
			}
			d.asked <- struct{}{}
		}
	}
}

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// Goal: a cluster that denies what a user may not read does answer. Method: a user who may read
// nothing holds something for long.
func TestDeniedIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, asked, l := grpc.NewServer(), make(chan struct{}), make(pipes)
		pb.RegisterStreamServiceServer(s, denies{asked: asked})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		c, err := client.New(client.Config{
			Endpoints: []string{"http://a.member:1"},
			Dial: func(context.Context, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				l <- theirs
				return ours, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		a := &app{Process: Process{Stderr: &errs}}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.tellOutages(c, patience)
		}()
		for range 3 {
			<-asked
		}
		_ = c.Close()
		<-ended
		s.Stop()
		<-served
		if errs.Len() > 0 {
			t.Errorf("complained %q", errs.String())
		}
	})
}

// shut is a listener that closes what it accepts, until it is open.
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

// Goal: a command without a limit of time says that it waits for a member.
func TestPatientCommandsTell(t *testing.T) {
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
			errs := &heard{news: make(chan struct{}, 10)}
			a := &app{Process: Process{Stderr: errs, Stdout: &bytes.Buffer{}}}
			root := a.root(nil)
			root.SetArgs(append(strings.Fields(command), "--endpoints", l.Addr().String()))
			a.flags.commandTimeout = 0 // one second passes all the same
			ended := make(chan error)
			go func() { ended <- root.Execute() }()
			errs.await(t, "No member answers, trying on")
			member.open.Store(true)
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "unknown service") {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// ending is a client whose first streams have ended before the request was sent.
type ending struct {
	clientv3.Lease
	tries int
}

func (e *ending) KeepAliveOnce(
	context.Context, clientv3.LeaseID,
) (*clientv3.LeaseKeepAliveResponse, error) {
	if e.tries++; e.tries < 3 {
		return nil, io.EOF
	}
	return nil, errors.New("unknown service")
}

// Goal: a renewal whose stream has ended before the request was sent tells why, and not "EOF".
func TestRenewTellsWhyStreamsEnd(t *testing.T) {
	if _, err := renew(t.Context(), &ending{}, 77); errors.Is(err, io.EOF) {
		t.Errorf("it ends with %v", err)
	}
}

// silent is a member that takes calls and does not answer them.
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

// Goal: a renewal that a member does not answer ends in its time: there is a connection, so nobody
// is asked why there is none.
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
		if m.asked.Load() { // else the machine stood still for the whole time
			break
		}
		m.described.Store(false)
		code, _, _ = try(Process{Args: []string{
			"lease", "keep-alive", "--once", "77", "--command-timeout", "1s", "--endpoints",
			l.Addr().String(),
		}})
	}
	close(m.ended)
	s.Stop() // and all calls have ended
	if !m.asked.Load() {
		t.Error("the member was never asked")
	}
	if code != exitConnection {
		t.Errorf("it ends with %d, want %d", code, exitConnection)
	}
	if m.described.Load() {
		t.Error("another call was made when the time was up")
	}
}

// stalling is a member that hangs after the first renewal of its first stream.
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

// Goal: a lease is renewed over another stream, in time, when a member hangs with its connection
// open. Method: a member whose first stream hangs after one renewal.
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
	_, out, errs := try(Process{Args: []string{
		"lease", "keep-alive", "4d", "--endpoints", l.Addr().String(),
	}})
	if n := strings.Count(out, "keepalived with TTL(2)"); n < 2 {
		t.Errorf("%d renewals over %d streams:\n%s%s", n, m.streams.Load(), out, errs)
	}
}
