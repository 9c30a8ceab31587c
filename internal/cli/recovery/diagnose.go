package recovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// serves reports whether the cluster serves.
func (r *recovery) serves() bool { return r.cluster.Failure == nil }

// is reports whether there is a directory in this condition.
func (r *recovery) is(c rewind.Condition) bool { return r.dir != nil && r.dir.Condition == c }

// evidence is one case of a disaster.
type evidence struct {
	Code cause.Code // if it is not that of the kind
	X    *cluster.Member
	All  []*cluster.Member
	Text string
}

// diagnose finds out what is wrong. The error says that the flags ask for what must not be done.
func (r *recovery) diagnose() error {
	r.found = []*disaster{}
	switch {
	case len(r.expired) > 0: // a member that cannot be asked because of one is not called lost
		r.see("expired certificates", evidence{})
		return nil
	case len(r.clusters()) > 1: // whichever answers first would be acted on
		r.see("several clusters", evidence{})
		return nil
	}
	if err := r.checkFlags(); err != nil {
		return err
	}
	if r.dir != nil && r.seeDirectory() {
		return nil
	}
	if r.serves() {
		r.seeReports()
		r.seeMembers()
		return nil
	}
	r.seeOutage()
	r.seeReports()
	return nil
}

// seeDirectory finds out what is wrong with the data of this host. It reports whether that explains
// all the rest, or makes it unsafe to go on.
func (r *recovery) seeDirectory() (alone bool) {
	d, x, serves := r.dir, r.own, r.serves()
	switch c := d.Condition; {
	case c == rewind.Newer:
		r.see("too new", evidence{})
		return !serves
	case c == rewind.Foreign:
		r.see("foreign", evidence{})
		return !serves
	case c == rewind.HalfRestored:
		r.see("half restored", evidence{})
		return !serves
	case r.ofAnother():
		r.see("another cluster", evidence{})
		return true
	case c == rewind.Running && serves && d.Member != 0 && x == nil:
		r.see("a stranger runs", evidence{})
		return true
	case c == rewind.Running:
		return false
	case !serves:
		r.seeSurvivor()
		return true
	case c != rewind.Sound:
		r.seeLostData()
	case x == nil:
		r.see("removed", evidence{})
	case r.differs(x):
		r.see("differs here", evidence{X: x})
	case x.Error == "":
		r.see("runs elsewhere", evidence{X: x})
	default:
		r.see("not running", evidence{Code: d.Run.Cause, X: x})
	}
	return false
}

// seeSurvivor finds out what the data of this host are good for while no majority serves.
func (r *recovery) seeSurvivor() {
	switch s := r.left; {
	case s == nil:
		r.see("no data", evidence{})
	case s.Self == nil:
		r.see("unnamed", evidence{})
	case s.Missing() <= 0:
		r.see("majority stands", evidence{Code: r.dir.Run.Cause})
	default:
		r.see("survivor", evidence{})
	}
}

// seeLostData finds out why a member of a cluster that serves has no data of use.
func (r *recovery) seeLostData() {
	x := r.own
	switch r.dir.Condition {
	case rewind.Empty:
		if x != nil { // else it is a note
			r.see("disk lost", evidence{X: x})
		}
	case rewind.Stateless:
		r.see("no state", evidence{X: x})
	case rewind.RolledBack:
		r.see("rolled back", evidence{X: x})
	default:
		r.see("damaged", evidence{X: x})
	}
}

// seeOutage finds out why a cluster does not serve.
func (r *recovery) seeOutage() {
	var silent []*cluster.Member
	code := cause.NoAnswer
	for _, x := range r.cluster.Members {
		if x.Error != "" {
			silent = append(silent, x)
		}
		if x.Cause == cause.NoLeader { // without a majority no login works
			code = cause.NoMajority
		}
	}
	switch {
	case r.cluster.Cluster == "":
		r.see("silence", evidence{Code: code, All: silent})
	case votesOf(r.cluster).Missing() <= 0:
		r.see("no leader", evidence{})
	default:
		r.see("minority", evidence{All: silent})
	}
}

// seeReports finds out what members and alarms report.
func (r *recovery) seeReports() {
	if raised := r.overQuota(); len(raised) > 0 {
		r.see("over quota", evidence{Text: strings.Join(raised, ", ")})
	}
	if full := r.reporting(cause.DiskFull); len(full) > 0 {
		others := "no other member answers"
		if votesOf(r.cluster).Here > len(full) {
			others = "the others have room, and take writes"
		} else if len(r.cluster.Members) > 1 {
			others = "no member takes writes"
		}
		r.see("disk full", evidence{All: full, Text: others})
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

// seeMembers finds out which members are unwell while the others serve.
func (r *recovery) seeMembers() {
	for _, id := range r.cluster.Alarmed["CORRUPT"] {
		x := r.cluster.Member(id)
		switch {
		case x != nil && x == r.own: // the directory has shown it
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

// differs reports whether the state of a member differs from that of the majority.
func (r *recovery) differs(x *cluster.Member) bool {
	return slices.Contains(r.cluster.Alarmed["CORRUPT"], x.MemberID)
}

// ofAnother reports whether the directory is of another cluster than the one that serves.
func (r *recovery) ofAnother() bool {
	return r.serves() && r.dir.Cluster != 0 && fmt.Sprintf("%x", r.dir.Cluster) != r.cluster.Cluster
}

// failure is why the cluster does not serve.
func (r *recovery) failure() string {
	if r.serves() {
		return ""
	}
	return app.Readable(app.RPCPrefix.ReplaceAllString(r.cluster.Failure.Error(), ""))
}

// clusterAt is a cluster of which some endpoints are.
type clusterAt struct{ ID, Names, At string }

// clusters are those of all endpoints, and of all addresses of members.
func (r *recovery) clusters() (out []clusterAt) {
	of := make(map[uint64][]*cluster.Member)
	for _, x := range slices.Concat(r.cluster.Members, r.cluster.Others) {
		if x.Error == "" && x.Cluster != 0 {
			of[x.Cluster] = append(of[x.Cluster], x)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		var at []string
		for _, x := range of[id] {
			at = append(at, x.Endpoint)
		}
		out = append(out, clusterAt{
			fmt.Sprintf("%x", id), namesOfMembers(of[id]), strings.Join(at, ","),
		})
	}
	return out
}

// lookAtCluster asks all members, and looks at their certificates. The error says that the cluster
// refuses to be asked.
func (r *recovery) lookAtCluster() (*cluster.State, error) {
	s := cluster.LookAt(r.App, r.spec)
	s.Judge()
	otherCluster := grpcstatus.Code(s.Failure) == codes.FailedPrecondition && r.Flags.Cluster != 0
	if otherCluster || cluster.NeedsLogin(s.Failure) {
		return nil, fmt.Errorf("the cluster cannot be asked: %w", s.Failure)
	}
	r.expired = r.lookAtCertificates(s)
	return s, nil
}

// lookAtDirectory reads the data of the member of this host, and learns from them where the others
// are, unless we are told.
func (r *recovery) lookAtDirectory() (err error) {
	if r.dataDir == "" {
		if len(r.lost) > 0 || r.member != "" {
			return app.BadArgs("--lost and --member go with --data-dir")
		}
		return nil
	}
	if r.dir, err = rewind.Examine(r.dataDir); err != nil {
		return err
	}
	id := fmt.Sprintf("%x", r.dir.Member)
	if r.dir.Member != 0 && r.member != "" && r.member != r.dir.Name && r.member != id {
		return app.BadArgs(
			"%s is the data directory of %s (member %s), and not of %s: leave --member out",
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

// checkFlags refuses what must not be done, and finds out whose the directory is.
func (r *recovery) checkFlags() (err error) {
	switch {
	case r.serves() && len(r.lost) > 0:
		return app.BadArgs("the cluster serves, so its majority is not lost: leave --lost out")
	case r.is(rewind.Running) && len(r.lost) > 0:
		return app.BadArgs("%s: stop it before members are given up, or leave --lost out", r.user())
	case r.dir == nil || r.is(rewind.Foreign) || r.is(rewind.Newer) || r.is(rewind.HalfRestored):
		return nil
	case r.serves() && !r.ofAnother():
		r.own, err = r.memberOf()
		return err
	case r.is(rewind.Sound) && !r.serves():
		r.left = r.survey()
		return r.refuseLost()
	}
	return nil
}

// memberOf returns the member that the directory belongs to, as the cluster knows it; nil if it
// knows none. Data that do not say it may be of the only member that does not answer.
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
		return nil, app.BadArgs("several members do not answer, and %s does not say which one it "+
			"belongs to: name it with --member", r.dir.Path)
	}
	return silent[0], nil
}

// memberHere is the member of the directory, as the cluster or else the directory knows it.
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

// stateOf is what a data directory knows of a member.
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

// votes are how many voters there are, and how many of them answer.
type votes struct{ Voters, Here int }

// count counts a member, nil for none.
func (v *votes) count(x *cluster.Member) {
	if x == nil || x.Role == "learner" {
		return
	}
	v.Voters++
	if x.Error == "" {
		v.Here++
	}
}

// Need is how many voters are a majority.
func (v votes) Need() int { return v.Voters/2 + 1 }

// Missing is how many voters a majority lacks, 0 or less if none.
func (v votes) Missing() int { return v.Need() - v.Here }

// votesOf are those of the members that the cluster has.
func votesOf(s *cluster.State) (v votes) {
	for _, x := range s.Members {
		v.count(x)
	}
	return v
}

// survivors are the members that a sound directory knows, while no majority serves.
type survivors struct {
	Self   *cluster.Member // nil if its own state does not name it
	Others []*cluster.Member
	votes
}

// survey tries the addresses of the other members.
func (r *recovery) survey() *survivors {
	s := new(survivors)
	var wg sync.WaitGroup
	for _, m := range r.dir.Members {
		x := stateOf(m)
		if m.ID == r.dir.Member {
			s.Self = x
			continue
		}
		s.Others = append(s.Others, x)
		wg.Go(func() {
			if r.answers(append(slices.Clone(m.PeerURLs), m.ClientURLs...)) == "" {
				x.Error = "it answers at none of its addresses"
			}
		})
	}
	wg.Wait()
	for _, x := range append(slices.Clone(s.Others), s.Self) {
		s.count(x)
	}
	return s
}

// refuseLost says why members that are called lost must not be given up.
func (r *recovery) refuseLost() error {
	s, given := r.left, 0
	if len(r.lost) == 0 || s.Self == nil {
		return nil
	}
	for _, name := range r.lost {
		i := slices.IndexFunc(s.Others, func(x *cluster.Member) bool { return x.Is(name) })
		if i < 0 {
			return app.BadArgs("--lost %s: there is no other member of this name or ID", name)
		}
		if s.Others[i].Role == "voter" {
			given++
		}
	}
	for _, x := range s.Others {
		if x.Error == "" {
			return app.BadArgs("%s answers at %s: it is not lost. Bring the others back, or stop it, too, "+
				"and begin with the data that go further", x.Name, r.answers(x.URLs()))
		}
	}
	if s.Voters-given > s.Voters/2 {
		return app.BadArgs("--lost names %d of %d voters: the others are a majority, and lose nothing "+
			"when "+
			"they are started", given, s.Voters)
	}
	return nil
}

// fullEnough is the part of the quota at which the members lift the alarm by themselves.
const fullEnough = 7.0 / 8

// quotaUse is how much of the quota is used: the state is the same everywhere, and the smallest
// quota counts.
type quotaUse struct{ Used, Quota int64 }

// Full reports whether members keep the alarm.
func (q quotaUse) Full() bool { return float64(q.Used) > fullEnough*float64(q.Quota) }

// Twice is a quota to begin again with.
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

// overQuota names the members that have raised the alarm because of the quota. A full disk raises
// it as well.
func (r *recovery) overQuota() (names []string) {
	full := r.reporting(cause.DiskFull)
	for _, id := range r.cluster.Alarmed["NOSPACE"] {
		x := r.cluster.Member(id)
		switch {
		case x == nil:
			names = append(names, fmt.Sprintf("%x", id))
		case useOf(r.cluster).Full() || !slices.Contains(full, x):
			names = append(names, nameOf(x))
		}
	}
	return names
}

// reporting are the members that report a cause.
func (r *recovery) reporting(code cause.Code) []*cluster.Member {
	return slices.DeleteFunc(slices.Clone(r.cluster.Members), func(x *cluster.Member) bool {
		return !slices.ContainsFunc(x.Reports, func(r cluster.SelfReport) bool { return r.Code == code })
	})
}

// user names the process that has the directory open. It has told who it is, unless it is none of a
// member, or one of an earlier release.
func (r *recovery) user() string {
	run := &r.dir.Run
	if r.dir.Member == 0 {
		return r.dir.Path + " is in use by another process"
	}
	return fmt.Sprintf("%s is in use by a member that runs: %s (member %s of cluster %s, process %d, "+
		"since %s)", r.dir.Path, app.Readable(run.Name), run.Member, run.Cluster, run.Process,
		run.Started.Format("2006-01-02T15:04:05Z"))
}

// ended says why the member of the directory has stopped, as it told itself; empty if it did not.
func (r *recovery) ended() string {
	run := &r.dir.Run
	if run.Cause == "" {
		return ""
	}
	return fmt.Sprintf("%s, %s: %s", run.Stopped.Format(time.RFC3339), run.Cause, run.Text)
}

// shortOf says what the disk of the directory lacks; nil if it has enough.
func (r *recovery) shortOf() map[string]string {
	if r.dir.Free >= r.dir.Reserve {
		return nil
	}
	return map[string]string{
		"Free": app.SIBytes(int64(r.dir.Free)), "Reserve": app.SIBytes(int64(r.dir.Reserve)),
	}
}

// nameOf names a member for people, with its address.
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
