package recovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// threeMembers returns a healthy cluster.
func threeMembers() *cluster.State {
	s := &cluster.State{Cluster: "c", Alarmed: map[string][]uint64{}}
	for i, name := range []string{"m1", "m2", "m3"} {
		s.Members = append(s.Members, &cluster.Member{
			Name: name, Role: "voter", MemberID: uint64(i + 1), ID: fmt.Sprint(i + 1), State: 800, Quota: 1000,
			Leader: 1, Cluster: 0xc,
			Endpoint: name + ":2379", URL: "http://" + name + ":2379",
			Peers: []string{"http://" + name + ":2380"},
		})
	}
	return s
}

// fails gives x an error with the given cause. The wording of the error is irrelevant.
func fails(x *cluster.Member, why cause.Code) { x.Error, x.Cause = "it is so", why }

// causesOf returns the causes of disasters.
func causesOf(found []*disaster) (out string) {
	for _, d := range found {
		out += string(d.Cause) + " "
	}
	return out
}

// TestDiagnose checks that each disaster that is visible in the cluster's state is recognized, and
// that --yes only performs safe repairs.
func TestDiagnose(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*recovery)
		want   []string // expected substrings of the output, in order
	}{
		"well": {func(*recovery) {}, nil},
		"quota": {func(r *recovery) {
			r.cluster.Alarmed["NOSPACE"] = []uint64{2}
			r.cluster.Members[1].Quota = 900
		}, []string{
			"QUOTA_USED_UP", "the quota is used up", "raised by m2 (m2:2379)",
			"uses 800 B, and the smallest quota is 900 B",
			"(--yes does it): leasehold compaction", "--quota-backend-bytes=1800",
		}},
		"one silent": {func(r *recovery) { fails(r.cluster.Members[2], cause.Refused) }, []string{
			"REFUSED", "a member does not respond", "check first: m3 (m3:2379): its host responds",
			"start it as usual", "if its disk is lost: leasehold serve --name m3",
			"--listen-peer-urls http://m3:2380", "--join http://m1:2379,http://m2:2379 --replace",
		}},
		"full disk": {func(r *recovery) {
			r.cluster.Members[1].Reports = []cluster.SelfReport{{Code: cause.DiskFull, Text: "writes are refused"}}
		}, []string{
			"DISK_FULL", "the disk is full",
			"m2 (m2:2379): a follower forwards writes", "leader rejects them; the others have space",
			"this is not the quota", "without a restart", "to do on the host of m2 (m2:2379): make room",
		}},
		"all disks full": {func(r *recovery) {
			for _, x := range r.cluster.Members {
				x.Reports = []cluster.SelfReport{{Code: cause.DiskFull, Text: ""}}
			}
		}, []string{
			"m1 (m1:2379), m2 (m2:2379), m3 (m3:2379): a follower", "no member accepts writes",
			"the host of m1", "the host of m2", "the host of m3",
		}},
		"copy": {func(r *recovery) {
			r.cluster.Members[1].Reports = []cluster.SelfReport{{Code: cause.CopiedData, Text: "was refused"}}
		}, []string{
			"COPIED_DATA", "a copy of a data directory is in use", "m2 (m2:2379)", "the second process",
		}},
		"something else reported": {func(r *recovery) {
			r.cluster.Members[1].Reports = []cluster.SelfReport{{Text: "it smokes"}}
		}, []string{"REPORTED", "a member reports a problem", "m2 (m2:2379): it smokes"}},
		"cut off": {func(r *recovery) { r.cluster.Members[1].Leader = 0 }, []string{
			"NO_LEADER", "a member is cut off", "m2 (m2:2379) responds, but has no leader", "peer URLs",
		}},
		"a member of two clusters": {func(r *recovery) {
			r.cluster.Members[1].Cluster = 0xd
			r.cluster.Alarmed["NOSPACE"] = []uint64{1}
		}, []string{
			"TWO_CLUSTERS", "the endpoints belong to 2 clusters", "cluster c: m1 (m1:2379), m3 (m3:2379)",
			"cluster d: m2 (m2:2379)", "recover changes none of them",
			"recover --endpoints m1:2379,m3:2379  # of cluster c", "--endpoints m2:2379  # of cluster d",
			"it has created its own cluster",
		}},
		"an endpoint of two clusters": {func(r *recovery) {
			r.cluster.Failure = errors.New("no leader")
			r.cluster.Others = []*cluster.Member{{Name: "x:1", Endpoint: "x:1", Cluster: 0xd}}
		}, []string{"the endpoints belong to 2 clusters", "cluster d: x:1", "--endpoints x:1  #"}},
		"hangs": {func(r *recovery) { fails(r.cluster.Members[2], cause.Hangs) }, []string{
			"HANGS", "a member does not respond", "m3 (m3:2379): a process accepts connections", "hung",
			"to do on the host of m3 (m3:2379): stop the process first",
		}},
		"damaged": {func(r *recovery) {
			fails(r.cluster.Members[2], cause.Refused)
			r.cluster.Alarmed["CORRUPT"] = []uint64{3}
		}, []string{
			"STATES_DIFFER", "a member's data is damaged", "m3",
			"move the data directory away", "--replace",
		}},
		"split": {func(r *recovery) { r.cluster.Alarmed["CORRUPT"] = []uint64{0} }, []string{
			"SPLIT", "the states of members differ", "snapshot save m1.backup --endpoints m1:2379",
			"member remove ID",
		}},
		"majority": {func(r *recovery) {
			r.cluster.Failure = errors.New("no leader")
			fails(r.cluster.Members[1], cause.Refused)
			fails(r.cluster.Members[2], cause.Unreachable)
		}, []string{
			"NO_MAJORITY", "no majority is responding", "1 of 3 voters respond, and 2 are needed",
			"m2 (m2:2379): its host responds", "m3 (m3:2379): it is so; check whether its host is up",
			"bring them back: with 1 more",
		}},
		"no leader": {func(r *recovery) {
			r.cluster.Failure = errors.New("no leader")
			fails(r.cluster.Members[1], cause.Refused)
		}, []string{"NOT_SERVING", "the cluster is not serving, though a majority responds", "peer URLs"}},
		"no answer": {func(r *recovery) {
			r.cluster = &cluster.State{Failure: errors.New("deadline"), Members: []*cluster.Member{
				{Name: "m1:2379", Endpoint: "m1:2379", Role: "voter", Error: "it is so", Cause: cause.Refused},
			}}
		}, []string{
			"NO_ANSWER", "no member responds", "check first: m1:2379: its host responds", "--endpoints",
		}},
		"nobody can log in at one that is cut off": {func(r *recovery) {
			fails(r.cluster.Members[2], cause.NoLeader)
		}, []string{
			"NO_LEADER", "a member is cut off from the others", "m3 (m3:2379) responds, but has no leader",
		}},
		"nobody can log in": {func(r *recovery) {
			r.cluster = &cluster.State{Failure: errors.New("member 1 knows of none"), Members: []*cluster.Member{
				{Name: "m1:2379", Endpoint: "m1:2379", Role: "voter", Error: "it is so", Cause: cause.NoLeader},
				{Name: "m2:2379", Endpoint: "m2:2379", Role: "voter", Error: "it is so", Cause: cause.Refused},
			}}
		}, []string{
			"NO_MAJORITY", "no majority is responding", "knows of none",
			"m1:2379: it runs, and has lost nothing: logins need a majority",
			"m2:2379: its host responds", "--endpoints",
		}},
		"certificates": {func(r *recovery) {
			r.cluster.Failure = errors.New("deadline")
			fails(r.cluster.Members[1], cause.CallFailed)
			r.expired = []badCertificate{
				{Text: "the certificate of m2:2379 has expired", Address: "m2:2379", Flags: "--cert-file"},
				{Text: "the certificate in f has expired", File: "f", Authority: true},
			}
		}, []string{
			"CERTIFICATE_EXPIRED", "certificates have expired", "the clock of this machine",
			"add its certificate to each",
			"to do on the host of m2:2379: replace the files of --cert-file", "to do here: replace f and its key",
			"once the members",
		}},
	} {
		r := &recovery{App: new(app.App), cluster: threeMembers()}
		x.change(r)
		if err := r.diagnose(); err != nil {
			t.Fatal(err)
		}
		p := &app.Page{}
		showRecovery("", r.found, nil).Simple(p)
		rest := causesOf(r.found) + p.String()
		if len(r.found) > 1 || (len(r.found) == 0) != (len(x.want) == 0) {
			t.Errorf("%s: found %d disasters:\n%s", name, len(r.found), rest)
		}
		for _, w := range x.want {
			_, after, ok := strings.Cut(rest, w)
			if !ok {
				t.Errorf("%s: %q is missing or out of order:\n%s", name, w, p)
				break
			}
			rest = after
		}
		for _, d := range r.found {
			own := strings.Contains(p.String(), "(--yes does it)")
			if own != (d.act != nil) || own != (name == "quota") {
				t.Errorf("%s: says that --yes acts: %v; has an action: %v", name, own, d.act != nil)
			}
		}
	}
}

// TestRecoverNotes checks that "nothing to recover" comes with notes if the cluster is degraded or
// if not all endpoints could be queried.
func TestRecoverNotes(t *testing.T) {
	r := &recovery{App: new(app.App), cluster: threeMembers(), dir: &rewind.Directory{Path: "/d"}}
	r.cluster.Reasons = []string{"m2 is 20000 entries behind"}
	r.cluster.Others = []*cluster.Member{{Name: "http://x:1", Endpoint: "x:1", Error: "refused"}}
	if err := r.diagnose(); err != nil || len(r.found) > 0 {
		t.Fatalf("%v, %v", r.found, err)
	}
	p := &app.Page{}
	showRecovery(recoverNothing, r.found, r.notes()).Simple(p)
	for _, want := range []string{
		"/d has no data, and all members respond", "m2 is 20000 entries behind",
		"no member of the cluster has the address http://x:1, and nothing responds there: refused",
	} {
		if !strings.Contains(p.String(), "note: "+want) {
			t.Errorf("%q is missing:\n%s", want, p)
		}
	}
}

// TestShellWord checks that names are quoted in commands if a shell would split or expand them.
func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"m1": "m1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
		"http://[::1]:2379": "'http://[::1]:2379'", "/var/lib/x_1-2.d": "/var/lib/x_1-2.d",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q becomes %s, want %s", word, got, want)
		}
	}
}
