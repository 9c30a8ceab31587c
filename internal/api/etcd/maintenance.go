package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"hash/crc32"
	"regexp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/version"
)

// maintenanceService serves etcdserverpb.Maintenance.
type maintenanceService struct {
	pb.UnsafeMaintenanceServer
	identity
	node      Node
	snapshots chan struct{} // contains a token for each snapshot being sent
	hashing   chan struct{} // contains a token while a call is hashing the keys
}

// maxSnapshots limits the number of snapshots that are sent concurrently. Each one encodes the
// entire state. Until it is complete, it keeps old versions of changed data in memory.
const maxSnapshots = 4

var errSnapshots = status.Errorf(codes.ResourceExhausted, "leasehold: this member is already "+
	"sending %d snapshots; wait for one to finish or use another member", maxSnapshots)

// Alarm implements pb.MaintenanceServer.
func (s *maintenanceService) Alarm(
	ctx context.Context, r *pb.AlarmRequest,
) (*pb.AlarmResponse, error) {
	if r.Action == pb.AlarmRequest_GET {
		return s.alarms(ctx, r)
	}
	off := r.Action == pb.AlarmRequest_DEACTIVATE
	if !off && r.Action != pb.AlarmRequest_ACTIVATE || r.Alarm == pb.AlarmType_NONE {
		// Like etcd, succeed without doing anything.
		if err := root(ctx, s.node.View()); err != nil {
			return nil, err
		}
		return &pb.AlarmResponse{Header: s.header(s.node.View())}, nil
	}
	if _, known := pb.AlarmType_name[int32(r.Alarm)]; !known {
		return nil, status.Errorf(codes.InvalidArgument, "etcdserver: unknown alarm %d", r.Alarm)
	}
	alarm := fsm.Alarm{Member: r.MemberID, Kind: fsm.AlarmKind(r.Alarm)}
	res, err := propose(ctx, s.node, &fsm.SetAlarm{Alarm: alarm, Off: off})
	if err != nil {
		return nil, err
	}
	changed, _ := res.Value.([]fsm.Alarm)
	return &pb.AlarmResponse{
		Header: s.headerAt(s.node.View(), res.Revision),
		Alarms: alarmMembers(changed, pb.AlarmType_NONE),
	}, nil
}

// alarms returns the active alarms of the requested type.
func (s *maintenanceService) alarms(
	ctx context.Context, r *pb.AlarmRequest,
) (*pb.AlarmResponse, error) {
	if err := s.node.Confirm(ctx); err != nil {
		return nil, api.ReadError(err)
	}
	v := s.node.View()
	if err := checkLogin(ctx, v); err != nil {
		return nil, err
	}
	return &pb.AlarmResponse{Header: s.header(v), Alarms: alarmMembers(s.node.Alarms(), r.Alarm)}, nil
}

// alarmMembers converts the alarms of one type, or of all types for NONE.
func alarmMembers(alarms []fsm.Alarm, kind pb.AlarmType) []*pb.AlarmMember {
	var out []*pb.AlarmMember
	for _, a := range alarms {
		t := pb.AlarmType(a.Kind.Shown())
		twice := slices.ContainsFunc(out, func(o *pb.AlarmMember) bool {
			return o.MemberID == a.Member && o.Alarm == t
		})
		if !twice && (kind == pb.AlarmType_NONE || kind == t) {
			out = append(out, &pb.AlarmMember{MemberID: a.Member, Alarm: t})
		}
	}
	return out
}

// Status implements pb.MaintenanceServer. Sizes are never 0, because JSON would omit them. In etcd
// they are never 0 either, because even an empty file has pages.
func (s *maintenanceService) Status(
	ctx context.Context, _ *pb.StatusRequest,
) (*pb.StatusResponse, error) {
	st, v := s.node.Status(), s.node.View()
	if err := checkLogin(ctx, v); err != nil {
		return nil, err
	}
	resp := &pb.StatusResponse{
		Header:           s.header(v),
		Version:          version.EtcdVersion,
		StorageVersion:   st.StorageVersion,
		Leader:           st.Leader,
		RaftTerm:         st.Term,
		RaftIndex:        st.Index,
		RaftAppliedIndex: st.Applied,
		DbSize:           max(st.DBSize, 1),
		DbSizeInUse:      max(st.DBSizeInUse, 1),
		DbSizeQuota:      st.Quota,
		IsLearner:        st.Learner,
		DowngradeInfo:    &pb.DowngradeInfo{},
	}
	if v.Version.Held {
		resp.DowngradeInfo.Enabled = true
		resp.DowngradeInfo.TargetVersion = version.Semantic(v.Version.Number)
	}
	if st.Leader == 0 {
		resp.Errors = append(resp.Errors, rpctypes.ErrNoLeader.Error())
	}
	for _, a := range alarmMembers(v.Alarms, pb.AlarmType_NONE) {
		resp.Errors = append(resp.Errors, a.String())
	}
	resp.Errors = append(resp.Errors, st.Errors...)
	return resp, nil
}

// Defragment implements pb.MaintenanceServer.
func (s *maintenanceService) Defragment(
	ctx context.Context, _ *pb.DefragmentRequest,
) (*pb.DefragmentResponse, error) {
	if err := root(ctx, s.node.View()); err != nil {
		return nil, err
	}
	if err := s.node.Defragment(ctx); err != nil {
		return nil, api.Error(err)
	}
	return &pb.DefragmentResponse{}, nil // like etcd, omit the header
}

// emptyHash is the hash of an empty store as seen by clients. Our own hash would be 0, which JSON
// would omit. etcd's hash of an empty store has this value because etcd starts by hashing the name
// of a table.
var emptyHash = crc32.Checksum([]byte("key"), crc32.MakeTable(crc32.Castagnoli))

// Hash implements pb.MaintenanceServer.
func (s *maintenanceService) Hash(
	ctx context.Context, _ *pb.HashRequest,
) (*pb.HashResponse, error) {
	v := s.node.View()
	if err := root(ctx, v); err != nil {
		return nil, err
	}
	h, _, err := s.hash(ctx, v, 0)
	if err != nil {
		return nil, err
	}
	return &pb.HashResponse{Header: s.header(v), Hash: h ^ emptyHash}, nil
}

// HashKV implements pb.MaintenanceServer.
func (s *maintenanceService) HashKV(
	ctx context.Context, r *pb.HashKVRequest,
) (*pb.HashKVResponse, error) {
	v := s.node.View()
	if err := root(ctx, v); err != nil {
		return nil, err
	}
	h, compacted, err := s.hash(ctx, v, r.Revision)
	if err != nil {
		return nil, err
	}
	if compacted == 0 {
		compacted = -1 // as in etcd, if there has been no compaction
	}
	rev := r.Revision
	if rev <= 0 {
		rev = v.KV.Revision()
	}
	return &pb.HashKVResponse{
		Header: s.header(v), Hash: h ^ emptyHash, CompactRevision: compacted, HashRevision: rev,
	}, nil
}

// hash returns the hash of all keys as of a revision. Calls take turns, because each one uses an
// entire CPU and dozens of them would starve everything else.
func (s *maintenanceService) hash(
	ctx context.Context, v *fsm.View, revision int64,
) (hash uint32, compacted int64, err error) {
	select {
	case s.hashing <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, status.FromContextError(ctx.Err()).Err()
	}
	defer func() { <-s.hashing }()
	hash, compacted, err = v.KV.Hash(revision)
	if err != nil {
		return 0, 0, api.Error(err)
	}
	return hash, compacted, nil
}

// MoveLeader implements pb.MaintenanceServer. Only the leader can transfer leadership. Clients are
// responsible for finding the leader.
func (s *maintenanceService) MoveLeader(
	ctx context.Context, r *pb.MoveLeaderRequest,
) (*pb.MoveLeaderResponse, error) {
	if err := root(ctx, s.node.View()); err != nil {
		return nil, err
	}
	switch err := s.node.MoveLeader(ctx, r.TargetID); {
	case errors.Is(err, replica.ErrNoLeader):
		return nil, rpctypes.ErrGRPCNotLeader
	case err != nil:
		return nil, api.Error(err)
	}
	return &pb.MoveLeaderResponse{}, nil // like etcd, omit the header
}

// release matches a version that can be the target of a downgrade.
var release = regexp.MustCompile(`^v?[0-9]+\.[0-9]+(\.[0-9]+)?(-[0-9A-Za-z.-]+)?$`)

// Downgrade implements pb.MaintenanceServer. The versions are our own cluster versions, because
// etcd cannot read our data. As in etcd, canceling succeeds even if no downgrade is in progress.
func (s *maintenanceService) Downgrade(
	ctx context.Context, r *pb.DowngradeRequest,
) (*pb.DowngradeResponse, error) {
	if err := root(ctx, s.node.View()); err != nil {
		return nil, err
	}
	cancel := r.Action == pb.DowngradeRequest_CANCEL
	if !cancel && !release.MatchString(r.Version) {
		return nil, rpctypes.ErrGRPCWrongDowngradeVersionFormat
	}
	if err := s.node.Confirm(ctx); err != nil {
		return nil, api.ReadError(err)
	}
	v := s.node.View()
	c := &fsm.SetVersion{Version: version.Parse(r.Version), Hold: true}
	if cancel {
		c = &fsm.SetVersion{Version: v.Version.Number}
	}
	err := v.CheckSetVersion(c)
	switch {
	case cancel && errors.Is(err, fsm.ErrNoDowngrade):
	case c.Version == 0:
		return nil, rpctypes.ErrGRPCInvalidDowngradeTargetVersion
	case err != nil:
		return nil, api.Error(err)
	case r.Action != pb.DowngradeRequest_VALIDATE:
		if _, err := propose(ctx, s.node, c); err != nil {
			return nil, err
		}
		v = s.node.View()
	}
	return &pb.DowngradeResponse{
		Header: s.header(v), Version: version.Name(v.Version.Number),
	}, nil
}

// snapshotChunk is the size, in bytes, of one message of a snapshot.
const snapshotChunk = 64 << 10

// Snapshot implements pb.MaintenanceServer. The last message contains the SHA-256 of all previous
// messages.
func (s *maintenanceService) Snapshot(
	_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer,
) error {
	if err := root(stream.Context(), s.node.View()); err != nil {
		return err
	}
	select {
	case s.snapshots <- struct{}{}:
	default:
		return errSnapshots
	}
	defer func() { <-s.snapshots }()
	st := s.node.Status()
	w := &snapshotWriter{
		stream: stream, sum: sha256.New(), version: st.StorageVersion, estimate: st.DBSizeInUse,
	}
	if err := s.node.SnapshotTo(stream.Context(), w); err != nil {
		return api.Error(err)
	}
	if err := w.flush(); err != nil {
		return err
	}
	return stream.Send(&pb.SnapshotResponse{Blob: w.sum.Sum(nil), Version: w.version})
}

// snapshotWriter splits the bytes written to it into messages.
type snapshotWriter struct {
	stream  pb.Maintenance_SnapshotServer
	sum     hash.Hash
	version string
	chunk   []byte
	// estimate is the approximate number of bytes left to send. A snapshot is sent while it is
	// being created, so its exact size is unknown until the end.
	estimate int64
}

// Write implements io.Writer.
func (w *snapshotWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if w.chunk == nil {
			// Allocate a new chunk for each message, because gRPC may retain the previous one.
			w.chunk = make([]byte, 0, snapshotChunk)
		}
		n := min(len(p), cap(w.chunk)-len(w.chunk))
		w.chunk = append(w.chunk, p[:n]...)
		p = p[n:]
		if len(w.chunk) == cap(w.chunk) {
			if err := w.flush(); err != nil {
				return total - len(p), err
			}
		}
	}
	return total, nil
}

// flush sends everything written since the last message.
func (w *snapshotWriter) flush() error {
	if len(w.chunk) == 0 {
		return nil
	}
	w.sum.Write(w.chunk)
	w.estimate = max(w.estimate-int64(len(w.chunk)), 1)
	resp := &pb.SnapshotResponse{
		RemainingBytes: uint64(w.estimate), Blob: w.chunk, Version: w.version,
	}
	w.chunk = nil
	return w.stream.Send(resp)
}
