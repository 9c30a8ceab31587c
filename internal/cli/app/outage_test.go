package app_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/apptest"
)

// patience is the command timeout in tests.
const patience = time.Minute

// mute accepts streams and never answers.
type mute struct {
	pb.UnimplementedStreamServiceServer
}

func (mute) Open(s pb.StreamService_OpenServer) error {
	<-s.Context().Done()
	return nil
}

// TestOutageMessages checks that a command prints the reason while it waits for a cluster that is
// unreachable or has no leader, and prints a line when the cluster is available again.
func TestOutageMessages(t *testing.T) {
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
	errs := apptest.NewStderr(0)
	a := &app.App{Process: app.Process{Stderr: errs}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.ReportOutages(c, 300*time.Millisecond)
	}()
	errs.Await(t, "away for the test")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	up <- l
	errs.Await(t, "Connected to http://a.member:1")
	errs.Await(t, "The cluster is not responding") // because this member never answers
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestNoOutageForOtherServers checks that a command that reaches another type of server fails and
// does not claim to retry.
func TestNoOutageForOtherServers(t *testing.T) {
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
	a := &app.App{Process: app.Process{Stderr: &errs}}
	a.ReportOutages(c, patience)
	if errs.Len() > 0 {
		t.Errorf("complained %q", errs.String())
	}
}

// TestNoOutageMessageAtTimeout checks that a command that is about to time out does not claim to
// retry.
func TestNoOutageMessageAtTimeout(t *testing.T) {
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
		errs := apptest.NewStderr(0)
		a := &app.App{Process: app.Process{Stderr: errs}}
		ended, began := make(chan struct{}), time.Now()
		go func() {
			defer close(ended)
			a.ReportOutages(c, patience)
		}()
		errs.Await(t, "away for the test")
		if after := time.Since(began); after != patience+app.LastWord {
			t.Errorf("told after %v, not %v", after, patience+app.LastWord)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// denies accepts streams and denies all reads.
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

// pipes is an in-memory listener.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestDeniedIsNoOutage checks that a cluster is not reported as unreachable when it denies a read.
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
		a := &app.App{Process: app.Process{Stderr: &errs}}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.ReportOutages(c, patience)
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
