package relay_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
)

// TestMergedProgress checks that a watch with progress notifications receives them while nothing
// changes, whether it is merged or not.
func TestMergedProgress(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		m := inprocess.Run(t, 1)
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		conn := dial(t, r.endpoint)
		var list []pb.StoreService_WatchClient
		for range 3 {
			ask := &pb.WatchRequest{Key: []byte("k"), ProgressMs: 100}
			w, err := pb.NewStoreServiceClient(conn).Watch(soon(t), ask)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, w)
		}
		for i, w := range list {
			for range 4 {
				if _, err := w.Recv(); err != nil {
					t.Fatalf("watch %d: %v", i, err)
				}
			}
		}
	})
}

// openWatches returns the number of open watch calls at a member.
func openWatches(t *testing.T, member *running) int {
	t.Helper()
	const labels = `{grpc_method="Watch",grpc_service="leasehold.v1.StoreService",` +
		`grpc_type="server_stream"}`
	n, err := strconv.Atoi(member.metric(t, "grpc_server_started_total"+labels))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMergedManyBehind checks that the relay opens only a few calls for a client that has a large
// number of watches and does not read. When the client resumes reading, it receives every event.
func TestMergedManyBehind(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		const watches = 100
		m := inprocess.Run(t, 1)
		member := &running{endpoint: m[0].Endpoint()}
		r := start(t, relay.Config{Endpoints: inprocess.Endpoints(m)})
		writer := inprocess.Connect(t, client.Config{}, member.endpoint)
		first := put(t, writer, "k", strings.Repeat("v", 70<<10))
		last := put(t, writer, "k", strings.Repeat("v", 70<<10))
		equalWatches(t, soon(t), dial(t, r.endpoint), "k", 2)
		s, err := pb.NewStreamServiceClient(dial(t, r.endpoint)).Open(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		ask := new(pb.ClientMessage)
		for i := range watches {
			ask.Requests = append(ask.Requests, &pb.Request{
				Id: uint64(i + 1), Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
					Key: []byte("k"), StartRevision: first,
				}},
			})
		}
		before := openWatches(t, member)
		if err := s.Send(ask); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "some watches are catching up", func() error {
			if n := openWatches(t, member) - before; n < 2 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		for range 20 {
			if n := openWatches(t, member) - before; n > watches/2 {
				t.Fatalf("%d calls for a client that does not read", n)
			}
		}
		received := make(map[uint64]int64)
		for whole := 0; whole < watches; {
			got, err := s.Recv()
			if err != nil {
				t.Fatalf("%d watches have all events: %v", whole, err)
			}
			for _, a := range got.Responses {
				for _, e := range a.GetWatch().GetEvents() {
					at := e.Kv.ModRevision
					if want := max(received[a.Id]+1, first); at != want {
						t.Fatalf("watch %d: revision %d, want %d", a.Id, at, want)
					}
					if received[a.Id] = at; at == last {
						whole++
					}
				}
			}
		}
	})
}
