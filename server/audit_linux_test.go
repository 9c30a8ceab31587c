package server

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	native "leasehold.dev/api/leasehold/v1"
)

// TestAuditStops checks that with "stop", writes that cannot be recorded are rejected, on streams
// as well, while reads that need no record still work. The audit file is a device that is always
// full.
func TestAuditStops(t *testing.T) {
	t.Parallel()
	for _, whenFull := range []string{"stop", "drop"} {
		c := cheapConfig(shortDir(t))
		c.Access.Audit.File, c.Access.Audit.Level = "/dev/full", "writes"
		c.Access.Audit.WhenFull = whenFull
		r := run(t, c)
		conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
		kv := pb.NewKVClient(conn)
		want := codes.OK
		if whenFull == "stop" {
			want = codes.Unavailable
		}
		// The first put finds that the disk is full. It is applied, but its response is withheld.
		for _, key := range []string{"a", "b"} {
			before := r.node.View().KV.Revision()
			_, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte(key)})
			if status.Code(err) != want {
				t.Errorf("%s: put %s: %v", whenFull, key, err)
			}
			done := r.node.View().KV.Revision() > before
			if done != (key == "a" || whenFull == "drop") {
				t.Errorf("%s: put %s is done: %v", whenFull, key, done)
			}
		}
		if _, err := kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("a")}); err != nil {
			t.Errorf("%s: a read: %v", whenFull, err)
		}
		before := r.node.View().KV.Revision()
		s, err := native.NewStreamServiceClient(conn).Open(t.Context())
		if err == nil {
			err = s.Send(&native.ClientMessage{Requests: []*native.Request{{
				Id: 1, Body: &native.Request_Put{Put: &native.PutRequest{Key: []byte("c")}},
			}}})
		}
		for answers := 0; err == nil && answers == 0; {
			var m *native.ServerMessage
			m, err = s.Recv()
			answers = len(m.GetResponses())
		}
		if status.Code(err) != want {
			t.Errorf("%s: a put on a stream: %v", whenFull, err)
		}
		if done := r.node.View().KV.Revision() > before; done != (whenFull == "drop") {
			t.Errorf("%s: a put on a stream is done: %v", whenFull, done)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if dropped := r.measured(t, "leasehold_audit_dropped_total")[""]; dropped == 0 {
			t.Errorf("%s: no record is counted as dropped", whenFull)
		}
	}
}

// TestAuditStopsRefusals checks that with "stop", a caller does not learn that it was denied access
// if the denial cannot be recorded.
func TestAuditStopsRefusals(t *testing.T) {
	t.Parallel()
	for whenFull, want := range map[string]codes.Code{
		"stop": codes.Unavailable, "drop": codes.Unauthenticated,
	} {
		c := cheapConfig(shortDir(t))
		c.Access.Audit.File, c.Access.Audit.WhenFull = "/dev/full", whenFull
		r := run(t, c)
		withUsers(t, r)
		conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
		forged := as(t, "forged")
		_, err := pb.NewKVClient(conn).Range(forged, &pb.RangeRequest{Key: []byte("a")})
		if status.Code(err) != want {
			t.Errorf("%s: a read: %v, want %v", whenFull, err, want)
		}
		s, err := pb.NewMaintenanceClient(conn).Snapshot(forged, &pb.SnapshotRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("%s: a stream: %v, want %v", whenFull, err, want)
		}
	}
}
