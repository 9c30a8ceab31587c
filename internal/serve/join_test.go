package serve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/storage"
	"leasehold.dev/server"
	servers "leasehold.dev/test/process"
)

// fakeCluster is a cluster as seen by a joining member. Each call except MemberList consumes and
// returns the first remaining error in errs. Once errs is empty, calls succeed.
type fakeCluster struct {
	members []*pb.Member
	errs    []error
	lose    bool // lose one response of MemberAddAsLearner
	calls   []string
	ended   bool
	lost    error // returned once by the check of the members' peer URLs
}

func (f *fakeCluster) enter(call string) error {
	f.calls = append(f.calls, call)
	if len(f.errs) == 0 || call == "list" {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

func (f *fakeCluster) header() *pb.ResponseHeader { return &pb.ResponseHeader{ClusterId: 0xc} }

func (f *fakeCluster) Ours(context.Context) error { return nil }

func (f *fakeCluster) MemberList(
	context.Context, ...clientv3.OpOption,
) (*clientv3.MemberListResponse, error) {
	err := f.enter("list")
	return &clientv3.MemberListResponse{Header: f.header(), Members: f.members}, err
}

func (f *fakeCluster) MemberAddAsLearner(
	_ context.Context, urls []string,
) (*clientv3.MemberAddResponse, error) {
	if err := f.enter("add"); err != nil {
		return nil, err
	}
	for _, m := range f.members {
		for _, u := range urls {
			if slices.Contains(m.PeerURLs, u) {
				return nil, rpctypes.ErrPeerURLExist
			}
		}
	}
	m := &pb.Member{ID: uint64(100 + len(f.calls)), PeerURLs: urls, IsLearner: true}
	f.members = append(slices.Clone(f.members), m)
	if f.lose {
		f.lose = false
		return nil, rpctypes.ErrTimeout
	}
	return &clientv3.MemberAddResponse{Header: f.header(), Member: m, Members: f.members}, nil
}

func (f *fakeCluster) MemberRemove(
	_ context.Context, id uint64,
) (*clientv3.MemberRemoveResponse, error) {
	if err := f.enter("remove"); err != nil {
		return nil, err
	}
	f.members = slices.DeleteFunc(slices.Clone(f.members), func(m *pb.Member) bool {
		return m.ID == id
	})
	return &clientv3.MemberRemoveResponse{Members: f.members}, nil
}

func (f *fakeCluster) MemberPromote(
	_ context.Context, id uint64,
) (*clientv3.MemberPromoteResponse, error) {
	if err := f.enter("promote"); err != nil {
		return nil, err
	}
	find(f.members, id).IsLearner = false
	return &clientv3.MemberPromoteResponse{}, nil
}

func (f *fakeCluster) Close() error { f.ended = true; return nil }

// attempt is a member that tries to join a fake cluster, together with its log.
type attempt struct {
	*joiner
	cluster *fakeCluster
	cfg     server.Config
	log     bytes.Buffer
}

// newAttempt returns an attempt with the given flags in addition to --join.
func newAttempt(t *testing.T, c *fakeCluster, args ...string) *attempt {
	t.Helper()
	f := newFlags()
	dir := filepath.Join(t.TempDir(), "data")
	args = append([]string{
		"--join=127.0.0.1:2379", "--data-dir=" + dir, "--name=new",
		"--listen-peer-urls=http://127.0.0.1:9",
	}, args...)
	if err := f.parse(args); err != nil {
		t.Fatal(err)
	}
	a := &attempt{cluster: c}
	var err error
	if a.cfg, _, err = f.config("myhost"); err != nil {
		t.Fatal(err)
	}
	a.joiner, err = f.joiner(slog.New(slog.NewTextHandler(&a.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	a.dial = func([]string, joinLogin, server.Config) (cluster, error) { return c, nil }
	a.reach = func(_ server.Config, of map[string][]url.URL, id uint64) error {
		if len(of) == 0 || id != 0xc {
			t.Errorf("asked for %v of cluster %x", of, id)
		}
		defer func() { c.lost = nil }()
		return c.lost
	}
	return a
}

const newURL = "http://127.0.0.1:9"

func founder() *pb.Member {
	return &pb.Member{ID: 1, Name: "one", PeerURLs: []string{"http://127.0.0.1:1"}}
}

// TestJoin checks that one command adds a member, configures it with the other members, and
// promotes it once it is serving.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeCluster{members: []*pb.Member{
			founder(),
			{ID: 2, Name: "one", PeerURLs: []string{"http://127.0.0.1:2"}}, // a duplicate name
			{ID: 3, PeerURLs: []string{"http://127.0.0.1:3"}},              // never started
			{ID: 4, Name: "new", PeerURLs: []string{"http://127.0.0.1:4", "http://127.0.0.1:5"}},
		}}
		a := newAttempt(t, c)
		cfg, err := a.prepare(t.Context(), a.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
		if err := cfg.CheckBootstrap(); err != nil {
			t.Error(err)
		}
		want := "2=http://127.0.0.1:2,3=http://127.0.0.1:3,4=http://127.0.0.1:4," +
			"4=http://127.0.0.1:5,new=" + newURL + ",one=http://127.0.0.1:1"
		if got := (members{&cfg.Cluster.Initial}).String(); got != want ||
			cfg.Cluster.State != "existing" {
			t.Errorf("%s: %s, want %s", cfg.Cluster.State, got, want)
		}
		ready := make(chan struct{})
		c.errs = []error{rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrMemberLearnerNotReady}
		done := make(chan struct{})
		learner := func() bool { return find(c.members, a.member).IsLearner }
		go func() { defer close(done); a.finish(t.Context(), ready, learner) }()
		synctest.Wait()
		if slices.Contains(c.calls, "promote") {
			t.Error("asked to be promoted before it served")
		}
		close(ready)
		<-done
		if find(c.members, a.member).IsLearner || !c.ended {
			t.Error("not promoted")
		}
		if log := a.log.String(); strings.Count(log, "waiting to become a voter") != 1 {
			t.Errorf("each reason once: %s", log)
		}
		c.calls = nil
		a.finish(t.Context(), ready, learner) // as when a voter is restarted
		if slices.Contains(c.calls, "promote") {
			t.Error("a voter asked to be promoted")
		}
	})
}

// TestJoinWaits checks that a member that encounters temporary errors waits with increasing delays
// and reports each error once.
func TestJoinWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		for range 100 {
			errs = append(errs, rpctypes.ErrTooManyLearners)
		}
		errs = append(errs, rpctypes.ErrUnhealthy, rpctypes.ErrTimeout, rpctypes.ErrTooManyRequests,
			context.DeadlineExceeded)
		a := newAttempt(t, &fakeCluster{members: []*pb.Member{founder()}, errs: errs})
		begin := time.Now()
		if _, err := a.prepare(t.Context(), a.cfg); err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		if took < 100*lastPause/3 || took > 110*lastPause*3/2 {
			t.Errorf("took %s", took)
		}
		if n := strings.Count(a.log.String(), "waiting to join"); n != 5 {
			t.Errorf("%d lines: %s", n, a.log.String())
		}
	})
}

// TestJoinUnreachable checks that a member is not added as a learner while a peer URL is
// unreachable. The member logs the problem and joins once it is corrected.
func TestJoinUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("member 1 at http://127.0.0.1:1: connection refused")
		c := &fakeCluster{members: []*pb.Member{founder()}, lost: why}
		a := newAttempt(t, c)
		if _, err := a.prepare(t.Context(), a.cfg); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.calls, " "); got != "list list add" {
			t.Errorf("calls: %s", got)
		}
		if log := a.log.String(); !strings.Contains(log, why.Error()) ||
			!strings.Contains(log, "leasehold member update") {
			t.Errorf("log: %s", log)
		}
	})
}

// TestJoinStopped checks that a joining member waits until its context ends.
func TestJoinStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		for range 1 << 12 {
			errs = append(errs, rpctypes.ErrTooManyLearners)
		}
		a := newAttempt(t, &fakeCluster{members: []*pb.Member{founder()}, errs: errs})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := a.prepare(ctx, a.cfg); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestJoinAgain checks how a member that stopped while joining continues, depending on the
// cluster's record of it.
func TestJoinAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		known *pb.Member // in addition to the founder
		lose  bool
		flags []string
		want  string // calls
		fails string
		same  bool // the member keeps its ID
	}{
		{name: "unknown", want: "list add"},
		{
			name: "added, never started", want: "list", same: true,
			known: &pb.Member{ID: 7, PeerURLs: []string{newURL}, IsLearner: true},
		},
		{
			name: "added as a voter, never started", want: "list", same: true,
			known: &pb.Member{ID: 7, PeerURLs: []string{newURL}},
		},
		{
			name: "a learner without its data", want: "list remove add",
			known: &pb.Member{ID: 7, Name: "new", PeerURLs: []string{newURL}, IsLearner: true},
		},
		{
			name: "a voter without its data", want: "list", fails: "use --replace",
			known: &pb.Member{ID: 7, Name: "new", PeerURLs: []string{newURL}},
		},
		{
			name: "a voter that is to be replaced", want: "list remove add",
			flags: []string{"--replace"},
			known: &pb.Member{ID: 7, Name: "new", PeerURLs: []string{newURL}},
		},
		{name: "the answer was lost", lose: true, want: "list add list"},
		{
			name: "one of the URLs is another's", want: "list add list", fails: "another member uses one",
			known: &pb.Member{ID: 7, Name: "x", PeerURLs: []string{newURL, "http://127.0.0.1:10"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &fakeCluster{members: []*pb.Member{founder()}, lose: tt.lose}
				if tt.known != nil {
					c.members = append(c.members, tt.known)
				}
				a := newAttempt(t, c, tt.flags...)
				_, err := a.prepare(t.Context(), a.cfg)
				if got := strings.Join(c.calls, " "); got != tt.want {
					t.Errorf("calls %q, want %q", got, tt.want)
				}
				if tt.fails != "" {
					if err == nil || !strings.Contains(err.Error(), tt.fails) || !c.ended {
						t.Errorf("%v, want %q", err, tt.fails)
					}
					return
				}
				if err != nil || a.member == 0 || (a.member == 7) != tt.same {
					t.Errorf("member %d: %v", a.member, err)
				}
			})
		})
	}
}

// TestJoinWithIdentity checks that a data directory keeps its identity. A directory is rejected if
// it belongs to another cluster or to a removed member.
func TestJoinWithIdentity(t *testing.T) {
	for _, tt := range []struct {
		cluster, member uint64
		fails           string
	}{
		{0xc, 7, ""},
		{0xd, 7, "belongs to cluster d, but this is cluster c"},
		{0xc, 8, "which the cluster has removed"},
	} {
		c := &fakeCluster{members: []*pb.Member{
			founder(), {ID: 7, PeerURLs: []string{newURL}, IsLearner: true},
		}}
		a := newAttempt(t, c)
		disk, err := storage.Open(storage.Config{Dir: a.cfg.DataDir})
		if err != nil {
			t.Fatal(err)
		}
		err = disk.Bootstrap(storage.Identity{Cluster: tt.cluster, Member: tt.member}, nil)
		if err := errors.Join(err, disk.Close()); err != nil {
			t.Fatal(err)
		}
		cfg, err := a.prepare(t.Context(), a.cfg)
		switch {
		case tt.fails != "":
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%v, want %q", err, tt.fails)
			}
		case err != nil || a.member != 7 || len(cfg.Cluster.Initial) != 2:
			t.Errorf("member %d, %v: %v", a.member, cfg.Cluster.Initial, err)
		}
	}
}

// TestJoinWithoutIdentityFile checks that a data directory that lacks only the identity file is
// treated as damaged, not as empty. The join is refused before it changes the cluster.
func TestJoinWithoutIdentityFile(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--replace"}} {
		c := &fakeCluster{members: []*pb.Member{
			founder(), {ID: 7, Name: "new", PeerURLs: []string{newURL}, IsLearner: len(args) == 0},
		}}
		a := newAttempt(t, c, args...)
		disk, err := storage.Open(storage.Config{Dir: a.cfg.DataDir})
		if err != nil {
			t.Fatal(err)
		}
		err = disk.Bootstrap(storage.Identity{Cluster: 0xc, Member: 7}, nil)
		if err := errors.Join(err, disk.Close()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(a.cfg.DataDir, "identity")); err != nil {
			t.Fatal(err)
		}
		_, err = a.prepare(t.Context(), a.cfg)
		if !errors.Is(err, storage.ErrCorrupt) || len(c.calls) > 0 {
			t.Errorf("%v: error %v, calls %v", args, err, c.calls)
		}
	}
}

// TestJoinChooses checks that addresses are chosen if none are given. Members on one machine get
// different addresses, and a restarted member chooses the same addresses again.
func TestJoinChooses(t *testing.T) {
	t.Chdir(t.TempDir())
	hold := true // keep the ports until the end, like a real process
	choose := func(args ...string) server.Config {
		t.Helper()
		f := newFlags()
		if err := f.parse(append(args, "--join=http://127.0.0.1:2379")); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := f.config("myhost")
		if err != nil {
			t.Fatal(err)
		}
		j, err := f.joiner(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if cfg, err = j.chooseAddresses(cfg); err != nil {
			t.Skip("no free ports here: ", err)
		}
		if hold {
			// not earlier: an unreferenced listener is garbage collected, which closes it
			t.Cleanup(j.release)
		} else {
			j.release()
		}
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
		return cfg
	}
	first, second := choose(), choose()
	if first.Name == second.Name {
		t.Errorf("two members that start together chose %q", first.Name)
	}
	hold = false
	first = choose()
	if first.DataDir != first.Name+".leasehold" || !strings.HasPrefix(first.Name, "127.0.0.1-") {
		t.Errorf("name %q, data in %q", first.Name, first.DataDir)
	}
	if err := os.MkdirAll(first.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if again := choose(); again.Name != first.Name {
		t.Errorf("first %q, then %q", first.Name, again.Name)
	}
	housed := choose("--data-dir=d")
	if listen.JoinURLs(housed.URLs.ListenPeer) != listen.JoinURLs(housed.URLs.AdvertisePeer) {
		t.Error("listens elsewhere than it tells")
	}
	data, err := os.ReadFile("d/" + chosenFile)
	if err != nil || !strings.Contains(string(data), listen.JoinURLs(housed.URLs.ListenClient)) {
		t.Errorf("kept %q, %v", data, err)
	}
	if err := os.WriteFile("d/"+chosenFile,
		[]byte(`{"client":"http://127.0.0.1:3","peer":"http://127.0.0.1:4"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := choose("--data-dir=d"); listen.JoinURLs(again.URLs.ListenPeer) != "http://127.0.0.1:4" ||
		again.Name != "127.0.0.1-4" || again.DataDir != "d" {
		t.Errorf("%s on %s in %s", again.Name, listen.JoinURLs(again.URLs.ListenPeer), again.DataDir)
	}
	if secure := choose("--auto-tls", "--peer-auto-tls"); secure.URLs.ListenPeer[0].Scheme+
		secure.URLs.ListenClient[0].Scheme != "httpshttps" {
		t.Errorf("with TLS it listens on %v", secure.URLs)
	}
	given := choose("--listen-peer-urls=http://127.0.0.1:77")
	if given.Name != "127.0.0.1-77" || given.DataDir != "127.0.0.1-77.leasehold" {
		t.Errorf("name %q, data in %q", given.Name, given.DataDir)
	}
}

// TestJoinForeign checks that an etcd server is not asked to add the member. If no server can be
// reached, the error is temporary and states the reason.
func TestJoinForeign(t *testing.T) {
	l, err := net.Listen("tcp", servers.MustFreeAddr()) // the address stays reserved after Close
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	asked := &etcdMembers{}
	pb.RegisterClusterServer(s, asked)
	go func() { _ = s.Serve(l) }()
	addr := l.Addr().String()
	a := newAttempt(t, nil, "--join="+addr)
	a.dial = dialCluster
	_, err = a.prepare(t.Context(), a.cfg)
	if err == nil || !strings.Contains(err.Error(), "joining an etcd cluster is not supported") {
		t.Errorf("joined an etcd: %v", err)
	}
	if n := asked.calls.Load(); n != 0 {
		t.Errorf("%d calls to an etcd", n)
	}
	s.Stop()
	c, err := dialCluster([]string{addr}, joinLogin{}, a.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Ours(t.Context())
	if err == nil || !isTemporary(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("of no server: %v", err)
	}
}

// etcdMembers counts calls to the member API.
type etcdMembers struct {
	pb.UnimplementedClusterServer
	calls atomic.Int32
}

func (e *etcdMembers) MemberList(
	context.Context, *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	e.calls.Add(1)
	return &pb.MemberListResponse{}, nil
}

func (e *etcdMembers) MemberAdd(
	context.Context, *pb.MemberAddRequest,
) (*pb.MemberAddResponse, error) {
	e.calls.Add(1)
	return &pb.MemberAddResponse{Member: &pb.Member{ID: 1}}, nil
}
