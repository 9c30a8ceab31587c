package cluster

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

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
)

// The verdicts of the status command.
const (
	verdictHealthy  = "healthy"
	verdictDegraded = "degraded"
	verdictDown     = "down"
	verdictUnknown  = "unknown"
)

func (a commands) statusCommand() *cobra.Command {
	return a.Make(app.Command{
		Use: "status", Short: "Summarize the health of the cluster in one word",
		Long: `Query every member and print "healthy", "degraded", "down" or "unknown", with the reasons:
members that do not respond, lag, have no leader or have a full disk, alarms, a quota that is nearly
used up, failing backups, an even number of voters, mixed releases, and endpoints of a different
cluster.

Exit codes: 0 healthy; 7 degraded: the cluster works but needs attention;
1 down, or unknown because the cluster requires a login.`,
		Example: "status --endpoints host1:2379\nstatus -w json",
		Run: func(*cobra.Command, []string, []string) error {
			spec, err := a.Prepare()
			if err != nil {
				return err
			}
			s := LookAt(a.App, spec)
			s.Judge()
			if err := a.Show(showClusterState(s)); err != nil {
				return err
			}
			switch s.Verdict {
			case verdictHealthy:
				return nil
			case verdictDegraded:
				return app.Reported(app.ExitDegraded)
			default:
				return app.Reported(app.ExitFailure)
			}
		},
	})
}

// State is the observed state of a cluster together with the verdict.
type State struct {
	Verdict string    `json:"verdict"`
	Reasons []string  `json:"reasons"`
	Cluster string    `json:"cluster"` // ID, or empty if no member responds
	Members []*Member `json:"members"`

	listed bool // whether the member list comes from the cluster
	// Others are the members found at given endpoints but missing from the member list.
	Others []*Member `json:"-"`
	// Failure is the error from a read that the leader had to confirm.
	Failure error `json:"-"`
	alarms  []string
	// IDs of the members that raised each alarm; 0 means no particular member
	Alarmed map[string][]uint64 `json:"-"`
}

// Member is the observed state of a member.
type Member struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
	Role     string `json:"role"` // leader, voter or learner
	// Error is the reason why the member does not respond. Cause is the code for that reason.
	Error   string     `json:"error,omitempty"`
	Cause   cause.Code `json:"cause,omitempty"`
	Version string     `json:"version"` // version of etcd's API
	Release string     `json:"release"` // empty if the member did not respond or runs etcd
	Behind  uint64     `json:"behind"`  // entries
	Took    elapsed    `json:"took"`
	State   int64      `json:"state_bytes"`
	Quota   int64      `json:"quota_bytes"`

	URL      string       `json:"-"` // base URL of its pages; empty if the endpoint has no scheme
	Reports  []SelfReport `json:"-"` // problems that the member reports itself
	Peers    []string     `json:"-"`
	MemberID uint64       `json:"-"`
	Leader   uint64       `json:"-"` // the leader that the member follows
	Cluster  uint64       `json:"-"`
	applied  uint64
}

// elapsed is a duration that is encoded as text in JSON. The text is empty if the duration is 0.
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

// LookAt queries all members concurrently.
func LookAt(a *app.App, spec *clientv3.ConfigSpec) *State {
	l := NewProber(a, spec)
	defer l.Close()
	s := l.Look()
	if conf, err := app.TLSOf(spec); err == nil {
		s.QueryReleases(NewMemberPages(conf, a.Flags.CommandTimeout))
	}
	return s
}

// QueryReleases queries the release of each member that responds.
func (s *State) QueryReleases(pages MemberPages) {
	var wg sync.WaitGroup
	for _, x := range s.Members {
		if x.Error != "" {
			continue
		}
		wg.Go(func() {
			var v struct {
				Leasehold struct{ Release string }
			}
			if text, err := pages.Get(x, "/version"); err == nil && json.Unmarshal(text, &v) == nil {
				x.Release = v.Leasehold.Release
			}
		})
	}
	wg.Wait()
}

// Look queries all members and all given endpoints concurrently. The endpoints matter because one
// of them might belong to another cluster, where a lock that is held here could be free.
func (l *Prober) Look() *State {
	s := &State{Reasons: []string{}}
	var list []*pb.Member
	if !l.connects() { // a client would retry until the timeout
		s.Failure = errNoConnection
	} else if c, err := l.client(""); err != nil {
		s.Failure = err
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
			known[HostOf(ep)] = true
		}
		x := &Member{
			Name: m.GetName(), ID: fmt.Sprintf("%x", m.GetID()), MemberID: m.GetID(), Role: "voter",
			Error: "it has no client URL: it has not started yet", Cause: cause.NotStarted,
			Peers: m.GetPeerURLs(),
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
		if !known[HostOf(ep)] {
			known[HostOf(ep)] = true
			x := &Member{Name: ep}
			s.Others = append(s.Others, x)
			wg.Go(func() { x.ask(l, ep) })
		}
	}
	wg.Wait()
	return s
}

// connects reports whether any endpoint accepts a connection.
func (l *Prober) connects() bool {
	found := make(chan bool, len(l.spec.Endpoints))
	for _, ep := range l.spec.Endpoints {
		go func() {
			found <- strings.HasPrefix(ep, "unix") ||
				Connects(context.Background(), l.a.Flags.DialTimeout, HostOf(ep)) == nil
		}()
	}
	for range l.spec.Endpoints {
		if <-found {
			return true
		}
	}
	return false
}

// HostOf returns an endpoint without its scheme.
func HostOf(ep string) string {
	return strings.TrimPrefix(strings.TrimPrefix(ep, "http://"), "https://")
}

// ask queries the cluster as a whole: whether it is serving, its alarms, and its members.
func (s *State) ask(a *app.App, c *clientv3.Client) []*pb.Member {
	within := func(do func(context.Context) error) error {
		ctx, cancel := a.CommandContext()
		defer cancel()
		return do(ctx)
	}
	var list []*pb.Member
	var wg sync.WaitGroup
	// The calls are concurrent because each one takes the full timeout if there is no response.
	wg.Go(func() {
		// without a member list, the endpoints are queried
		_ = within(func(ctx context.Context) error {
			r, err := c.MemberList(ctx, clientv3.WithSerializable())
			if err == nil {
				list = r.Members
			}
			return err
		})
	})
	s.Failure = within(func(ctx context.Context) error {
		_, err := c.Get(ctx, "health")
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			return nil // a denied request is fine, because the leader confirmed it first
		}
		return err
	})
	if s.Failure == nil {
		err := within(func(ctx context.Context) error {
			r, err := c.AlarmList(ctx)
			if err != nil {
				return err
			}
			s.Alarmed = make(map[string][]uint64)
			for _, m := range r.Alarms {
				alarm := m.GetAlarm().String()
				s.alarms = append(s.alarms, alarm)
				s.Alarmed[alarm] = append(s.Alarmed[alarm], m.GetMemberID())
			}
			return nil
		})
		if err != nil {
			s.alarms = append(s.alarms, "cannot list alarms: "+app.Readable(err.Error()))
		}
	}
	wg.Wait()
	return list
}

// ask queries a member at one of its endpoints.
func (x *Member) ask(l *Prober, ep string) {
	host := HostOf(ep)
	if x.Endpoint = host; host != ep {
		x.URL = ep
	}
	ctx, cancel := l.a.CommandContext()
	defer cancel()
	// A client would retry until the timeout without reporting the reason.
	if !strings.HasPrefix(ep, "unix") {
		if err := Connects(ctx, 0, host); err != nil {
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
	x.Leader, x.applied = m.GetLeader(), m.GetRaftAppliedIndex()
	x.Cluster, x.Reports = m.GetHeader().GetClusterId(), reportedBy(m)
	if x.MemberID == 0 {
		x.MemberID = m.GetHeader().GetMemberId()
		x.ID = fmt.Sprintf("%x", x.MemberID)
	}
	switch {
	case m.GetIsLearner():
		x.Role = "learner"
	case x.Leader == x.MemberID:
		x.Role = "leader"
	}
}

// Connects returns an error if no connection can be made to a host and port. A timeout of 0 means
// no timeout. It sends nothing.
func Connects(ctx context.Context, within time.Duration, host string) error {
	c, err := (&net.Dialer{Timeout: within}).DialContext(ctx, "tcp", host)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// notConnected records why no connection could be made.
func (x *Member) notConnected(err error) {
	x.Error, x.Cause = app.Readable(err.Error()), cause.Unreachable
	if errors.Is(err, connectionRefused) {
		x.Cause = cause.Refused
	}
}

// SelfReport is a problem that a member reports about itself, such as a full disk.
type SelfReport struct {
	Code cause.Code
	Text string
}

// reportedBy returns the problems that a member reports. It omits alarms and a missing leader.
// Members report these the way etcd does, and they are detected in other ways.
func reportedBy(m *pb.StatusResponse) (out []SelfReport) {
	for _, line := range m.GetErrors() {
		code, text := cause.OfReport(line)
		if code == "" && (line == rpctypes.ErrNoLeader.Error() || strings.Contains(line, "alarm:")) {
			continue
		}
		out = append(out, SelfReport{code, text})
	}
	return out
}

// texts joins the texts of reports.
func texts(list []SelfReport) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Text)
	}
	return strings.Join(out, "; ")
}

const (
	lagEntries = 10_000 // a larger lag is reported
	fullPart   = 0.8    // usage above this share of the quota is reported
)

// Judge determines the verdict, based only on the observed state.
func (s *State) Judge() {
	answer := slices.DeleteFunc(slices.Clone(s.Members), func(x *Member) bool {
		return x.Error != ""
	})
	wrong := func(format string, args ...any) {
		s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...))
	}
	switch {
	case NeedsLogin(s.Failure):
		wrong("log in, for example with --user: %s", app.Readable(s.Failure.Error()))
	case s.Failure != nil:
		wrong("it is not serving: %s", app.Readable(s.Failure.Error()))
	}
	newest := uint64(0)
	releases := make(map[string]bool)
	for _, x := range answer {
		newest = max(newest, x.applied)
		releases[cmp.Or(x.Release, x.Version)] = true
		if s.Cluster == "" {
			s.Cluster = fmt.Sprintf("%x", x.Cluster)
		}
	}
	for _, x := range s.Members {
		x.Behind = newest - x.applied
		switch {
		case x.Error != "":
			x.Behind = 0
			if x.Cause != cause.LoginRequired {
				wrong("%s does not respond: %s", x.Name, x.Error)
			}
		case fmt.Sprintf("%x", x.Cluster) != s.Cluster:
			wrong("%s belongs to another cluster, %x", x.Name, x.Cluster)
		case x.Leader == 0:
			wrong("%s has no leader", x.Name)
		case len(x.Reports) > 0:
			wrong("%s: %s", x.Name, app.Readable(texts(x.Reports)))
		case x.Behind > lagEntries:
			wrong("%s is %d entries behind", x.Name, x.Behind)
		case x.Quota > 0 && float64(x.State) > fullPart*float64(x.Quota):
			wrong("%s: the state uses %d%% of the quota", x.Name, x.State*100/x.Quota)
		}
	}
	s.checkOthers(wrong)
	for _, alarm := range s.alarms {
		wrong("alarm: %s", alarm)
	}
	if len(releases) > 1 {
		wrong("members run %d different releases: finish the upgrade", len(releases))
	}
	// Without the member list, the voters are unknown.
	if n := s.countVoters(); n > 0 && n%2 == 0 {
		wrong("%d voters tolerate no more failures than %d: add one or remove one", n, n-1)
	}
	s.Verdict = s.verdict()
}

func (s *State) verdict() string {
	switch {
	case NeedsLogin(s.Failure):
		return verdictUnknown
	case s.Failure != nil:
		return verdictDown
	case len(s.Reasons) > 0:
		return verdictDegraded
	default:
		return verdictHealthy
	}
}

// countVoters returns the number of voters, or 0 if there is no member list.
func (s *State) countVoters() (n int) {
	for _, x := range s.Members {
		if s.listed && x.Role != "learner" {
			n++
		}
	}
	return n
}

// NeedsLogin reports whether a call failed because it requires a valid login.
func NeedsLogin(err error) bool {
	for _, refusal := range []error{
		rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return grpcstatus.Code(err) == codes.Unauthenticated
}

// checkOthers checks the endpoints whose members are missing from the member list.
func (s *State) checkOthers(wrong func(format string, args ...any)) {
	for _, x := range s.Others {
		switch {
		case x.Error != "" || s.Cluster == "": // the cluster that it belongs to is unknown
		case fmt.Sprintf("%x", x.Cluster) != s.Cluster:
			wrong("%s belongs to another cluster, %x", x.Name, x.Cluster)
		case !slices.ContainsFunc(s.Members, func(m *Member) bool { return m.MemberID == x.MemberID }):
			wrong("%s is member %x, which is not in the cluster: was it removed, or restored "+
				"from a backup?", x.Name, x.MemberID)
		}
	}
}

func showClusterState(s *State) app.Answer {
	rows := func() (rows [][]string) {
		for _, x := range s.Members {
			row := []string{x.Name, x.ID, x.Endpoint, x.Role, "does not respond", "", "", ""}
			switch {
			case x.Cause == cause.LoginRequired:
				row[4] = "needs a login"
			case x.Error == "":
				row[4], row[5] = "responds in "+x.Took.String(), fmt.Sprint(x.Behind)
				row[6] = cmp.Or(x.Release, "etcd "+x.Version)
				row[7] = humanize.Bytes(uint64(x.State)) + " of " + humanize.Bytes(uint64(x.Quota))
			}
			if !s.listed { // only the endpoint is known
				row[1], row[2], row[3] = "", "", ""
			}
			rows = append(rows, row)
		}
		return rows
	}
	head := []string{"name", "ID", "endpoint", "role", "state", "behind", "release", "size"}
	return app.Answer{JSON: s, Simple: func(p *app.Page) {
		p.Printf("%s\n", s.Verdict)
		for _, r := range s.Reasons {
			p.Printf("  %s\n", r)
		}
		for _, row := range rows() {
			if row[5] != "" {
				row[5], row[6] = row[5]+" behind", "release "+row[6]
			}
			known := slices.DeleteFunc(row, func(cell string) bool { return cell == "" })
			p.Printf("%s\n", strings.Join(known, ", "))
		}
	}, Fields: func(p *app.Page) {
		p.Quoted("Verdict", s.Verdict)
		for _, r := range s.Reasons {
			p.Quoted("Reason", r)
		}
	}, Table: func() ([]string, [][]string) { return head, rows() }}
}

// errNoConnection means that no endpoint accepts a connection, so nothing was queried.
var errNoConnection = errors.New("no endpoint accepts connections")

// Member returns the member with the given ID, or nil.
func (s *State) Member(id uint64) *Member {
	for _, x := range s.Members {
		if x.MemberID == id {
			return x
		}
	}
	return nil
}

// Is reports whether the member has this name or ID.
func (x *Member) Is(name string) bool { return x.Name == name || x.ID == name }

// URLs returns all addresses of a member.
func (x *Member) URLs() []string {
	if x.URL == "" {
		return x.Peers
	}
	return append(slices.Clone(x.Peers), x.URL)
}
