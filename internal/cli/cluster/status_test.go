package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"leasehold.dev/internal/cli/app"

	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"leasehold.dev/internal/cause"
)

// TestJudge checks that each problem is reported and affects the verdict.
func TestJudge(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*State)
		verdict string
		reasons []string
	}{
		"well": {func(*State) {}, "healthy", nil},
		"slightly behind": {
			func(s *State) { s.Members[2].applied -= lagEntries }, "healthy", nil,
		},
		"behind": {
			func(s *State) { s.Members[2].applied -= lagEntries + 1 }, "degraded",
			[]string{"m3 is 10001 entries behind"},
		},
		"no answer": {
			func(s *State) { *s.Members[1] = Member{Name: "m2", Error: "refused"} },
			"degraded",
			[]string{"m2 does not respond: refused"},
		},
		"no leader": {
			func(s *State) { s.Members[0].Leader = 0 }, "degraded",
			[]string{"m1 has no leader"},
		},
		"full disk": {
			func(s *State) { s.Members[1].Reports = []SelfReport{{"", "the disk is full"}} },
			"degraded",
			[]string{"m2: the disk is full"},
		},
		"another cluster": {
			func(s *State) { s.Members[1].Cluster = 0xd }, "degraded",
			[]string{"m2 belongs to another cluster, d"},
		},
		"endpoints of another cluster, of a member, and of nobody": {
			func(s *State) {
				s.Others = []*Member{
					{Name: "x", Cluster: 0xd}, {Name: "y", Cluster: 0xc}, {Name: "z", Error: "refused"},
				}
			}, "degraded",
			[]string{"x belongs to another cluster, d"},
		},
		"an endpoint of a copy of the cluster, and another of a member": {
			func(s *State) {
				s.Others = []*Member{
					{Name: "x", Cluster: 0xc, MemberID: 0xe}, {Name: "y", Cluster: 0xc, MemberID: 2},
				}
				s.Members[1].MemberID = 2
			}, "degraded",
			[]string{"x is member e, which is not in the cluster: was it removed, or restored " +
				"from a backup?"},
		},
		"nearly full": {
			func(s *State) { s.Members[0].State = 81 }, "degraded",
			[]string{"m1: the state uses 81% of the quota"},
		},
		"without a quota": {
			func(s *State) { s.Members[0].State, s.Members[0].Quota = 81, 0 }, "healthy", nil,
		},
		"alarm": {
			func(s *State) { s.alarms = []string{"NOSPACE"} }, "degraded",
			[]string{"alarm: NOSPACE"},
		},
		"upgrade": {
			func(s *State) { s.Members[0].Release = "2" }, "degraded",
			[]string{"members run 2 different releases: finish the upgrade"},
		},
		"two voters": {
			func(s *State) { s.Members = s.Members[:2] }, "degraded",
			[]string{"2 voters tolerate no more failures than 1: add one or remove one"},
		},
		"four voters": {
			func(s *State) {
				m4 := *s.Members[2]
				s.Members = append(s.Members, &m4)
			}, "degraded",
			[]string{"4 voters tolerate no more failures than 3: add one or remove one"},
		},
		"a learner": {func(s *State) {
			m4 := *s.Members[2]
			m4.Role = "learner"
			s.Members = append(s.Members, &m4)
		}, "healthy", nil},
		"endpoints of an unknown cluster": {func(s *State) {
			s.listed, s.Members = false, s.Members[:2]
		}, "healthy", nil},
		"backups that fail": {
			func(s *State) {
				s.Members[0].Reports = []SelfReport{{cause.BackupsFail, "cannot copy the log"}}
			}, "degraded",
			[]string{"m1: cannot copy the log"},
		},
		"no login": {
			func(s *State) {
				s.Failure = rpctypes.ErrUserEmpty
				for _, m := range s.Members {
					*m = Member{Name: m.Name, Error: "user name is empty", Cause: cause.LoginRequired}
				}
			}, "unknown",
			[]string{"log in, for example with --user: etcdserver: user name is empty"},
		},
		"down": {
			func(s *State) {
				s.Failure = errors.New("no leader")
				s.Members[0].Leader = 0
			}, "down", []string{"it is not serving: no leader", "m1 has no leader"},
		},
	} {
		s := &State{listed: true}
		for _, m := range []string{"m1", "m2", "m3"} {
			s.Members = append(s.Members, &Member{
				Name: m, Version: "3", Release: "1", State: 80, Quota: 100, Leader: 1, Cluster: 0xc, applied: 20_000,
			})
		}
		x.change(s)
		if s.Judge(); s.Verdict != x.verdict || !slices.Equal(s.Reasons, x.reasons) {
			t.Errorf("%s: %s %q, want %s %q", name, s.Verdict, s.Reasons, x.verdict, x.reasons)
		}
	}
}

// TestReportedBy checks that reportedBy keeps only those errors that only a member can report.
func TestReportedBy(t *testing.T) {
	alarm := (&pb.AlarmMember{MemberID: 7, Alarm: pb.AlarmType_NOSPACE}).String()
	m := &pb.StatusResponse{Errors: []string{
		rpctypes.ErrNoLeader.Error(), alarm, "DISK_FULL: no room: none", "no leader: so it says",
	}}
	want := []SelfReport{{cause.DiskFull, "no room: none"}, {"", "no leader: so it says"}}
	if got := reportedBy(m); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEndpointGivenTwice checks that an endpoint of an unlisted member is queried once, even if it
// is given several times in different spellings.
func TestEndpointGivenTwice(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterClusterServer(s, oneMember{})
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	a := &app.App{}
	a.Flags.CommandTimeout, a.Flags.DialTimeout = time.Minute, time.Minute
	a.Flags.Set = pflag.NewFlagSet("", pflag.ContinueOnError)
	addr := l.Addr().String()
	got := LookAt(a, &clientv3.ConfigSpec{
		Endpoints: []string{addr, addr, "http://" + addr}, DialTimeout: time.Minute,
		Secure: &clientv3.SecureConfig{InsecureTransport: true},
	})
	if len(got.Members) != 1 || len(got.Others) != 1 {
		t.Errorf("%d members and %d others, want one of each", len(got.Members), len(got.Others))
	}
}

// oneMember is a cluster with a single member.
type oneMember struct{ pb.UnimplementedClusterServer }

func (oneMember) MemberList(
	context.Context, *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{
		Header: &pb.ResponseHeader{ClusterId: 0xc}, Members: []*pb.Member{{ID: 1}},
	}, nil
}
