package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestWays checks which members each kind of workload is measured through, and that targets
// alternate within each selection of members.
func TestWays(t *testing.T) {
	p := Plan{
		Params:  Params{Members: 3, Kills: 1},
		Targets: []Target{{Name: "a"}, {Name: "b"}},
		Workloads: []Workload{
			{Name: "x"},
			{Name: "k", Through: []Through{ThroughLeader, ThroughFollowers}},
			{Name: "f", Cluster: true},
		},
		Rounds: 1, OnceRounds: 1,
	}
	for _, c := range []struct {
		members int
		through []Through
		want    string
	}{
		{3, nil, "x.all.a x.all.b k.leader.a k.leader.b k.followers.a k.followers.b f..a f..b"},
		{5, []Through{ThroughLeader}, "x.leader.a x.leader.b k.leader.a k.leader.b f..a f..b"},
		{1, nil, "x..a x..b k..a k..b"},
	} {
		p.Members, p.Through = c.members, c.through
		list, series := p.runs()
		var got []string
		for _, r := range list {
			got = append(got, fmt.Sprintf("%s.%s.%s", r.w.Name, r.through, r.t.Name))
			s := series[r.series]
			if s.Workload != r.w.Name || s.Target != r.t.Name || s.Through != r.through ||
				s.Sheet != r.w.Cluster {
				t.Errorf("%+v goes to the series %+v", r, s)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%d members: %s, want %s", c.members, s, c.want)
		}
	}
}

// TestCheck checks that a plan that could not measure what it requests is rejected.
func TestCheck(t *testing.T) {
	good := Plan{
		Params: Params{Members: 3, Kills: 20}, Rounds: 1, OnceRounds: 1,
		Targets: []Target{{Name: "a"}}, Workloads: []Workload{{Name: "f", Cluster: true}},
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Plan){
		"three to seven":  func(p *Plan) { p.Members = 2 },
		"not 8":           func(p *Plan) { p.Members = 8 },
		"not 0":           func(p *Plan) { p.Members = 0 },
		"more than one":   func(p *Plan) { p.Members, p.Through = 1, []Through{ThroughLeader} },
		"0 kills":         func(p *Plan) { p.Kills = 0 },
		"nothing to run":  func(p *Plan) { p.Workloads = nil },
		"with one member": func(p *Plan) { p.Members = 1 },
	} {
		p := good
		spoil(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := ParseThrough("leaders"); err == nil {
		t.Error("a word that means nothing is taken")
	}
	if by, err := ParseThrough("followers"); err != nil || by != ThroughFollowers {
		t.Errorf("%q, error %v", by, err)
	}
}

// TestFlags checks that every member gets the same list of all members.
func TestFlags(t *testing.T) {
	ports := []string{"h:1", "h:2", "h:3", "h:4", "h:5", "h:6", "h:7", "h:8", "h:9"}
	flags, err := Target{}.flags("/d", ports, 1)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(flags, " ")
	for _, want := range []string{
		"--name m2 ", "--data-dir /d/m2 ",
		"--listen-client-urls http://h:2 ", "--listen-peer-urls http://h:5 ",
		"--initial-cluster m1=http://h:4,m2=http://h:5,m3=http://h:6 ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// TestDialEvenly checks that each endpoint gets the same number of connections.
func TestDialEvenly(t *testing.T) {
	for _, c := range []struct{ endpoints, n, want int }{
		{1, 8, 8}, {3, 8, 9}, {3, 9, 9}, {2, 1, 2},
	} {
		client, err := dial([]string{"a:1", "b:1", "c:1"}[:c.endpoints], c.n)
		if err != nil {
			t.Fatal(err)
		}
		count := map[string]int{}
		for i := range client.Len() {
			count[client.Conn(i).Target()]++
		}
		if client.Len() != c.want || len(count) != c.endpoints {
			t.Errorf("%+v: connections %v", c, count)
		}
		for to, n := range count {
			if n != c.want/c.endpoints {
				t.Errorf("%+v: %d connections to %s", c, n, to)
			}
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}

func statusOf(id, leader, term, applied uint64) *pb.StatusResponse {
	return &pb.StatusResponse{
		Header: &pb.ResponseHeader{MemberId: id},
		Leader: leader, RaftTerm: term, RaftAppliedIndex: applied,
	}
}

// TestAgreed checks when members are considered to agree on a leader, and which roles result.
func TestAgreed(t *testing.T) {
	members := []*member{{endpoint: "a"}, {endpoint: "b"}, {endpoint: "c"}}
	r, err := agreed(members, []*pb.StatusResponse{
		statusOf(11, 12, 4, 9), statusOf(12, 12, 4, 9), statusOf(13, 12, 4, 8),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.term != 4 || r.leader != members[1] || r.ids[members[2]] != 13 {
		t.Errorf("%+v", r)
	}
	for by, want := range map[Through]string{
		ThroughAll: "a c b", ThroughLeader: "b", ThroughFollowers: "a c", "": "a c b",
	} {
		if got := strings.Join(r.endpoints(by), " "); got != want {
			t.Errorf("through %q: %s, want %s", by, got, want)
		}
	}
	for want, list := range map[string][]*pb.StatusResponse{
		"no leader":    {statusOf(11, 0, 4, 9), statusOf(12, 0, 4, 9), statusOf(13, 0, 4, 9)},
		"do not agree": {statusOf(11, 12, 4, 9), statusOf(12, 12, 4, 9), statusOf(13, 11, 4, 9)},
		"agree who":    {statusOf(11, 12, 4, 9), statusOf(12, 12, 5, 9), statusOf(13, 12, 5, 9)},
		"none of":      {statusOf(11, 14, 4, 9), statusOf(12, 14, 4, 9), statusOf(13, 14, 4, 9)},
	} {
		if _, err := agreed(members, list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if level([]*pb.StatusResponse{statusOf(1, 1, 1, 7), statusOf(2, 1, 1, 7)}) != nil ||
		level([]*pb.StatusResponse{statusOf(1, 1, 1, 7), statusOf(2, 1, 1, 6)}) == nil {
		t.Error("members behind count as level")
	}
}

// TestPoll checks that poll returns the last error when it times out.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := poll(t.Context(), time.Second, func(context.Context) error {
			if n++; n < 5 {
				return errors.New("not yet")
			}
			return nil
		})
		if err != nil || n != 5 {
			t.Errorf("%d times, error %v", n, err)
		}
		err = poll(t.Context(), time.Second, func(context.Context) error { return errors.New("why") })
		if err == nil || err.Error() != "why" {
			t.Errorf("error %v", err)
		}
	})
}

// TestSheet checks that figures measured once per round are printed in a separate sheet below the
// table.
func TestSheet(t *testing.T) {
	sheet := func(target string, rounds ...float64) *Series {
		s := &Series{Workload: "failover", Target: target, Sheet: true}
		for _, v := range rounds {
			s.Rounds = append(s.Rounds, Result{
				Terms: 7, More: []Metric{{"first write", v, "ms"}},
			})
		}
		return s
	}
	through := series("etcd", 10)
	through.Through = ThroughFollowers
	through.Rounds[0].Terms = 2
	var out bytes.Buffer
	err := WriteTable(&out, Plan{Params: Params{Members: 3}}, []*Series{
		through, sheet("leasehold", 100, 300, 200), sheet("etcd", 1234), sheet("none"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^members: 3$`,
		`(?m)^w through followers +etcd +10 .* late 5 ms, new 2 terms$`,
		`(?m)^failover +leasehold +etcd$`,
		`(?m)^first write, ms +200 \[100\.\.300\] +1234$`,
		`(?m)^terms begun +7 +7$`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("no line like %s in\n%s", want, out.String())
		}
	}
}
