package cli

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
	"leasehold.dev/internal/cli/top"
	"leasehold.dev/internal/fault"
)

// topRun is one run of top.
type topRun struct {
	*app
	pane          string
	prefix, owner string
	interval      time.Duration
	once          bool
	rows          int

	client  *client.Client
	lookout *lookout
	pages   memberPages
}

func (a *app) topCommand() *cobra.Command {
	t := &topRun{app: a}
	cmd := a.make(command{
		use: "top", short: "Show leases, ends, rates and members live",
		long: `Show, live on a terminal, leases in the order of their ends; ends that are coming and
events of leases; members with their lag and the p99 of log syncs. Press ? for the keys.

The time left of a lease is what the cluster reported last, less the time since. While the cluster
does not answer, nothing is counted down, and the screen shows since when.

With --once, or if standard output is no terminal, print one page and end. NO_COLOR switches
colours off.`,
		example: "top --prefix jobs/\ntop --once --rows 50",
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&t.pane, "pane", top.Panes[0],
				"list to begin with: "+strings.Join(top.Panes, ", "))
			fs.StringVar(&t.prefix, "prefix", "", "only leases whose names begin with this")
			fs.StringVar(&t.owner, "owner", "", "only leases of this owner")
			fs.DurationVar(&t.interval, "interval", 2*time.Second, "time between two snapshots")
			fs.BoolVar(&t.once, "once", false, "print one page and end")
			fs.IntVar(&t.rows, "rows", 20, "rows of the list on a page")
		},
		run: func(*cobra.Command, []string, []string) error { return t.run() },
	})
	completeFlag(cmd, "pane", top.Panes...)
	return cmd
}

// check returns an error for wrong flags.
func (t *topRun) check() error {
	switch {
	case !slices.Contains(top.Panes, t.pane):
		return badArgs("--pane %q is none of %s", t.pane, strings.Join(top.Panes, ", "))
	case t.interval < 100*time.Millisecond:
		return badArgs("--interval must be at least 100ms")
	case t.rows < 1:
		return badArgs("--rows must be at least 1")
	case t.flags.format != "simple":
		return unsupported(t.flags.format)
	}
	return nil
}

func (t *topRun) run() error {
	if err := t.check(); err != nil {
		return err
	}
	spec, err := t.prepare()
	if err != nil {
		return err
	}
	secure, err := tlsOf(spec)
	if err != nil {
		return err
	}
	if t.client, err = t.dialNative(spec); err != nil {
		return err
	}
	defer t.client.Close()
	t.lookout, t.pages = t.newLookout(spec), newMemberPages(secure, t.flags.commandTimeout)
	defer t.lookout.close()
	ctx, cancel := context.WithCancelCause(t.context())
	defer cancel(nil)
	defer t.cancelBySignal(cancel).stop()
	m := top.New(top.Options{
		Title: spec.Endpoints[0], Pane: t.pane, Interval: t.interval,
		Ask: func() tea.Msg { return t.ask(ctx) },
	})
	if t.once || !t.hasScreen() {
		return t.page(ctx, m)
	}
	return t.watch(ctx, m)
}

// page prints one page, after two snapshots: so there are rates.
func (t *topRun) page(ctx context.Context, m *top.Model) error {
	for i := range 2 {
		if i > 0 {
			select {
			case <-time.After(t.interval):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		switch s := t.ask(ctx).(type) {
		case top.Failed:
			return s.Err
		case top.Snapshot:
			if s.Err != "" {
				return withCode(exitConnection, fmt.Errorf("the cluster does not answer: %s", s.Err))
			}
			m.Take(s)
		}
	}
	t.say("%s", m.Page(t.rows))
	return nil
}

// watch shows the screen until the user, or a signal, ends it.
func (t *topRun) watch(ctx context.Context, m *top.Model) error {
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

// hasScreen reports whether there is a terminal to draw on, and to press keys on.
func (t *topRun) hasScreen() bool {
	in, ok := t.Stdin.(*os.File)
	out, isFile := t.Stdout.(*os.File)
	return ok && isFile && t.getenv("TERM") != "dumb" &&
		terminal.IsTerminal(int(in.Fd())) && terminal.IsTerminal(int(out.Fd()))
}

// follow sends the events of leases to the screen.
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
		select { // snapshots say why there is no answer
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// ask takes a snapshot, or says why none can be had.
func (t *topRun) ask(ctx context.Context) tea.Msg {
	s := top.Snapshot{At: time.Now()}
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() { t.look(&s) })
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, t.flags.commandTimeout)
		defer cancel()
		for l, err := range t.client.List(ctx, leases.Filter{NamePrefix: t.prefix, Owner: t.owner}) {
			if failed = err; err != nil {
				return
			}
			if s.Cut = len(s.Leases) == top.MaxLeases; s.Cut {
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
			return top.Failed{Err: withCode(exitConnection, failed)}
		}
	}
	if failed != nil {
		why, found := dialErrorIn(failed.Error())
		if s.Err = why; !found {
			s.Err = fault.Reason(failed)
		}
	}
	return s
}

// look asks all members how they are, and for their metrics.
func (t *topRun) look(to *top.Snapshot) {
	s := t.lookout.look()
	s.judge()
	to.Verdict, to.Reasons, to.Members = s.Verdict, s.Reasons, make([]top.Member, len(s.Members))
	s.askReleases(t.pages)
	var wg sync.WaitGroup
	for i, x := range s.Members {
		m := &to.Members[i]
		*m = top.Member{
			Name: x.Name, ID: x.ID, Role: x.Role, Release: x.Release, Error: x.Error,
			Took: time.Duration(x.Took), Behind: x.Behind, State: x.State, Quota: x.Quota,
		}
		if x.Error == "" {
			wg.Go(func() {
				if text, err := t.pages.get(x, "/metrics"); err == nil {
					m.Figures = figuresIn(text)
				}
			})
		}
	}
	wg.Wait()
}

// figuresIn reads what /metrics says, nil if it says nothing that can be read.
func figuresIn(text []byte) *top.Figures {
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
	return &top.Figures{
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

// histogramIn reads a histogram that has no labels.
func histogramIn(f *dto.MetricFamily) (h top.Histogram) {
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
