package cluster

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

func TestAlarms(t *testing.T) {
	a := showAlarm((*clientv3.AlarmResponse)(&pb.AlarmResponse{
		Header: &pb.ResponseHeader{MemberId: 10},
		Alarms: []*pb.AlarmMember{{MemberID: 10, Alarm: pb.AlarmType_NOSPACE}},
	}))
	if got, want := printed(t, a, "simple", false), "memberID:10 alarm:NOSPACE\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	want := "\"ClusterID\" : 0\n\"MemberID\" : a\n\"RaftTerm\" : 0\n" +
		"\"MemberID\" : a\n\"AlarmType\" : NOSPACE\n\n"
	if got := printed(t, a, "fields", true); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func printed(t *testing.T, ans app.Answer, format string, hex bool) string {
	t.Helper()
	text, err := ans.Text(format, hex)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
