package recovery

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
	"leasehold.dev/internal/storage"
)

// sound returns the data directory of m1 in a cluster of three unreachable members.
func sound() *rewind.Directory {
	d := &rewind.Directory{
		Path: "/d", Condition: rewind.Sound, Cluster: 0xc, Member: 1, Name: "m1",
		Revision: 17, Index: 9, Term: 2,
	}
	for i, name := range []string{"m1", "m2", "m3"} {
		d.Members = append(d.Members, rewind.Member{
			ID: uint64(i + 1), Name: name, PeerURLs: []string{"http://127.0.0.1:1"},
			ClientURLs: []string{"http://127.0.0.1:1"},
		})
	}
	return d
}

// TestDiagnoseDirectory checks the advice given for a data directory. It also checks that --yes
// performs a repair only if other members have all the data that the repair discards, or if the
// repair was explicitly requested.
func TestDiagnoseDirectory(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	down := func(r *recovery) {
		r.cluster = &cluster.State{Failure: errors.New("nobody"), Members: r.cluster.Members[:1]}
		r.cluster.Members[0].Error = "refused"
	}
	silent := func(c rewind.Condition) func(*recovery) {
		return func(r *recovery) {
			r.dir.Condition, r.dir.Why = c, errors.New("it is so")
			r.cluster.Members[0].Error = "refused"
		}
	}
	running := func(r *recovery) {
		r.dir.Condition = rewind.Running
		r.dir.Run = storage.Run{Cluster: "c", Member: "1", Name: "m1", Process: 42}
	}
	cutOff := filepath.Join(t.TempDir(), "[d")
	for _, behind := range []string{"", ".before-recovery-1", ".before-recovery-2"} {
		if err := os.Mkdir(cutOff+behind, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		change func(*recovery)
		want   []string
		own    bool   // --yes performs a repair
		err    string // expected error, in place of want
	}{
		"serves, and does not run": {silent(rewind.Sound), []string{
			"the member is not running", "up to revision 17", "start it as usual",
		}, false, ""},
		"no room to start": {func(r *recovery) {
			silent(rewind.Sound)(r)
			r.dir.Free, r.dir.Reserve = 0, 17_000_000
		}, []string{
			"the member is not running", "its disk has 0 B free", "here, first: make room",
			"start it as usual",
		}, false, ""},
		"no member of this name": {func(r *recovery) {
			r.dir, r.member = &rewind.Directory{Path: "/d", Condition: rewind.Running}, "m9"
		}, nil, false, `no member "m9"`},
		"a copy": {func(*recovery) {}, []string{"another process runs as this member"}, false, ""},
		"another cluster": {func(r *recovery) { r.dir.Cluster = 0xd }, []string{
			"OTHER_CLUSTER", "the data is from another cluster", "cluster d, but cluster c responds",
		}, false, ""},
		"another cluster, with more that is wrong": {func(r *recovery) {
			r.dir.Cluster = 0xd
			r.cluster.Alarmed["NOSPACE"] = []uint64{2}
		}, []string{"OTHER_CLUSTER the data is from another cluster"}, false, ""},
		"in use by another cluster": {func(r *recovery) {
			running(r)
			r.dir.Cluster = 0xd
			r.cluster.Alarmed["NOSPACE"] = []uint64{2}
		}, []string{
			"OTHER_CLUSTER the data directory is in use by a member of another cluster",
			"/d is in use by a running member: m1 (member 1 of cluster c, process 42",
			"whether --endpoints and --data-dir are right",
		}, false, ""},
		"in use by nobody's member": {func(r *recovery) {
			running(r)
			r.dir.Member = 9
		}, []string{"REMOVED a running member is not part of the cluster", "stop it"}, false, ""},
		"in use, and given up": {func(r *recovery) {
			down(r)
			running(r)
			r.lost = []string{"m2", "m3"}
		}, nil, false, "/d is in use by a running member: m1"},
		"was too old": {func(r *recovery) {
			silent(rewind.Sound)(r)
			r.dir.Run.Cause, r.dir.Run.Text = cause.TooOld, "what it said"
		}, []string{
			"TOO_OLD the member is not running", ", TOO_OLD: what it said", "with the release that the other",
		}, false, ""},
		"had other data": {func(r *recovery) {
			silent(rewind.Sound)(r)
			r.dir.Run.Cause = cause.LostData
		}, []string{
			"LOST_DATA the member is not running", "is in another directory", "move /d away", "--replace",
		}, false, ""},
		"was a copy": {func(r *recovery) {
			silent(rewind.Sound)(r)
			r.dir.Run.Cause = cause.CopiedData
		}, []string{
			"COPIED_DATA the member is not running", "which other process", "do not start it again",
		}, false, ""},
		"a disk that failed": {func(r *recovery) {
			down(r)
			r.dir.Members = r.dir.Members[:1]
			r.dir.Run.Cause, r.dir.Run.Text = cause.DiskFailed, "EIO"
		}, []string{
			"DISK_FAILED the member is not running", ", DISK_FAILED: EIO", "start it as usual",
		}, false, ""},
		"rolled back, of another cluster": {func(r *recovery) {
			r.dir.Cluster = 0xd
			silent(rewind.RolledBack)(r)
		}, []string{"the data is from another cluster", "cluster d, but cluster c responds"}, false, ""},
		"damaged, of nobody knows whom": {func(r *recovery) {
			silent(rewind.Damaged)(r)
			r.dir.Cluster, r.dir.Member, r.dir.Members = 0, 0, nil
		}, []string{
			"the member's data is damaged", "which member's", "--member m1 --yes",
		}, false, ""},
		"damaged, of nobody that is missing": {func(r *recovery) {
			silent(rewind.Damaged)(r)
			r.dir.Cluster, r.dir.Member, r.cluster.Members[0].Error = 0, 0, ""
		}, []string{"the member's data is damaged", "which member's"}, false, ""},
		"damaged, and removed before": {func(r *recovery) {
			silent(rewind.Damaged)(r)
			r.cluster.Members = r.cluster.Members[1:]
		}, []string{
			"the member's data is damaged", "mv /d", "--name m1",
			"--listen-client-urls http://127.0.0.1:1 ",
		}, true, ""},
		"removed": {func(r *recovery) { r.dir.Member = 7 }, []string{
			"the member was removed", "mv /d /d.before-recovery-TIME",
		}, true, ""},
		"differs": {func(r *recovery) {
			r.cluster.Alarmed["CORRUPT"] = []uint64{1}
			r.cluster.Members[0].Error = "refused"
		}, []string{"the member's data is damaged", "member remove", "mv /d"}, true, ""},
		"damaged": {silent(rewind.Damaged), []string{
			"the member's data is damaged", "it is so", "leasehold member remove 1", "mv /d",
			"--name m1 --data-dir /d", "--join http://m2:2379,http://m3:2379",
		}, true, ""},
		"damaged, in a directory with a space": {func(r *recovery) {
			silent(rewind.Damaged)(r)
			r.dir.Path = "/d e"
		}, []string{"mv '/d e' '/d e'.before-recovery-TIME", "--name m1 --data-dir '/d e' --listen"}, true, ""},
		"rolled back": {silent(rewind.RolledBack), []string{"an older copy", "mv /d"}, true, ""},
		"stateless":   {silent(rewind.Stateless), []string{"start it as usual"}, false, ""},
		"running":     {func(r *recovery) { r.dir.Condition = rewind.Running }, nil, false, ""},
		"newer": {silent(rewind.Newer), []string{
			"cannot use the data", "release that wrote",
		}, false, ""},
		"lost disk": {func(r *recovery) {
			r.dir = &rewind.Directory{Path: "/d"}
			r.cluster.Members[2].Error = "refused"
		}, []string{
			"the member's disk is lost", "its disk is mounted", "which member's directory /d is",
			"only if it belongs to m3 (m3:2379): leasehold recover " +
				"--endpoints http://m1:2379,http://m2:2379 --data-dir /d --member m3 --yes",
		}, false, ""},
		"lost disk of one of two": {func(r *recovery) {
			r.dir = &rewind.Directory{Path: "/d"}
			r.cluster.Members[1].Error, r.cluster.Members[2].Error = "refused", "refused"
		}, nil, false, "name it with --member"},
		"lost disk, named": {func(r *recovery) {
			r.dir, r.member = &rewind.Directory{Path: "/d"}, "m2"
			r.cluster.Members[1].Error = "refused"
		}, []string{"the member's disk is lost", "member remove 2"}, true, ""},
		"a new one": {func(r *recovery) { r.dir = &rewind.Directory{Path: "/d"} }, nil, false, ""},
		"nothing anywhere": {func(r *recovery) {
			down(r)
			r.dir = &rewind.Directory{Path: "/d"}
		}, []string{"there is no data here", "/d has no data", "backup restore --from"}, false, ""},
		"a recovery was cut off": {func(r *recovery) {
			down(r)
			r.dir = &rewind.Directory{Path: cutOff}
		}, []string{
			"there is no data here", "moved away from there",
			": rmdir '" + cutOff + "' && mv '" + cutOff + ".before-recovery-2' '" + cutOff + "'  # then",
		}, false, ""},
		"alone": {func(r *recovery) {
			down(r)
			r.dir.Members = r.dir.Members[:1]
		}, []string{"the member is not running", "nothing is lost", "start it as usual"}, false, ""},
		"survivor": {down, []string{
			"the majority is lost or unreachable", "1 of 3 voters are available, and 2 are needed",
			"up to revision 17 (entry 9 of term 2", "check first: m2, at http://127.0.0.1:1",
			"check first: m3", "the highest term", "leasehold backup list",
			"only if they are lost for good: leasehold recover --data-dir /d --lost NAME,NAME --yes",
		}, false, ""},
		"given up": {func(r *recovery) {
			down(r)
			r.lost = []string{"m2", "3"}
		}, []string{"the majority is lost", "check first: m2", "mv /d", "single-member cluster of m1"}, true, ""},
		"one given up": {func(r *recovery) {
			down(r)
			r.lost = []string{"m2"}
		}, nil, false, "--lost names 1 of 3 voters"},
		"a stranger given up": {func(r *recovery) {
			down(r)
			r.lost = []string{"m2", "m9"}
		}, nil, false, "no other member has this name"},
		"one that answers given up": {func(r *recovery) {
			down(r)
			r.lost = []string{"m2", "m3"}
			r.dir.Members[2].PeerURLs = []string{"http://" + l.Addr().String()}
		}, nil, false, "m3 responds at"},
		"given up while it serves": {
			func(r *recovery) { r.lost = []string{"m2"} }, nil, false, "its majority is not lost",
		},
		"with a majority": {func(r *recovery) {
			down(r)
			r.dir.Members[2].PeerURLs = []string{"http://" + l.Addr().String()}
		}, []string{"the member is not running", "there is a majority"}, false, ""},
		"half restored": {func(r *recovery) { r.dir.Condition = rewind.HalfRestored }, []string{
			"a restore into the data directory was interrupted", "mv /d /d.cut-off", "restore the backup",
		}, false, ""},
	} {
		a := new(app.App)
		a.Flags.DialTimeout = 10 * time.Second
		r := &recovery{App: a, cluster: threeMembers(), dir: sound()}
		x.change(r)
		err := r.diagnose()
		p := &app.Page{}
		showRecovery("", r.found[:min(1, len(r.found))], nil).Simple(p)
		switch {
		case x.err != "" || err != nil:
			if x.err == "" || err == nil || !strings.Contains(err.Error(), x.err) {
				t.Errorf("%s: %v, want %q", name, err, x.err)
			}
			continue
		case (len(r.found) == 0) != (x.want == nil):
			t.Errorf("%s: found %d:\n%s", name, len(r.found), p)
			continue
		}
		rest := causesOf(r.found) + strings.TrimPrefix(p.String(), "\n")
		for _, w := range x.want {
			_, after, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("%s: %q is missing or out of order:\n%s", name, w, p)
				break
			}
			rest = after
		}
		acts := len(r.found) > 0 && r.found[0].act != nil
		if acts != x.own || acts != strings.Contains(p.String(), "(--yes does it)") {
			t.Errorf("%s: --yes acts: %v, want %v:\n%s", name, acts, x.own, p)
		}
	}
}
