package server

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	native "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/audit"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
)

// With stop nothing is done that cannot be recorded, also not on a stream; what needs no record is
// done. Method: a device that is always full.
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
		// The first is what finds the disk full: it is done, and its answer is withheld.
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

// With stop a call is not told either that it is not let in, if that cannot be recorded.
func TestAuditStopsWhatIsRefused(t *testing.T) {
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

// Goal: a stream does not rest if what it says is to be on the disk first: the goroutine that
// answers for all streams that rest would wait for that.
func TestAuditedStreamsThatWaitDoNotRest(t *testing.T) {
	for _, whenFull := range []string{"stop", "drop"} {
		log, err := audit.Open(audit.Options{
			File: filepath.Join(t.TempDir(), "audit"), WhenFull: whenFull,
		})
		if err != nil {
			t.Fatal(err)
		}
		server := direct.NewServer(direct.Options{
			Credentials: insecure.NewCredentials(), Codec: wire.Codec(), Patience: time.Minute,
			Interceptors: []intercept.Stream{(&auditor{log: log}).stream},
		})
		rests := make(chan bool, 1)
		server.RegisterService(&grpc.ServiceDesc{ServiceName: "test", Streams: []grpc.StreamDesc{{
			StreamName: "Rest", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, g grpc.ServerStream) error {
				rests <- direct.RestOf(g.Context()) != nil
				return nil
			},
		}}}, nil)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		mux := listen.NewMux(listen.MuxOptions{Direct: true})
		ended := make(chan error, 2)
		go func() { ended <- mux.Serve(l, nil) }()
		go func() { ended <- server.Serve(mux.Direct()) }()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := direct.Open(t.Context(), c, "/test/Rest", wire.Codec()); err != nil {
			t.Fatal(err)
		}
		if got := <-rests; got != (whenFull == "drop") {
			t.Errorf("%s: a stream may rest: %t", whenFull, got)
		}
		_ = c.Close()
		server.GracefulStop()
		_ = mux.Close()
		<-ended
		<-ended
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
