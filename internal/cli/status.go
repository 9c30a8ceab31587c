package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"leasehold.dev/internal/cause"
)

// What status says of a cluster in one word.
const (
	verdictHealthy  = "healthy"
	verdictDegraded = "degraded"
	verdictDown     = "down"
	verdictUnknown  = "unknown"
)

// exitDegraded is how status ends if the cluster serves, and something is wrong.
const exitDegraded = 7

func (a *app) statusCommand() *cobra.Command {
	return a.make(command{
		use: "status", short: "Summarize the health of the cluster in one word",
		long: `Ask every member and print "healthy", "degraded", "down" or "unknown", with the
reasons: members that do not answer, lag, have no leader or a full disk, alarms,
a quota that fills up, failing backups, two or an even number of voters, mixed
releases, and endpoints of another cluster.

Exit codes: 0 healthy; 7 degraded: the cluster serves but needs attention;
1 down, or unknown because the cluster requires a login.`,
		example: "status --endpoints host1:2379\nstatus -w json",
		run: func(*cobra.Command, []string, []string) error {
			spec, err := a.prepare()
			if err != nil {
				return err
			}
			s := a.lookAt(spec)
			s.judge()
			if err := a.show(showClusterState(s)); err != nil {
				return err
			}
			switch s.Verdict {
			case verdictHealthy:
				return nil
			case verdictDegraded:
				return &exitError{code: exitDegraded}
			default:
				return &exitError{code: exitFailure}
			}
		},
	})
}

// clusterState is what was found out about a cluster, and the verdict.
type clusterState struct {
	Verdict string         `json:"verdict"`
	Reasons []string       `json:"reasons"`
	Cluster string         `json:"cluster"` // its ID, empty if no member answers
	Members []*memberState `json:"members"`

	listed bool // the cluster has told who its members are
	// others are those behind endpoints that were given and that no member of the list has.
	others []*memberState
	// failure is why a read that goes through the leader failed.
	failure error
	alarms  []string
	alarmed map[string][]uint64 // by which members each is raised, 0 for none of them
}

// memberState is what was found out about a member.
type memberState struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	Role     string `json:"role"` // leader, voter or learner
	// Error is why it does not answer, and Cause the code of that.
	Error   string     `json:"error,omitempty"`
	Cause   cause.Code `json:"cause,omitempty"`
	Version string     `json:"version"` // of etcd's API
	Release string     `json:"release"` // empty if it does not answer, or is an etcd
	Behind  uint64     `json:"behind"`  // entries
	Took    elapsed    `json:"took"`
	State   int64      `json:"state_bytes"`
	Quota   int64      `json:"quota_bytes"`

	url     string       // of its pages, empty if the endpoint has no scheme
	reports []selfReport // what is wrong, as the member itself says
	peers   []string
	id      uint64
	leader  uint64 // whom it takes for the leader
	cluster uint64
	applied uint64
}

// elapsed is a duration, as text in JSON; empty if it is 0.
type elapsed time.Duration

// MarshalText implements encoding.TextMarshaler.
func (e elapsed) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// String implements fmt.Stringer.
func (e elapsed) String() string {
	if e == 0 {
		return ""
	}
	return time.Duration(e).String()
}

// lookAt asks all members at once.
func (a *app) lookAt(spec *clientv3.ConfigSpec) *clusterState {
	l := a.newLookout(spec)
	defer l.close()
	s := l.look()
	if conf, err := tlsOf(spec); err == nil {
		s.askReleases(newMemberPages(conf, a.flags.commandTimeout))
	}
	return s
}

// askReleases asks the members that answer which release they run.
func (s *clusterState) askReleases(pages memberPages) {
	var wg sync.WaitGroup
	for _, x := range s.Members {
		if x.Error != "" {
			continue
		}
		wg.Go(func() {
			var v struct {
				Leasehold struct{ Release string }
			}
			if text, err := pages.get(x, "/version"); err == nil && json.Unmarshal(text, &v) == nil {
				x.Release = v.Leasehold.Release
			}
		})
	}
	wg.Wait()
}

// look asks all members at once, and the endpoints that were given: clients that find another
// cluster behind one of them find there a lock free that is held here.
func (l *lookout) look() *clusterState {
	s := &clusterState{Reasons: []string{}}
	var list []*pb.Member
	if !l.connects() { // a client would try until its time is up
		s.failure = errNoConnection
	} else if c, err := l.client(""); err != nil {
		s.failure = err
	} else {
		list = s.ask(l.a, c.Client)
	}
	if s.listed = len(list) > 0; !s.listed {
		for _, ep := range l.spec.Endpoints {
			list = append(list, &pb.Member{Name: ep, ClientURLs: []string{ep}})
		}
	}
	var wg sync.WaitGroup
	known := make(map[string]bool)
	for _, m := range list {
		for _, ep := range m.GetClientURLs() {
			known[hostOf(ep)] = true
		}
		x := &memberState{
			Name: m.GetName(), ID: fmt.Sprintf("%x", m.GetID()), id: m.GetID(), Role: "voter",
			Error: "it has no client URL: it has not started yet", Cause: cause.NotStarted,
			peers: m.GetPeerURLs(),
		}
		if m.GetIsLearner() {
			x.Role = "learner"
		}
		s.Members = append(s.Members, x)
		wg.Go(func() {
			for _, ep := range m.GetClientURLs() {
				if x.ask(l, ep); x.Error == "" {
					return
				}
			}
		})
	}
	for _, ep := range l.spec.Endpoints {
		if !known[hostOf(ep)] {
			known[hostOf(ep)] = true
			x := &memberState{Name: ep}
			s.others = append(s.others, x)
			wg.Go(func() { x.ask(l, ep) })
		}
	}
	wg.Wait()
	return s
}

// connects reports whether one of the endpoints takes a connection.
func (l *lookout) connects() bool {
	found := make(chan bool, len(l.spec.Endpoints))
	for _, ep := range l.spec.Endpoints {
		go func() {
			found <- strings.HasPrefix(ep, "unix") ||
				connects(context.Background(), l.a.flags.dialTimeout, hostOf(ep)) == nil
		}()
	}
	for range l.spec.Endpoints {
		if <-found {
			return true
		}
	}
	return false
}

// hostOf returns an endpoint without its scheme.
func hostOf(ep string) string {
	return strings.TrimPrefix(strings.TrimPrefix(ep, "http://"), "https://")
}

// ask asks the cluster as a whole: whether it serves, its alarms and its members.
func (s *clusterState) ask(a *app, c *clientv3.Client) []*pb.Member {
	within := func(do func(context.Context) error) error {
		ctx, cancel := a.commandContext()
		defer cancel()
		return do(ctx)
	}
	var list []*pb.Member
	var wg sync.WaitGroup
	// At the same time: where nobody answers, each takes all the time that there is.
	wg.Go(func() {
		_ = within(func(ctx context.Context) error { // without a list the endpoints are asked
			r, err := c.MemberList(ctx, clientv3.WithSerializable())
			if err == nil {
				list = r.Members
			}
			return err
		})
	})
	s.failure = within(func(ctx context.Context) error {
		_, err := c.Get(ctx, "health")
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			return nil // the refusal has gone through the leader, too
		}
		return err
	})
	if s.failure == nil {
		err := within(func(ctx context.Context) error {
			r, err := c.AlarmList(ctx)
			if err != nil {
				return err
			}
			s.alarmed = make(map[string][]uint64)
			for _, m := range r.Alarms {
				alarm := m.GetAlarm().String()
				s.alarms = append(s.alarms, alarm)
				s.alarmed[alarm] = append(s.alarmed[alarm], m.GetMemberID())
			}
			return nil
		})
		if err != nil {
			s.alarms = append(s.alarms, "the alarms cannot be listed: "+readable(err.Error()))
		}
	}
	wg.Wait()
	return list
}

// ask asks one member at one of its endpoints.
func (x *memberState) ask(l *lookout, ep string) {
	host := hostOf(ep)
	if x.Endpoint = host; host != ep {
		x.url = ep
	}
	ctx, cancel := l.a.commandContext()
	defer cancel()
	// A client would try again until its time is up, and then not say why it failed.
	if !strings.HasPrefix(ep, "unix") {
		if err := connects(ctx, 0, host); err != nil {
			x.notConnected(err)
			return
		}
	}
	c, err := l.client(ep)
	if err != nil {
		x.failed(c, err)
		return
	}
	began := time.Now()
	r, err := c.Status(ctx, ep)
	if err != nil {
		x.failed(c, err)
		return
	}
	x.Took = elapsed(time.Since(began).Round(10 * time.Microsecond))
	x.Error, x.Cause = "", ""
	m := (*pb.StatusResponse)(r)
	x.Version, x.State, x.Quota = m.GetVersion(), m.GetDbSizeInUse(), m.GetDbSizeQuota()
	x.leader, x.applied = m.GetLeader(), m.GetRaftAppliedIndex()
	x.cluster, x.reports = m.GetHeader().GetClusterId(), reportedBy(m)
	if x.id == 0 {
		x.id = m.GetHeader().GetMemberId()
		x.ID = fmt.Sprintf("%x", x.id)
	}
	switch {
	case m.GetIsLearner():
		x.Role = "learner"
	case x.leader == x.id:
		x.Role = "leader"
	}
}

// connects returns why no process takes a connection at a host and port, within a time if that is
// not 0. Nothing is said on the connection.
func connects(ctx context.Context, within time.Duration, host string) error {
	c, err := (&net.Dialer{Timeout: within}).DialContext(ctx, "tcp", host)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// notConnected notes why no process has taken a connection.
func (x *memberState) notConnected(err error) {
	x.Error, x.Cause = readable(err.Error()), cause.Unreachable
	if errors.Is(err, connectionRefused) {
		x.Cause = cause.Refused
	}
}

// selfReport is what a member reports to be wrong with itself, such as a full disk.
type selfReport struct {
	code cause.Code
	text string
}

// reportedBy returns what a member reports. Alarms and that it knows no leader are left out, which
// members tell as an etcd does: they are found out in other ways.
func reportedBy(m *pb.StatusResponse) (out []selfReport) {
	for _, line := range m.GetErrors() {
		code, text := cause.OfReport(line)
		if code == "" && (line == rpctypes.ErrNoLeader.Error() || strings.Contains(line, "alarm:")) {
			continue
		}
		out = append(out, selfReport{code, text})
	}
	return out
}

// texts are those of reports, for people.
func texts(list []selfReport) string {
	var out []string
	for _, r := range list {
		out = append(out, r.text)
	}
	return strings.Join(out, "; ")
}

const (
	lagEntries = 10_000 // behind by more a member needs attention
	fullPart   = 0.8    // of the quota
)

// judge says how the cluster is. It looks at nothing but what was found out.
func (s *clusterState) judge() {
	answer := slices.DeleteFunc(slices.Clone(s.Members), func(x *memberState) bool {
		return x.Error != ""
	})
	wrong := func(format string, args ...any) {
		s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...))
	}
	switch {
	case needsLogin(s.failure):
		wrong("log in, for example with --user: %s", readable(s.failure.Error()))
	case s.failure != nil:
		wrong("it does not serve: %s", readable(s.failure.Error()))
	}
	newest := uint64(0)
	releases := make(map[string]bool)
	for _, x := range answer {
		newest = max(newest, x.applied)
		releases[cmp.Or(x.Release, x.Version)] = true
		if s.Cluster == "" {
			s.Cluster = fmt.Sprintf("%x", x.cluster)
		}
	}
	for _, x := range s.Members {
		x.Behind = newest - x.applied
		switch {
		case x.Error != "":
			x.Behind = 0
			if x.Cause != cause.LoginRequired {
				wrong("%s does not answer: %s", x.Name, x.Error)
			}
		case fmt.Sprintf("%x", x.cluster) != s.Cluster:
			wrong("%s belongs to another cluster, %x", x.Name, x.cluster)
		case x.leader == 0:
			wrong("%s knows no leader", x.Name)
		case len(x.reports) > 0:
			wrong("%s: %s", x.Name, readable(texts(x.reports)))
		case x.Behind > lagEntries:
			wrong("%s is %d entries behind", x.Name, x.Behind)
		case x.Quota > 0 && float64(x.State) > fullPart*float64(x.Quota):
			wrong("%s: the state takes %d%% of the quota", x.Name, x.State*100/x.Quota)
		}
	}
	s.judgeOthers(wrong)
	for _, alarm := range s.alarms {
		wrong("alarm: %s", alarm)
	}
	if len(releases) > 1 {
		wrong("members run %d releases: finish the upgrade", len(releases))
	}
	// Without the list of members it is not known who has a vote.
	if n := s.countVoters(); n > 0 && n%2 == 0 {
		wrong("%d voters survive no more failures than %d: add one or remove one", n, n-1)
	}
	s.Verdict = s.verdict()
}

func (s *clusterState) verdict() string {
	switch {
	case needsLogin(s.failure):
		return verdictUnknown
	case s.failure != nil:
		return verdictDown
	case len(s.Reasons) > 0:
		return verdictDegraded
	default:
		return verdictHealthy
	}
}

// countVoters returns the number of voters in the list of members, 0 if there is no list.
func (s *clusterState) countVoters() (n int) {
	for _, x := range s.Members {
		if s.listed && x.Role != "learner" {
			n++
		}
	}
	return n
}

// needsLogin reports whether a call failed for want of a valid login.
func needsLogin(err error) bool {
	for _, refusal := range []error{
		rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return grpcstatus.Code(err) == codes.Unauthenticated
}

// judgeOthers says what is wrong with the endpoints that are of no member.
func (s *clusterState) judgeOthers(wrong func(format string, args ...any)) {
	for _, x := range s.others {
		switch {
		case x.Error != "" || s.Cluster == "": // it may be anybody's
		case fmt.Sprintf("%x", x.cluster) != s.Cluster:
			wrong("%s belongs to another cluster, %x", x.Name, x.cluster)
		case !slices.ContainsFunc(s.Members, func(m *memberState) bool { return m.id == x.id }):
			wrong("%s is member %x, which the cluster does not have: was it removed, or is it of a "+
				"backup that was restored?", x.Name, x.id)
		}
	}
}

func showClusterState(s *clusterState) answer {
	rows := func() (rows [][]string) {
		for _, x := range s.Members {
			row := []string{x.Name, x.ID, x.Endpoint, x.Role, "does not answer", "", "", ""}
			switch {
			case x.Cause == cause.LoginRequired:
				row[4] = "needs a login"
			case x.Error == "":
				row[4], row[5] = "answers in "+x.Took.String(), fmt.Sprint(x.Behind)
				row[6] = cmp.Or(x.Release, "etcd "+x.Version)
				row[7] = siBytes(x.State) + " of " + siBytes(x.Quota)
			}
			if !s.listed { // all that is known of it is the endpoint
				row[1], row[2], row[3] = "", "", ""
			}
			rows = append(rows, row)
		}
		return rows
	}
	head := []string{"name", "ID", "endpoint", "role", "state", "behind", "release", "size"}
	return answer{json: s, simple: func(p *page) {
		p.printf("%s\n", s.Verdict)
		for _, r := range s.Reasons {
			p.printf("  %s\n", r)
		}
		for _, row := range rows() {
			if row[5] != "" {
				row[5], row[6] = row[5]+" behind", "release "+row[6]
			}
			known := slices.DeleteFunc(row, func(cell string) bool { return cell == "" })
			p.printf("%s\n", strings.Join(known, ", "))
		}
	}, fields: func(p *page) {
		p.quoted("Verdict", s.Verdict)
		for _, r := range s.Reasons {
			p.quoted("Reason", r)
		}
	}, table: func() ([]string, [][]string) { return head, rows() }}
}
