package recovery

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/cli/app"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// roster is a cluster that lists its members and removes them when requested.
type roster struct {
	etcdserverpb.UnimplementedClusterServer
	Cluster uint64
	Members []uint64
	removed []uint64
}

func (m *roster) MemberList(
	context.Context, *etcdserverpb.MemberListRequest,
) (*etcdserverpb.MemberListResponse, error) {
	r := &etcdserverpb.MemberListResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: m.Cluster}}
	for _, id := range m.Members {
		r.Members = append(r.Members, &etcdserverpb.Member{ID: id})
	}
	return r, nil
}

func (m *roster) MemberRemove(
	_ context.Context, q *etcdserverpb.MemberRemoveRequest,
) (*etcdserverpb.MemberRemoveResponse, error) {
	m.removed = append(m.removed, q.ID)
	return &etcdserverpb.MemberRemoveResponse{}, nil
}

// TestReplaceRechecksCluster checks that no data is moved and no member is removed unless the
// cluster still matches the state that a member reported earlier.
func TestReplaceRechecksCluster(t *testing.T) {
	for name, x := range map[string]struct {
		m       roster
		unknown bool // the directory does not belong to a listed member
		removed []uint64
		err     string
	}{
		"as told":               {roster{Cluster: 0xc, Members: []uint64{1, 2}}, false, []uint64{1}, ""},
		"gone meanwhile":        {roster{Cluster: 0xc, Members: []uint64{2}}, false, nil, ""},
		"gone, as told":         {roster{Cluster: 0xc, Members: []uint64{2}}, true, nil, ""},
		"the list was old":      {roster{Cluster: 0xc, Members: []uint64{1, 2}}, true, nil, "now has member"},
		"it is another cluster": {roster{Cluster: 0xd, Members: []uint64{1, 2}}, false, nil, "cluster d"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer()
			etcdserverpb.RegisterClusterServer(s, &x.m)
			go func() { _ = s.Serve(l) }()
			a := &app.App{}
			a.Flags.DialTimeout, a.Flags.Set = time.Minute, pflag.NewFlagSet("", pflag.ContinueOnError)
			r := &recovery{App: a, cluster: &cluster.State{Cluster: "c"}, dir: sound()}
			r.dir.Condition = rewind.Damaged
			r.spec = &clientv3.ConfigSpec{
				Endpoints: []string{l.Addr().String()}, DialTimeout: time.Minute,
				Secure: &clientv3.SecureConfig{InsecureTransport: true},
			}
			if !x.unknown {
				r.own = &cluster.Member{MemberID: 1}
			}
			err = r.leave(new(disaster))
			s.Stop() // waits until all calls have ended
			if (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("%v, want %q", err, x.err)
			}
			if !slices.Equal(x.m.removed, x.removed) {
				t.Errorf("removed %d, want %d", x.m.removed, x.removed)
			}
		})
	}
}
