package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/version"
)

// TestStatus checks that Status includes alarms and reports a missing leader.
func TestStatus(t *testing.T) {
	n := newNode(t)
	n.status.Index, n.status.Applied = 12, 11
	n.status.DBSize, n.status.DBSizeInUse, n.status.Quota = 300, 200, 1000
	n.status.Errors = []string{"not well"}
	c := serve(t, n, Options{})
	for _, a := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		_, err := c.Alarm(ctx10(t), &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: testMember, Alarm: a,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, unknown := range []pb.AlarmType{3, 258} { // no member could decode it from the log
		_, err := c.Alarm(ctx10(t), &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: testMember, Alarm: unknown,
		})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("alarm %d: %v", unknown, err)
		}
	}
	n.setLeader(0)
	got, err := c.Status(ctx10(t), &pb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got.Header = nil
	nospace := &pb.AlarmMember{MemberID: testMember, Alarm: pb.AlarmType_NOSPACE}
	corrupt := &pb.AlarmMember{MemberID: testMember, Alarm: pb.AlarmType_CORRUPT}
	want := &pb.StatusResponse{
		Version: version.EtcdVersion, StorageVersion: "3.7.0", RaftTerm: 2, RaftIndex: 12,
		RaftAppliedIndex: 11, DbSize: 300, DbSizeInUse: 200, DbSizeQuota: 1000,
		Errors: []string{
			"etcdserver: no leader", nospace.String(), corrupt.String(), "not well",
		},
		DowngradeInfo: &pb.DowngradeInfo{},
	}
	if !proto.Equal(got, want) {
		t.Errorf("status %v, want %v", got, want)
	}
}

// TestSnapshot checks that the parts of a snapshot contain what the member wrote, followed by its
// digest in the last part. The remaining bytes decrease to 0.
func TestSnapshot(t *testing.T) {
	for _, size := range []int{1, snapshotChunk, snapshotChunk + 1, 10*snapshotChunk + 7} {
		n := newNode(t)
		n.status.DBSizeInUse = int64(size)
		n.snapshot = bytes.Repeat([]byte("0123456"), size/7+1)[:size]
		s, err := serve(t, n, Options{}).Snapshot(ctx10(t), &pb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got, sum []byte
		for last := uint64(1 << 62); ; {
			r, err := s.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.RemainingBytes > last || r.Version != "3.7.0" {
				t.Errorf("%d bytes remain, version %q", r.RemainingBytes, r.Version)
			}
			last = r.RemainingBytes
			got = append(got, sum...)
			sum = r.Blob
			if len(r.Blob) > snapshotChunk {
				t.Errorf("a part of %d bytes", len(r.Blob))
			}
		}
		want := sha256.Sum256(n.snapshot)
		if !bytes.Equal(got, n.snapshot) || !bytes.Equal(sum, want[:]) {
			t.Errorf("%d bytes came as %d, digest %x", size, len(got), sum)
		}
	}
}

// TestSnapshotsAtOnce checks that only a few snapshots are sent at a time, and that further
// requests are rejected.
func TestSnapshotsAtOnce(t *testing.T) {
	n := newNode(t)
	n.snapshot = []byte("snapshot")
	begun, end := make(chan struct{}), make(chan struct{})
	n.snapshotting = func() { begun <- struct{}{}; <-end }
	c := serve(t, n, Options{})
	snapshot := func() error {
		s, err := c.Snapshot(ctx10(t), &pb.SnapshotRequest{})
		for err == nil {
			_, err = s.Recv()
		}
		return err
	}
	done := make(chan error, maxSnapshots)
	begin := func() {
		go func() { done <- snapshot() }()
		<-begun
	}
	for range maxSnapshots {
		begin()
	}
	refused := make(chan error, 1)
	go func() { refused <- snapshot() }()
	select {
	case err := <-refused:
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more: %v", err)
		}
	case <-begun:
		t.Error("one more is sent")
		end <- struct{}{}
	}
	end <- struct{}{}
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	begin() // takes the free slot
	close(end)
	for range maxSnapshots {
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}

// TestHashCallsSerialized checks that calls that hash all keys run one at a time.
func TestHashCallsSerialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &maintenanceService{node: newNode(t), hashing: make(chan struct{}, 1)}
		s.hashing <- struct{}{} // held by another call
		done := make(chan error, 2)
		go func() { _, err := s.Hash(t.Context(), &pb.HashRequest{}); done <- err }()
		go func() { _, err := s.HashKV(t.Context(), &pb.HashKVRequest{}); done <- err }()
		synctest.Wait()
		if n := len(done); n > 0 {
			t.Errorf("%d calls do not wait for their turn", n)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.HashKV(gone, &pb.HashKVRequest{}); status.Code(err) != codes.Canceled {
			t.Errorf("a call that was cancelled: %v", err)
		}
		<-s.hashing
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSnapshotFails checks that if a snapshot cannot be written, the stream ends with the error
// instead of appearing complete.
func TestSnapshotFails(t *testing.T) {
	s, err := serve(t, newNode(t), Options{}).Snapshot(ctx10(t), &pb.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	wantStatus(t, err, status.Error(codes.Unknown, errDisk.Error()))
}

// TestRequireLeader checks that calls that require a leader are rejected without one, and that
// their streams end if no leader is elected. Other calls and streams continue. Interceptors see the
// errors.
func TestRequireLeader(t *testing.T) {
	n := newNode(t)
	var seen []codes.Code
	c := serve(t, n, Options{
		LeaderInterval: time.Millisecond,
		Unary: func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			resp, err := next(ctx, req)
			seen = append(seen, status.Code(err))
			return resp, err
		},
	})
	want := metadata.AppendToOutgoingContext(ctx10(t),
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	if _, err := c.Put(want, &pb.PutRequest{Key: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	plain := openWatch(t, c)
	plain.create(&pb.WatchCreateRequest{Key: []byte("a")})
	plain.recv()
	s, err := c.watch.Watch(want)
	if err != nil {
		t.Fatal(err)
	}
	guarded := &watchClient{t, s}
	guarded.create(&pb.WatchCreateRequest{Key: []byte("a")})
	guarded.recv()
	alive, err := c.LeaseKeepAlive(want)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, alive, 1)
	wantKept(t, alive, 1, 0)

	n.setLeader(0)
	_, err = s.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	_, err = alive.Recv()
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	_, err = c.Put(want, &pb.PutRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	if _, err := c.Put(ctx10(t), &pb.PutRequest{Key: []byte("a")}); err != nil {
		t.Error(err)
	}
	if r := plain.recv(); len(r.Events) != 1 {
		t.Errorf("received %v", r)
	}
	if late, err := c.watch.Watch(want); err == nil {
		_, err = late.Recv()
		wantStatus(t, err, rpctypes.ErrGRPCNoLeader)
	}
	if !slices.Equal(seen, []codes.Code{codes.OK, codes.Unavailable, codes.OK}) {
		t.Errorf("the interceptor saw %v", seen)
	}
	n.setLeader(testMember)
	if again, err := c.watch.Watch(want); err == nil {
		w := &watchClient{t, again}
		w.create(&pb.WatchCreateRequest{Key: []byte("a")})
		w.recv()
	}
}

// TestStreamInElection checks that a stream that requires a leader and opens during an election
// gets the same grace period as streams that are already open. Its client may have just lost its
// connection to the leader that died.
func TestStreamInElection(t *testing.T) {
	n := newNode(t)
	n.setLeader(0)
	c := serve(t, n, Options{LeaderInterval: time.Hour})
	s, err := c.watch.Watch(metadata.AppendToOutgoingContext(ctx10(t),
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
	if err != nil {
		t.Fatal(err)
	}
	w := &watchClient{t, s}
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	if r := w.recv(); !r.Created || r.Canceled {
		t.Errorf("received %v", r)
	}
}

// TestLeaderGuardStops checks that the leader guard stops when the last stream that requires a
// leader has ended.
func TestLeaderGuardStops(t *testing.T) {
	n := newNode(t)
	running := goleak.IgnoreCurrent()
	g := &leaderGuard{node: n, interval: time.Hour}
	ctx := metadata.NewIncomingContext(t.Context(),
		metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
	call := intercept.Stream(g.stream).Around(func(any, grpc.ServerStream) error { return nil })
	for range 2 {
		if err := call(nil, &guardedStream{ctx: ctx}); err != nil {
			t.Fatal(err)
		}
	}
	if err := goleak.Find(running); err != nil {
		t.Error(err)
	}
}

// TestHealth checks that a client that watches the health status is notified when the member is
// about to stop.
func TestHealth(t *testing.T) {
	stop := make(chan struct{})
	c := grpc_health_v1.NewHealthClient(serve(t, newNode(t), Options{Stop: stop}).conn)
	w, err := c.Watch(ctx10(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
		grpc_health_v1.HealthCheckResponse_SERVING,
		grpc_health_v1.HealthCheckResponse_NOT_SERVING,
	} {
		r, err := w.Recv()
		if err != nil || r.Status != want {
			t.Fatal(r, err)
		}
		if want == grpc_health_v1.HealthCheckResponse_SERVING {
			close(stop)
		}
	}
}
