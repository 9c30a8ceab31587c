package recovery

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// serves reports whether the cluster is serving.
func (r *recovery) serves() bool { return r.cluster.Failure == nil }

// is reports whether a directory was given and is in condition c.
func (r *recovery) is(c rewind.Condition) bool { return r.dir != nil && r.dir.Condition == c }

// evidence describes one instance of a disaster.
type evidence struct {
	Code cause.Code // overrides the code of the kind
	X    *cluster.Member
	All  []*cluster.Member
	Text string
}

// diagnose determines what is wrong. It returns an error if the flags request something unsafe.
func (r *recovery) diagnose() error {
	r.found = []*disaster{}
	switch {
	case len(r.expired) > 0: // expired certificates make members look lost
		r.see("expired certificates", evidence{})
		return nil
	case len(r.clusters()) > 1: // recover would act on whichever cluster responds first
		r.see("several clusters", evidence{})
		return nil
	}
	if err := r.checkFlags(); err != nil {
		return err
	}
	if r.dir != nil && r.diagnoseDirectory() {
		return nil
	}
	if r.serves() {
		r.diagnoseReports()
		r.diagnoseMembers()
		return nil
	}
	r.diagnoseOutage()
	r.diagnoseReports()
	return nil
}

// diagnoseDirectory examines the data on this host. It returns true if its findings explain
// everything else or make it unsafe to continue.
func (r *recovery) diagnoseDirectory() (alone bool) {
	d, serves := r.dir, r.serves()
	switch c := d.Condition; {
	case c == rewind.Newer, c == rewind.Foreign, c == rewind.HalfRestored:
		r.see(unusable[c], evidence{})
		return !serves
	case r.ofAnother():
		r.see("another cluster", evidence{})
		return true
	case c == rewind.Running && serves && d.Member != 0 && r.own == nil:
		r.see("a stranger runs", evidence{})
		return true
	case c == rewind.Running:
		return false
	case !serves:
		r.diagnoseSurvivor()
		return true
	case c == rewind.Empty && r.own == nil: // notes mentions it
	case c != rewind.Sound:
		r.see(unusable[c], evidence{})
	case r.own == nil:
		r.see("removed", evidence{})
	case r.differs(r.own):
		r.see("differs here", evidence{})
	case r.own.Error == "":
		r.see("runs elsewhere", evidence{})
	default:
		r.see("not running", evidence{Code: d.Run.Cause})
	}
	return false
}

// unusable contains the disaster for each condition in which a member cannot run on a directory.
var unusable = map[rewind.Condition]string{
	rewind.Empty:        "disk lost",
	rewind.Stateless:    "no state",
	rewind.HalfRestored: "half restored",
	rewind.Newer:        "too new",
	rewind.Foreign:      "foreign",
	rewind.RolledBack:   "rolled back",
	rewind.Damaged:      "damaged",
}

// diagnoseSurvivor determines how the data on this host can be used while there is no majority.
func (r *recovery) diagnoseSurvivor() {
	switch {
	case !r.is(rewind.Sound):
		r.see("no data", evidence{})
	case r.own == nil:
		r.see("unnamed", evidence{})
	case r.available().Missing() <= 0:
		r.see("majority stands", evidence{Code: r.dir.Run.Cause})
	default:
		r.see("survivor", evidence{})
	}
}

// diagnoseOutage determines why the cluster is not serving.
func (r *recovery) diagnoseOutage() {
	var silent []*cluster.Member
	code := cause.NoAnswer
	for _, x := range r.cluster.Members {
		if x.Error != "" {
			silent = append(silent, x)
		}
		if x.Cause == cause.NoLeader { // a login needs a majority
			code = cause.NoMajority
		}
	}
	switch {
	case r.cluster.Cluster == "":
		r.see("silence", evidence{Code: code, All: silent})
	case votesOf(r.cluster.Members).Missing() <= 0:
		r.see("no leader", evidence{})
	default:
		r.see("minority", evidence{All: silent})
	}
}

// diagnoseReports adds the active alarms and the problems reported by members.
func (r *recovery) diagnoseReports() {
	full := r.reporting(cause.DiskFull)
	if raised := r.overQuota(full); len(raised) > 0 {
		r.see("over quota", evidence{All: raised})
	}
	if len(full) > 0 {
		r.see("disk full", evidence{All: full})
	}
	for _, x := range r.reporting(cause.CopiedData) {
		r.see("copy runs", evidence{X: x})
	}
	for _, x := range r.cluster.Members {
		for _, t := range x.Reports {
			if t.Code != cause.DiskFull && t.Code != cause.CopiedData {
				r.see("reported", evidence{Code: t.Code, X: x, Text: t.Text})
			}
		}
	}
}

// diagnoseMembers finds members that have problems while the other members are serving.
func (r *recovery) diagnoseMembers() {
	for _, id := range r.cluster.Alarmed["CORRUPT"] {
		x := r.cluster.Member(id)
		switch {
		case x != nil && x == r.own: // already reported by diagnoseDirectory
		case x != nil && x.Error != "":
			r.see("differs", evidence{X: x})
		default:
			r.see("split", evidence{All: r.cluster.Members})
		}
	}
	for _, x := range r.cluster.Members {
		switch {
		case x.Error == "" && x.Leader == 0, x.Cause == cause.NoLeader:
			r.see("cut off", evidence{X: x})
		case x.Error != "" && x != r.own && !r.differs(x):
			r.see("silent", evidence{Code: x.Cause, X: x})
		}
	}
}

// differs reports whether the state of x differs from the majority's state.
func (r *recovery) differs(x *cluster.Member) bool {
	return slices.Contains(r.cluster.Alarmed["CORRUPT"], x.MemberID)
}

// ofAnother reports whether a cluster is serving and the directory belongs to a different one.
func (r *recovery) ofAnother() bool {
	return r.serves() && r.dir.Cluster != 0 && fmt.Sprintf("%x", r.dir.Cluster) != r.cluster.Cluster
}

// clusters returns the members found at the endpoints and the members' addresses, by cluster.
func (r *recovery) clusters() map[uint64][]*cluster.Member {
	of := make(map[uint64][]*cluster.Member)
	for _, x := range slices.Concat(r.cluster.Members, r.cluster.Others) {
		if x.Error == "" && x.Cluster != 0 {
			of[x.Cluster] = append(of[x.Cluster], x)
		}
	}
	return of
}

// queryCluster queries the status of all members and checks their certificates. It returns an
// error if the cluster rejects the queries.
func (r *recovery) queryCluster() error {
	s := cluster.LookAt(r.App, r.spec)
	s.Judge()
	otherCluster := grpcstatus.Code(s.Failure) == codes.FailedPrecondition && r.Flags.Cluster != 0
	if otherCluster || cluster.NeedsLogin(s.Failure) {
		return fmt.Errorf("the cluster cannot be queried: %w", s.Failure)
	}
	r.cluster, r.expired = s, r.checkCertificates(s)
	return nil
}

// lookAtDirectory examines the data directory, if one is given. Without --endpoints, it also reads
// the addresses of the other members from the directory.
func (r *recovery) lookAtDirectory() (err error) {
	if r.dataDir == "" {
		if len(r.lost) > 0 || r.member != "" {
			return app.BadArgs("--lost and --member require --data-dir")
		}
		return nil
	}
	if r.dir, err = rewind.Examine(r.dataDir); err != nil {
		return err
	}
	id := fmt.Sprintf("%x", r.dir.Member)
	if r.dir.Member != 0 && r.member != "" && r.member != r.dir.Name && r.member != id {
		return app.BadArgs(
			"%s is the data directory of %s (member %s), not of %s: omit --member",
			r.dir.Path, r.dir.Name, id, r.member)
	}
	var known []string
	if r.is(rewind.Running) {
		known = r.dir.Run.ClientURLs
	}
	for _, m := range r.dir.Members {
		known = append(known, m.ClientURLs...)
	}
	if !r.Flags.Set.Changed("endpoints") && len(known) > 0 {
		r.spec.Endpoints = known
	}
	return nil
}

// checkFlags rejects flags that request something unsafe, and determines which member the directory
// belongs to.
func (r *recovery) checkFlags() (err error) {
	switch {
	case r.serves() && len(r.lost) > 0:
		return app.BadArgs("the cluster is serving, so its majority is not lost: omit --lost")
	case r.is(rewind.Running) && len(r.lost) > 0:
		return app.BadArgs("%s: stop it before declaring members lost, or omit --lost", r.user())
	case r.dir == nil || r.is(rewind.Foreign) || r.is(rewind.Newer) || r.is(rewind.HalfRestored):
		return nil
	case r.serves() && !r.ofAnother():
		r.own, err = r.memberOf()
		return err
	case r.is(rewind.Sound) && !r.serves():
		r.survey()
		return r.refuseLost()
	}
	return nil
}

// memberOf returns the cluster's entry for the member that owns the directory, or nil if there is
// no such entry. If the data does not identify its member and exactly one member does not respond,
// memberOf assumes that the data belongs to that member.
func (r *recovery) memberOf() (*cluster.Member, error) {
	var silent []*cluster.Member
	for _, x := range r.cluster.Members {
		switch {
		case r.dir.Member != 0 && x.MemberID == r.dir.Member,
			r.dir.Member == 0 && r.member != "" && x.Is(r.member):
			return x, nil
		case x.Error != "":
			silent = append(silent, x)
		}
	}
	switch {
	case r.dir.Member != 0:
		return nil, nil
	case r.member != "":
		return nil, app.BadArgs("the cluster has no member %q", r.member)
	case len(silent) == 0 || r.is(rewind.Running):
		return nil, nil
	case len(silent) > 1:
		return nil, app.BadArgs("several members do not respond, and %s does not show which one it "+
			"belongs to: name it with --member", r.dir.Path)
	}
	return silent[0], nil
}

// memberHere returns the member that owns the directory. It prefers the cluster's entry for that
// member.
func (r *recovery) memberHere() *cluster.Member {
	if r.own != nil {
		return r.own
	}
	for _, m := range r.dir.Members {
		if m.ID == r.dir.Member {
			return stateOf(m)
		}
	}
	return &cluster.Member{Name: r.dir.Name}
}

// stateOf converts a member's entry in the data directory.
func stateOf(m rewind.Member) *cluster.Member {
	x := &cluster.Member{
		Name: m.Name, ID: fmt.Sprintf("%x", m.ID), MemberID: m.ID, Role: "voter", Peers: m.PeerURLs,
	}
	if m.Learner {
		x.Role = "learner"
	}
	if len(m.ClientURLs) > 0 {
		x.URL = m.ClientURLs[0]
	}
	_, x.Endpoint, _ = strings.Cut(x.URL, "://")
	return x
}

// votes counts all voters and the voters that respond.
type votes struct{ Voters, Here int }

// votesOf counts the voters among members.
func votesOf(members []*cluster.Member) (v votes) {
	for _, x := range members {
		if x.Role == "learner" {
			continue
		}
		v.Voters++
		if x.Error == "" {
			v.Here++
		}
	}
	return v
}

// Need returns the size of a majority.
func (v votes) Need() int { return v.Voters/2 + 1 }

// Missing returns how many more voters are needed for a majority. If there is a majority, the
// result is 0 or negative.
func (v votes) Missing() int { return v.Need() - v.Here }

// survey looks up the members that the directory lists, and probes the addresses of the others.
func (r *recovery) survey() {
	var wg sync.WaitGroup
	for _, m := range r.dir.Members {
		x := stateOf(m)
		if m.ID == r.dir.Member {
			r.own = x
			continue
		}
		r.others = append(r.others, x)
		wg.Go(func() {
			if r.answers(append(slices.Clone(m.PeerURLs), m.ClientURLs...)) == "" {
				x.Error = "it does not respond at any of its addresses"
			}
		})
	}
	wg.Wait()
}

// available counts the voters that the directory lists. Its own member counts as available.
func (r *recovery) available() votes { return votesOf(append(slices.Clone(r.others), r.own)) }

// refuseLost returns an error if it is unsafe to give up the members named by --lost.
func (r *recovery) refuseLost() error {
	if len(r.lost) == 0 || r.own == nil {
		return nil
	}
	given := 0
	for _, name := range r.lost {
		i := slices.IndexFunc(r.others, func(x *cluster.Member) bool { return x.Is(name) })
		if i < 0 {
			return app.BadArgs("--lost %s: no other member has this name or ID", name)
		}
		if r.others[i].Role == "voter" {
			given++
		}
	}
	for _, x := range r.others {
		if x.Error == "" {
			return app.BadArgs("%s responds at %s: it is not lost. Bring the others back, or stop it as "+
				"well and start from the more recent data", x.Name, r.answers(x.URLs()))
		}
	}
	if all := r.available().Voters; all-given > all/2 {
		return app.BadArgs("--lost names %d of %d voters, but the others form a majority: start "+
			"them, and nothing will be lost", given, all)
	}
	return nil
}

// fullEnough is the share of the quota below which members clear the alarm themselves.
const fullEnough = 7.0 / 8

// quotaUse contains the size of the state and the quota. All members have the same state, so only
// the smallest quota matters.
type quotaUse struct{ Used, Quota int64 }

// Full reports whether usage is still high enough for members to keep the alarm raised.
func (q quotaUse) Full() bool { return float64(q.Used) > fullEnough*float64(q.Quota) }

// Twice returns twice the quota, to suggest as a new quota.
func (q quotaUse) Twice() int64 { return 2 * q.Quota }

func useOf(s *cluster.State) (q quotaUse) {
	for _, x := range s.Members {
		q.Used = max(q.Used, x.State)
		if x.Quota > 0 && (q.Quota == 0 || x.Quota < q.Quota) {
			q.Quota = x.Quota
		}
	}
	return q
}

// size formats a number of bytes.
func size(n int64) string { return humanize.Bytes(uint64(n)) }

// overQuota returns the members that raised the alarm because the quota was exceeded. A full disk
// raises the same alarm.
func (r *recovery) overQuota(full []*cluster.Member) (raised []*cluster.Member) {
	for _, id := range r.cluster.Alarmed["NOSPACE"] {
		x := r.cluster.Member(id)
		switch {
		case x == nil: // not in the list of members
			raised = append(raised, &cluster.Member{Name: fmt.Sprintf("%x", id)})
		case useOf(r.cluster).Full() || !slices.Contains(full, x):
			raised = append(raised, x)
		}
	}
	return raised
}

// reporting returns the members that report the given code.
func (r *recovery) reporting(code cause.Code) []*cluster.Member {
	return slices.DeleteFunc(slices.Clone(r.cluster.Members), func(x *cluster.Member) bool {
		return !slices.ContainsFunc(x.Reports, func(r cluster.SelfReport) bool { return r.Code == code })
	})
}

// user describes the process that has the directory open. Only a member can identify itself, and
// only if its release is recent enough.
func (r *recovery) user() string {
	run := &r.dir.Run
	if r.dir.Member == 0 {
		return r.dir.Path + " is in use by another process"
	}
	return fmt.Sprintf("%s is in use by a running member: %s (member %s of cluster %s, process %d, "+
		"since %s)", r.dir.Path, app.Readable(run.Name), run.Member, run.Cluster, run.Process,
		stamp(run.Started))
}

// stamp formats a time.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// nameOf returns the name and address of x for display.
func nameOf(x *cluster.Member) string {
	if x.Endpoint == "" || cluster.HostOf(x.Name) == x.Endpoint {
		return app.Readable(x.Name)
	}
	return app.Readable(x.Name) + " (" + x.Endpoint + ")"
}

func namesOfMembers(list []*cluster.Member) string {
	var names []string
	for _, x := range list {
		names = append(names, nameOf(x))
	}
	return strings.Join(names, ", ")
}
