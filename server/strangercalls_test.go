package server

import (
	"path/filepath"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/test/virtual"
)

// TestStrangersHaveFewCalls checks that a connection without a login is limited to a few concurrent
// calls, and is closed if it sends nothing on them. A connection with a token has no such limit.
func TestStrangersHaveFewCalls(t *testing.T) { virtual.Test(t, testStrangersHaveFewCalls) }

func testStrangersHaveFewCalls(t *testing.T) {
	const calls, watch = 100, 2
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	socket := r.cfg.URLs.ListenClient[0].Path
	s := newStranger(t, socket)
	s.calls = strangersCalls[0][:]
	for range calls {
		s.send(sendOpen, watch)
	}
	s.await()
	<-time.After(time.Second) // calls are rejected asynchronously
	if n := s.resets.Load(); n != calls-strangerCalls || s.err != nil {
		t.Errorf("%d of %d calls were refused, %v", n, calls, s.err)
	}
	conn, err := grpc.NewClient("unix:"+socket, virtual.GRPC(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", r.token(t, "alice"))
	streams := make([]etcdpb.Watch_WatchClient, calls)
	for i := range streams {
		if streams[i], err = etcdpb.NewWatchClient(conn).Watch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Error("the stranger's connection is still open")
	}
	for i, w := range streams {
		err := w.Send(&etcdpb.WatchRequest{RequestUnion: &etcdpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdpb.WatchCreateRequest{Key: []byte("a")},
		}})
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		if m, err := w.Recv(); err != nil || !m.Created || m.Canceled {
			t.Fatalf("stream %d: %v, %v", i, m, err)
		}
	}
	s.end()
}

// TestIssuersCallersAreNoStrangers checks that once the issuer's keys are known, a caller with a
// token from that issuer is exempt from the limits for anonymous connections.
func TestIssuersCallersAreNoStrangers(t *testing.T) {
	virtual.Test(t, testIssuersCallersAreNoStrangers)
}

func testIssuersCallersAreNoStrangers(t *testing.T) {
	dir := shortDir(t)
	c := cheapConfig(dir)
	corp := newIssuer(t)
	c.Access.BindingsFile = writeBindings(t, filepath.Join(dir, "b"), bindingsFor(corp))
	r := run(t, c)
	withUsers(t, r)
	socket := r.cfg.URLs.ListenClient[0].Path
	if err := put(t, dial(t, socket, nil), "a", "token", corp.Token(t, "k", "bob", writers)); err != nil {
		t.Fatal(err)
	}
	s := newStranger(t, socket)
	s.calls = strangersCalls[0][:]
	s.token = corp.Token(t, "k", "eve", writers)
	for range 100 {
		s.send(sendOpen, 2) // open a watch
	}
	s.await()
	if n := s.resets.Load(); n > 0 {
		t.Errorf("%d calls were refused", n)
	}
	s.end()
}
