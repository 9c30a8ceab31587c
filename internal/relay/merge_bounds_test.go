package relay_test

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/inprocess"
)

// Goal: a watch that asks to be told how far it is hears that also while nothing changes, whether
// it is merged or not.
func TestMergedProgress(t *testing.T) {
	t.Parallel()
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
}
