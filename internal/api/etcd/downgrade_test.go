package etcd

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
)

// TestDowngrade checks that a downgrade is validated, started and ended as in etcd, and that Status
// shows it. The cluster version can be held only if a member supports a later one. Versions of etcd
// are rejected.
func TestDowngrade(t *testing.T) {
	n := newNode(t)
	api := pb.NewMaintenanceClient(serve(t, n, Options{}).conn)
	self := fsm.Member{ID: testMember, Versions: version.Range{Oldest: 1, Newest: 1}}
	if _, err := n.Propose(t.Context(), &fsm.SetMember{Member: self}); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		action pb.DowngradeRequest_DowngradeAction
		target string
		want   error
		held   bool // whether the version is held afterwards
	}{
		{pb.DowngradeRequest_VALIDATE, "0", rpctypes.ErrWrongDowngradeVersionFormat, false},
		{pb.DowngradeRequest_ENABLE, "", rpctypes.ErrWrongDowngradeVersionFormat, false},
		{pb.DowngradeRequest_VALIDATE, "3.6", rpctypes.ErrInvalidDowngradeTargetVersion, false},
		{pb.DowngradeRequest_ENABLE, "0.1", rpctypes.ErrInvalidDowngradeTargetVersion, false},
		{pb.DowngradeRequest_CANCEL, "", nil, false},
		// from here on, there is a newer member
		{pb.DowngradeRequest_VALIDATE, "0.1.0", nil, false},
		{pb.DowngradeRequest_ENABLE, "v0.1.0", nil, true},
		{pb.DowngradeRequest_ENABLE, "0.1", rpctypes.ErrDowngradeInProcess, true},
		{pb.DowngradeRequest_VALIDATE, "0.1", rpctypes.ErrDowngradeInProcess, true},
		{pb.DowngradeRequest_CANCEL, "", nil, false},
	} {
		if i == 5 {
			self.Versions.Newest = 2
			if _, err := n.Propose(t.Context(), &fsm.SetMember{Member: self}); err != nil {
				t.Fatal(err)
			}
		}
		resp, err := api.Downgrade(t.Context(), &pb.DowngradeRequest{
			Action: c.action, Version: c.target,
		})
		if !errors.Is(rpctypes.Error(err), c.want) || err == nil && resp.Version != "0.1" {
			t.Errorf("%v %q: %v, %v, want %v", c.action, c.target, resp, err, c.want)
		}
		want := &pb.DowngradeInfo{}
		if c.held {
			want = &pb.DowngradeInfo{Enabled: true, TargetVersion: "0.1.0"}
		}
		s, err := api.Status(t.Context(), &pb.StatusRequest{})
		if err != nil || s.DowngradeInfo.Enabled != want.Enabled ||
			s.DowngradeInfo.TargetVersion != want.TargetVersion {
			t.Errorf("%v %q: status %v, %v", c.action, c.target, s, err)
		}
	}
}
