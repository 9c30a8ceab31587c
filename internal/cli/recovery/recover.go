// Package recovery implements "leasehold recover". It diagnoses what has happened to a cluster, and
// prints what to check and what to do on which host. With --yes, it performs the steps that can be
// done from here. The table in disasters.go lists the disasters that it can recognize. The code in
// diagnose.go detects them, and the code in repair.go repairs them.
package recovery

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// The verdicts of the recover command.
const (
	recoverNothing = "nothing to recover"
	recoverFound   = "found"
	recoverDone    = "done"
)

// Command returns the command "leasehold recover".
func Command(a *app.App) *cobra.Command {
	r := &recovery{App: a}
	return a.Make(app.Command{
		Use: "recover", Short: "Diagnose a cluster and repair it with --yes",
		Long: `Examine the running cluster and, with --data-dir, the data of this host's member,
which must not be running. Print what is wrong, what to check first, and what to do on which host.
Nothing is changed without --yes. With --yes, recover repairs what it can from this host and prints
the steps that remain. It deletes no data: what it replaces is renamed, with the time in the name.

It detects expired certificates, an exhausted quota, unresponsive members, disks that are full or
lost, data that is damaged, rolled back to an older copy or in use by two processes, and a majority
that is lost for good. Name lost members with --lost: they cannot be told apart from unreachable
ones. It rejects endpoints of different clusters, and a directory that a member of another cluster
is using.

Exit codes: 0 nothing to recover, or everything repaired; 9 something is wrong and not yet repaired;
1 the diagnosis or the repair failed.`,
		Example: "recover --endpoints host1:2379,host2:2379,host3:2379\n" +
			"recover --endpoints host1:2379 --data-dir /var/lib/leasehold --yes\n" +
			"recover --data-dir /var/lib/leasehold --lost b,c --yes",
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&r.yes, "yes", false, "repair what can be repaired from this host")
			fs.StringVar(&r.dataDir, "data-dir", "", "data directory of the member on this host")
			fs.StringVar(&r.member, "member", "",
				"name or ID of the member on this host, if its data does not contain it")
			fs.StringSliceVar(&r.lost, "lost", nil,
				"names or IDs of the members whose data is lost for good")
		},
		Run: func(*cobra.Command, []string, []string) error { return r.run() },
	})
}

// recovery is one run of the recover command.
type recovery struct {
	*app.App
	yes             bool
	dataDir, member string
	lost            []string

	spec    *clientv3.ConfigSpec
	dir     *rewind.Directory // nil without --data-dir
	cluster *cluster.State
	// own is the directory's member as listed by the serving cluster. If the directory is sound and
	// no majority is serving, the directory's list is used, and others are the other members in it.
	// own is nil if the member is not listed.
	own     *cluster.Member
	others  []*cluster.Member
	expired []badCertificate
	found   []*disaster
}

// disaster is a disaster that recover has diagnosed.
type disaster struct {
	Cause cause.Code `json:"cause"`
	What  string     `json:"what"`
	Facts []string   `json:"facts"`
	// Check lists what to check first, because it might turn out that there is no disaster.
	Check []string `json:"check_first"`
	Steps []step   `json:"steps"`
	Done  []string `json:"done"`

	act func(*recovery, *disaster) error // performs the steps marked Own; nil if there are none
}

// step is one step of a repair.
type step struct {
	Where string `json:"where"` // host on which to do it
	Do    string `json:"do"`    // command or sentence
	Own   bool   `json:"own"`   // performed by --yes
}

func (r *recovery) run() error {
	spec, err := r.Prepare()
	if err != nil {
		return err
	}
	if r.Flags.Format != "simple" && r.Flags.Format != "json" {
		return app.Unsupported(r.Flags.Format) // before anything is changed
	}
	r.spec = spec
	if err := r.lookAtDirectory(); err != nil {
		return err
	}
	if len(r.spec.Endpoints) == 0 {
		return app.BadArgs("--endpoints is empty")
	}
	if err := r.queryCluster(); err != nil {
		return err
	}
	if err := r.diagnose(); err != nil {
		return err
	}
	var failed error
	open := len(r.found)
	for _, d := range r.found {
		if r.yes && d.act != nil && failed == nil {
			if failed = d.act(r, d); failed == nil {
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
	if err := r.Show(showRecovery(verdict, r.found, r.notes())); err != nil {
		return err
	}
	if failed == nil && open > 0 {
		return app.Reported(app.ExitFound)
	}
	return failed
}

// notes returns findings that are not disasters: the status verdict on a cluster that needs no
// recovery, the process that has the directory open, and endpoints that do not belong to members.
func (r *recovery) notes() (out []string) {
	if len(r.found) == 0 {
		out = append(out, r.cluster.Reasons...)
	}
	switch {
	case !r.serves() || r.dir == nil:
	case r.is(rewind.Running) && !r.ofAnother() && (r.own != nil || r.dir.Member == 0):
		out = append(out, r.user())
	case r.is(rewind.Empty) && r.own == nil:
		out = append(out, r.dir.Path+" has no data, and all members respond: the directory is for "+
			"a new member, or --data-dir is wrong")
	}
	for _, x := range r.cluster.Others {
		if x.Error != "" {
			out = append(out, "no member of the cluster has the address "+nameOf(x)+", and nothing "+
				"responds there: "+x.Error)
		}
	}
	return out
}

// endpointsOf returns the addresses of members that respond, in the format of --join and
// --endpoints.
func (r *recovery) endpointsOf() string {
	var out []string
	for _, x := range r.cluster.Members {
		if x.Error == "" {
			out = append(out, cmp.Or(x.URL, x.Endpoint))
		}
	}
	if len(out) == 0 {
		return "ADDRESS"
	}
	return strings.Join(out, ",")
}

// rejoin returns the command that starts x as a new member with an empty directory.
func (r *recovery) rejoin(x *cluster.Member) string {
	return r.serve(x, "DIR") + " --join " + r.endpointsOf() + " --replace"
}

// serve returns the command that starts x.
func (r *recovery) serve(x *cluster.Member, dir string) string {
	clients := cmp.Or(x.URL, "URL")
	peers := cmp.Or(strings.Join(x.Peers, ","), "URL")
	return fmt.Sprintf("leasehold serve --name %s --data-dir %s --listen-client-urls %s "+
		"--advertise-client-urls %s --listen-peer-urls %s --initial-advertise-peer-urls %s",
		shellWord(x.Name), shellWord(dir), clients, clients, peers, peers)
}

// shellWord quotes word for a shell if necessary.
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

// print prints each text with the label of its section.
func (d *disaster) print(p *app.Page) {
	section := func(label string, texts ...string) {
		for _, text := range texts {
			p.Printf("  %s: %s\n", label, app.Harmless(text))
		}
	}
	p.Printf("%s\n", d.What)
	section("found", d.Facts...)
	section("check first", d.Check...)
	for _, s := range d.Steps {
		label := "to do on " + s.Where
		if strings.HasPrefix(s.Where, "here") {
			label = "to do " + s.Where
		}
		if s.Own {
			label += " (--yes does it)"
		}
		section(label, s.Do)
	}
	section("done", d.Done...)
}

func showRecovery(verdict string, found []*disaster, notes []string) app.Answer {
	return app.Answer{JSON: struct {
		Verdict   string      `json:"verdict"`
		Disasters []*disaster `json:"disasters"`
		Notes     []string    `json:"notes,omitempty"`
	}{verdict, found, notes}, Simple: func(p *app.Page) {
		p.Printf("%s\n", verdict)
		for _, d := range found {
			d.print(p)
		}
		for _, n := range notes {
			p.Printf("note: %s\n", app.Harmless(n))
		}
	}}
}
