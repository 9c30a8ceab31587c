package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	terminal "golang.org/x/term"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/fault"
)

// topRun is one run of "leasehold top".
type topRun struct {
	*app.App
	pane          string
	prefix, owner string
	interval      time.Duration
	once          bool
	rows          int

	client  *client.Client
	lookout *cluster.Prober
	pages   cluster.MemberPages
}

// Command returns the command "leasehold top".
func Command(a *app.App) *cobra.Command {
	t := &topRun{App: a}
	cmd := a.Make(app.Command{
		Use: "top", Short: "Show leases, lease events, rates and members live",
		Long: `Show leases ordered by the time they have left, events of leases, and members with
their lag and log sync p99, live on a terminal. Press ? for help.

The time left is counted down from the cluster's last report. While the cluster does not respond,
the countdown stops, and the screen shows how long there has been no response.

With --once, or if standard output is not a terminal, print one page and exit. NO_COLOR turns colors
off.`,
		Example: "top --prefix jobs/\ntop --once --rows 50",
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&t.pane, "pane", panes[0],
				"list to start with: "+strings.Join(panes, ", "))
			fs.StringVar(&t.prefix, "prefix", "", "only leases whose names begin with this prefix")
			fs.StringVar(&t.owner, "owner", "", "only leases with this owner")
			fs.DurationVar(&t.interval, "interval", 2*time.Second, "time between two snapshots")
			fs.BoolVar(&t.once, "once", false, "print one page and exit")
			fs.IntVar(&t.rows, "rows", 20, "number of rows per page")
		},
		Run: func(*cobra.Command, []string, []string) error { return t.run() },
	})
	app.CompleteFlag(cmd, "pane", panes...)
	return cmd
}

// check returns an error for invalid flags.
func (t *topRun) check() error {
	switch {
	case !slices.Contains(panes, t.pane):
		return app.BadArgs("--pane %q is not one of %s", t.pane, strings.Join(panes, ", "))
	case t.interval < 100*time.Millisecond:
		return app.BadArgs("--interval must be at least 100ms")
	case t.rows < 1:
		return app.BadArgs("--rows must be at least 1")
	case t.Flags.Format != "simple":
		return app.Unsupported(t.Flags.Format)
	}
	return nil
}

func (t *topRun) run() error {
	if err := t.check(); err != nil {
		return err
	}
	spec, err := t.Prepare()
	if err != nil {
		return err
	}
	secure, err := app.TLSOf(spec)
	if err != nil {
		return err
	}
	if t.client, err = t.DialNative(spec); err != nil {
		return err
	}
	defer t.client.Close()
	t.lookout = cluster.NewProber(t.App, spec)
	t.pages = cluster.NewMemberPages(secure, t.Flags.CommandTimeout)
	defer t.lookout.Close()
	ctx, cancel := context.WithCancelCause(t.Background())
	defer cancel(nil)
	defer t.CancelBySignal(cancel).Stop()
	m := newModel(Options{
		Title: spec.Endpoints[0], Pane: t.pane, Interval: t.interval,
		Ask: func() tea.Msg { return t.ask(ctx) },
	})
	if t.once || !t.hasScreen() {
		return t.page(ctx, m)
	}
	return t.watch(ctx, m)
}

// page prints one page. It first takes two snapshots, which it needs to compute rates.
func (t *topRun) page(ctx context.Context, m *Model) error {
	for i := range 2 {
		if i > 0 {
			select {
			case <-time.After(t.interval):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		switch s := t.ask(ctx).(type) {
		case Failed:
			return s.Err
		case Snapshot:
			if s.Err != "" {
				return app.WithCode(app.ExitConnection, fmt.Errorf("the cluster does not respond: %s", s.Err))
			}
			m.Take(s)
		}
	}
	t.Say("%s", m.Page(t.rows))
	return nil
}

// watch shows the screen until the user or a signal ends the program.
func (t *topRun) watch(ctx context.Context, m *Model) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(t.Stdin), tea.WithOutput(t.Stdout),
		tea.WithEnvironment(t.Env), tea.WithoutSignalHandler())
	go t.follow(ctx, p.Send)
	_, err := p.Run()
	if err != nil && ctx.Err() == nil {
		return err
	}
	return m.Err()
}

// hasScreen reports whether standard input and standard output are terminals.
func (t *topRun) hasScreen() bool {
	in, ok := t.Stdin.(*os.File)
	out, isFile := t.Stdout.(*os.File)
	return ok && isFile && t.Getenv("TERM") != "dumb" &&
		terminal.IsTerminal(int(in.Fd())) && terminal.IsTerminal(int(out.Fd()))
}

// follow sends lease events to the screen.
func (t *topRun) follow(ctx context.Context, send func(tea.Msg)) {
	for ctx.Err() == nil {
		w, err := t.client.LeaseEvents(ctx, leases.Watch{NamePrefix: t.prefix, Owner: t.owner})
		for err == nil {
			var u leases.Update
			if u, err = w.Next(ctx); err == nil {
				send(u.Events)
			}
		}
		if w != nil {
			w.Close()
		}
		select { // the snapshots report the error
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// ask takes a snapshot. If that fails, the message is an error.
func (t *topRun) ask(ctx context.Context) tea.Msg {
	s := Snapshot{At: time.Now()}
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() { t.look(&s) })
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, t.Flags.CommandTimeout)
		defer cancel()
		for l, err := range t.client.List(ctx, leases.Filter{NamePrefix: t.prefix, Owner: t.owner}) {
			if failed = err; err != nil {
				return
			}
			if s.Cut = len(s.Leases) == maxLeases; s.Cut {
				return
			}
			s.Leases = append(s.Leases, l)
		}
	})
	wg.Wait()
	for _, final := range []error{
		client.ErrNotLeasehold, client.ErrPermissionDenied, client.ErrNotLoggedIn, client.ErrInvalid,
	} {
		if errors.Is(failed, final) {
			return Failed{Err: app.WithCode(app.ExitConnection, failed)}
		}
	}
	if failed != nil {
		why, found := app.DialErrorIn(failed.Error())
		if s.Err = why; !found {
			s.Err = fault.Reason(failed)
		}
	}
	return s
}

// look queries the status and metrics of all members.
func (t *topRun) look(to *Snapshot) {
	s := t.lookout.Look()
	s.Judge()
	to.Verdict, to.Reasons, to.Members = s.Verdict, s.Reasons, make([]Member, len(s.Members))
	s.QueryReleases(t.pages)
	var wg sync.WaitGroup
	for i, x := range s.Members {
		m := &to.Members[i]
		*m = Member{
			Name: x.Name, ID: x.ID, Role: x.Role, Release: x.Release, Error: x.Error,
			Took: time.Duration(x.Took), Behind: x.Behind, State: x.State, Quota: x.Quota,
		}
		if x.Error == "" {
			wg.Go(func() {
				if text, err := t.pages.Get(x, "/metrics"); err == nil {
					m.Figures = figuresIn(text)
				}
			})
		}
	}
	wg.Wait()
}

// figuresIn parses the output of /metrics. It returns nil if the text is invalid.
func figuresIn(text []byte) *Figures {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil || families["leasehold_leases"] == nil {
		return nil
	}
	sum := func(name, label string) (n float64) {
		for _, m := range families[name].GetMetric() {
			if label == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label {
				n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return n
	}
	return &Figures{
		Leases:     sum("leasehold_leases", ""),
		Granted:    sum("leasehold_leases_granted_total", ""),
		Expired:    sum("leasehold_leases_expired_total", ""),
		Revoked:    sum("leasehold_leases_revoked_total", ""),
		Renewed:    sum("leasehold_lease_renewals_total", "renewed"),
		NearMisses: sum("leasehold_lease_renewal_near_misses_total", ""),
		Overdue: time.Duration(sum("leasehold_lease_overdue_seconds", "") *
			float64(time.Second)),
		Sync: histogramIn(families["leasehold_log_sync_duration_seconds"]),
		Late: histogramIn(families["leasehold_lease_expiry_lateness_seconds"]),
	}
}

// histogramIn converts a histogram that has no labels.
func histogramIn(f *dto.MetricFamily) (h Histogram) {
	if len(f.GetMetric()) == 0 {
		return h
	}
	all := f.GetMetric()[0].GetHistogram()
	counts := map[float64]uint64{math.Inf(1): all.GetSampleCount()}
	for _, b := range all.GetBucket() {
		counts[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	for _, bound := range slices.Sorted(maps.Keys(counts)) {
		h.Bounds = append(h.Bounds, bound)
		h.Counts = append(h.Counts, counts[bound])
	}
	return h
}
