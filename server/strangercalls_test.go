package server

import (
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/test/virtual"
)

// A connection on which nobody has logged in has a few calls at a time, and is closed if it says
// nothing on them. One with a token has as many as it likes, silent or not.
func TestStrangersHaveFewCalls(t *testing.T) { virtual.Test(t, testStrangersHaveFewCalls) }

func testStrangersHaveFewCalls(t *testing.T) {
	const calls, watch = 100, 2
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	socket := r.cfg.URLs.ListenClient[0].Path
	s := newStranger(t, socket)
	s.calls = strangersCalls[0][:]
	for range calls {
		s.say(sayOpen, watch)
	}
	s.await()
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
