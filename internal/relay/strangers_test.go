package relay_test

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/relay"
	"leasehold.dev/test/inprocess"
)

// TestStrangersAtARelay checks that a connection to a relay is limited to a few calls until a
// member reports that a caller on that connection has logged in.
func TestStrangersAtARelay(t *testing.T) {
	t.Parallel()
	const calls, few = 400, 256
	m := inprocess.Run(t, 1)
	users(t, m[0], "a")
	r := start(t, relay.Config{
		Endpoints: inprocess.Endpoints(m), User: "passer", Password: "p",
	})
	open := func(ctx context.Context, client etcdserverpb.WatchClient) (refused int) {
		var list []etcdserverpb.Watch_WatchClient
		for range calls {
			w, err := client.Watch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, w)
		}
		for _, w := range list {
			// A refused call has ended or will end soon. Any other call receives a response.
			_ = w.Send(&etcdserverpb.WatchRequest{
				RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
					CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("k")},
				},
			})
			switch _, err := w.Recv(); {
			case status.Code(err) == codes.ResourceExhausted:
				refused++
			case err != nil:
				t.Fatal(err)
			}
		}
		return refused
	}
	ctx, cancel := context.WithCancel(soon(t))
	if n := open(ctx, etcdserverpb.NewWatchClient(dial(t, r.endpoint))); n != calls-few {
		t.Errorf("%d of %d anonymous calls were refused", n, calls)
	}
	cancel()
	conn := dial(t, r.endpoint)
	a := as(t, conn, "a")
	_, err := etcdserverpb.NewKVClient(conn).Range(a, &etcdserverpb.RangeRequest{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	if n := open(a, etcdserverpb.NewWatchClient(conn)); n != 0 {
		t.Errorf("%d calls of a user were refused", n)
	}
}
