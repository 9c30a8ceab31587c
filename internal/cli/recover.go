package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/rewind"
)

// exitFound is how recover ends if something is wrong that it has not put right.
const exitFound = 9

// What recover says in one word.
const (
	recoverNothing = "nothing to recover"
	recoverFound   = "found"
	recoverDone    = "done"
)

func (a *app) recoverCommand() *cobra.Command {
	r := &recovery{app: a}
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Finds out what disaster has happened, and puts it right with --yes",
		Long: `Looks at the running cluster, and with --data-dir at the data of the member of this
host, which must not run. It says what is wrong, what to check first, and what is to be done on
which host. It changes nothing without --yes. With it, it does what can be done from here, and
says what is left. No data are removed: what is replaced is kept beside, under a name that says
when.

It knows expired certificates, a quota that is used up, a member that does not answer, whose disk
is full or lost, whose data are damaged or rolled back to an older copy, or run twice, and a
majority that is lost for good. The members of the last have to be named (--lost): from here nobody
can tell them from members that are only out of reach. Endpoints of several clusters are refused,
and so is a directory on which a member of another cluster runs.

Exit codes: 0 nothing to recover, or all of it is done; 9 something is wrong, and not yet put
right; 1 the look or the repair failed.`,
		Example: "  leasehold recover --endpoints host1:2379,host2:2379,host3:2379\n" +
			"  leasehold recover --endpoints host1:2379 --data-dir /var/lib/leasehold --yes\n" +
			"  leasehold recover --data-dir /var/lib/leasehold --lost b,c --yes",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return r.run() },
	}
	fs := cmd.Flags()
	fs.BoolVar(&r.yes, "yes", false, "do what can be done from here")
	fs.StringVar(&r.dataDir, "data-dir", "", "the data directory of the member of this host")
	fs.StringVar(&r.member, "member", "", "name or ID of the member of this host, if its "+
		"data do not say it")
	fs.StringSliceVar(&r.lost, "lost", nil, "names or IDs of the members whose data are lost for good")
	return cmd
}

// recovery is one call of recover.
type recovery struct {
	*app
	yes             bool
	dataDir, member string
	lost            []string

	spec    *clientv3.ConfigSpec
	dir     *rewind.Directory // nil without --data-dir
	cluster *clusterState
	own     *memberState // that of the directory, if it is told of already
	expired []badCertificate
	found   []*disaster
	notes   []string // what is no disaster, and worth to be known
}

// disaster is one thing that is wrong.
type disaster struct {
	Cause cause.Code `json:"cause"`
	What  string     `json:"what"`
	Facts []string   `json:"facts"`
	// Check is what to look at first: perhaps there is no disaster.
	Check []string `json:"check_first"`
	Steps []step   `json:"steps"`
	Done  []string `json:"done"`

	act func(*disaster) error // the steps that are ours; nil if there are none
}

// step is one thing to do.
type step struct {
	Where string `json:"where"` // on which host
	Do    string `json:"do"`    // a command, or a sentence
	Own   bool   `json:"own"`   // --yes does it
}

func newDisaster(code cause.Code, what string, facts ...string) *disaster {
	return &disaster{
		Cause: code, What: what, Facts: facts, Check: []string{}, Steps: []step{}, Done: []string{},
	}
}

// own adds a step that --yes does.
func (d *disaster) own(format string, args ...any) {
	d.Steps = append(d.Steps, step{"here", fmt.Sprintf(format, args...), true})
}

// on adds a step for a person, on a host.
func (d *disaster) on(where, format string, args ...any) {
	d.Steps = append(d.Steps, step{where, fmt.Sprintf(format, args...), false})
}

// first adds something to look at before anything is done.
func (d *disaster) first(format string, args ...any) {
	d.Check = append(d.Check, fmt.Sprintf(format, args...))
}

// did notes that a step is done.
func (d *disaster) did(format string, args ...any) {
	d.Done = append(d.Done, fmt.Sprintf(format, args...))
}

// withClient returns steps that need a client of the cluster.
func (r *recovery) withClient(
	do func(context.Context, *clientv3.Client, *disaster) error,
) func(*disaster) error {
	return func(d *disaster) error {
		c, err := r.dial(r.spec)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := r.patientContext()
		defer cancel()
		return do(ctx, c, d)
	}
}

func (r *recovery) run() error {
	spec, err := r.prepare()
	if err != nil {
		return err
	}
	r.spec = spec
	if err := r.lookAtDirectory(); err != nil {
		return err
	}
	if len(r.spec.Endpoints) == 0 {
		return badArgs("--endpoints names none")
	}
	if r.cluster, err = r.lookAtCluster(); err != nil {
		return err
	}
	if err := r.diagnose(); err != nil {
		return err
	}
	r.note()
	var failed error
	open := len(r.found)
	for _, d := range r.found {
		if r.yes && d.act != nil && failed == nil {
			if failed = d.act(d); failed == nil {
				open--
			}
		}
	}
	verdict := recoverFound
	switch {
	case len(r.found) == 0:
		verdict = recoverNothing
	case open == 0:
		verdict = recoverDone
	}
	if err := r.show(showRecovery(verdict, r.found, r.notes)); err != nil {
		return err
	}
	if failed == nil && open > 0 {
		return &exitError{code: exitFound}
	}
	return failed
}

// diagnose says what is wrong. The error says that the flags ask for what must not be done.
func (r *recovery) diagnose() error {
	r.found = []*disaster{}
	if len(r.expired) > 0 {
		// A member that cannot be asked for that reason is not called lost.
		r.certificates()
		return nil
	}
	if r.mixed() {
		return nil
	}
	if r.cluster.failure == nil && len(r.lost) > 0 {
		return badArgs("the cluster serves, so its majority is not lost: leave --lost out")
	}
	if r.dir != nil {
		if told, err := r.ofDirectory(); told || err != nil {
			return err
		}
	}
	if r.cluster.failure != nil {
		r.unserved()
		r.reported()
		return nil
	}
	r.quota()
	r.reported()
	r.differing()
	r.silent()
	return nil
}

// note adds what status would say of a cluster of which there is nothing to recover, and which
// endpoints nobody knows.
func (r *recovery) note() {
	if len(r.found) == 0 {
		r.notes = append(r.notes, r.cluster.Reasons...)
	}
	for _, x := range r.cluster.others {
		if x.Error != "" {
			r.notes = append(r.notes, "no member of the cluster has the address "+nameOf(x)+
				", and nobody answers there: "+x.Error)
		}
	}
}

// endpointsOf are addresses of members that answer, as --join and --endpoints take them.
func (r *recovery) endpointsOf() string {
	var out []string
	for _, x := range r.cluster.Members {
		if x.Error == "" {
			out = append(out, cmp.Or(x.url, x.Endpoint))
		}
	}
	if len(out) == 0 {
		return "ADDRESS"
	}
	return strings.Join(out, ",")
}

// rejoin is the command that starts a member anew, on an empty directory.
func (r *recovery) rejoin(x *memberState) string {
	return r.serve(x, "DIR") + " --join " + r.endpointsOf() + " --replace"
}

// serve is the command that starts a member.
func (r *recovery) serve(x *memberState, dir string) string {
	clients := cmp.Or(x.url, "URL")
	peers := cmp.Or(strings.Join(x.peers, ","), "URL")
	return fmt.Sprintf("leasehold serve --name %s --data-dir %s --listen-client-urls %s "+
		"--advertise-client-urls %s --listen-peer-urls %s --initial-advertise-peer-urls %s",
		shellWord(x.Name), shellWord(dir), clients, clients, peers, peers)
}

// shellWord is a word as a shell reads it.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("-_./:,=@%+", c)
	}
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool { return !plain(c) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// lines are its parts, each with its text.
func (d *disaster) lines() (out [][2]string) {
	for _, f := range d.Facts {
		out = append(out, [2]string{"found", f})
	}
	for _, c := range d.Check {
		out = append(out, [2]string{"check first", c})
	}
	for _, s := range d.Steps {
		where := "to do "
		if !strings.HasPrefix(s.Where, "here") {
			where += "on "
		}
		where += s.Where
		if s.Own {
			where += " (--yes does it)"
		}
		out = append(out, [2]string{where, s.Do})
	}
	for _, s := range d.Done {
		out = append(out, [2]string{"done", s})
	}
	return out
}

func showRecovery(verdict string, found []*disaster, notes []string) answer {
	return answer{json: struct {
		Verdict   string      `json:"verdict"`
		Disasters []*disaster `json:"disasters"`
		Notes     []string    `json:"notes,omitempty"`
	}{verdict, found, notes}, simple: func(p *page) {
		p.printf("%s\n", verdict)
		for _, d := range found {
			p.printf("%s\n", d.What)
			for _, l := range d.lines() {
				p.printf("  %s: %s\n", l[0], harmless(l[1]))
			}
		}
		for _, n := range notes {
			p.printf("note: %s\n", harmless(n))
		}
	}, fields: func(p *page) {
		p.quoted("Verdict", verdict)
		for _, d := range found {
			p.quoted("Disaster", d.What)
			for _, l := range d.lines() {
				p.quoted(l[0], l[1])
			}
		}
		for _, n := range notes {
			p.quoted("Note", n)
		}
	}, table: func() (head []string, rows [][]string) {
		for _, d := range found {
			for _, l := range d.lines() {
				rows = append(rows, []string{d.What, l[0], harmless(l[1])})
			}
		}
		for _, n := range notes {
			rows = append(rows, []string{"", "note", harmless(n)})
		}
		return []string{"disaster", "part", "text"}, rows
	}}
}

// voters are the members with a vote, and of those the ones that answer.
func (s *clusterState) voters() (all, answer []*memberState) {
	all = slices.DeleteFunc(slices.Clone(s.Members), func(x *memberState) bool {
		return x.Role == "learner"
	})
	answer = slices.DeleteFunc(slices.Clone(all), func(x *memberState) bool { return x.Error != "" })
	return all, answer
}
