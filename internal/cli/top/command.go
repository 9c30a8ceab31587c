// Package top is the screen of "leasehold top". It shows snapshots of a cluster on a terminal, or
// as a single page.
//
// The remaining time shown for a lease is the last value from the cluster minus the time since the
// request for it was sent. So unless a lease is revoked, it lives at least that long. Countdowns
// stop while the cluster does not respond.
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	terminal "golang.org/x/term"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/fault"
)

// maxLeases is the maximum number of leases in a snapshot. To see other leases, users can select a
// prefix or an owner.
const maxLeases = 20_000

// snapshot is the state of the cluster at one instant.
type snapshot struct {
	cluster.State
	at      time.Time          // time of the request
	metrics map[string]metrics // by member ID; only of members whose metrics are available
	leases  []leases.Info
	cut     bool   // whether leases were omitted
	err     string // why leases could not be read, or ""
}

// topRun is one run of "leasehold top".
type topRun struct {
	*app.App
	pane     string
	filter   leases.Filter
	interval time.Duration
	once     bool
	rows     int

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
			fs.StringVar(&t.pane, "pane", panes[0].name,
				"list to start with: "+strings.Join(paneNames(), ", "))
			fs.StringVar(&t.filter.NamePrefix, "prefix", "", "only leases whose names begin with this prefix")
			fs.StringVar(&t.filter.Owner, "owner", "", "only leases with this owner")
			fs.DurationVar(&t.interval, "interval", 2*time.Second, "time between two snapshots")
			fs.BoolVar(&t.once, "once", false, "print one page and exit")
			fs.IntVar(&t.rows, "rows", 20, "number of rows per page")
		},
		Check: t.check,
		Run:   func(*cobra.Command, []string, []string) error { return t.run() },
	})
	app.CompleteFlag(cmd, "pane", paneNames()...)
	return cmd
}

// check returns an error for invalid flags.
func (t *topRun) check([]string) error {
	switch {
	case !slices.Contains(paneNames(), t.pane):
		return app.BadArgs("--pane %q is not one of %s", t.pane, strings.Join(paneNames(), ", "))
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
	ctx, end := t.UntilSignal()
	defer end()
	m := newModel(spec.Endpoints[0], t.pane, t.interval, func() tea.Msg { return t.ask(ctx) })
	if t.once || !t.hasScreen() {
		return t.page(ctx, m)
	}
	return t.watch(ctx, m)
}

// page prints one page. It first takes two snapshots, which it needs to compute rates.
func (t *topRun) page(ctx context.Context, m *model) error {
	for _, wait := range []time.Duration{0, t.interval} {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch s := t.ask(ctx).(type) {
		case error:
			return s
		case snapshot:
			if s.err != "" {
				return app.WithCode(app.ExitConnection, fmt.Errorf("the cluster does not respond: %s", s.err))
			}
			m.take(s)
		}
	}
	t.Say("%s", m.page(t.rows))
	return nil
}

// watch shows the screen until the user or a signal ends the program.
func (t *topRun) watch(ctx context.Context, m *model) error {
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(t.Stdin), tea.WithOutput(t.Stdout),
		tea.WithEnvironment(t.Env), tea.WithoutSignalHandler())
	go t.follow(ctx, p.Send)
	_, err := p.Run()
	if err != nil && ctx.Err() == nil {
		return err
	}
	return m.err
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
		w, err := t.client.LeaseEvents(ctx,
			leases.Watch{NamePrefix: t.filter.NamePrefix, Owner: t.filter.Owner})
		if err == nil {
			for u := range w.Updates(ctx) {
				send(u.Events)
			}
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
	s := snapshot{at: time.Now()}
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() { t.look(&s) })
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, t.Flags.CommandTimeout)
		defer cancel()
		for l, err := range t.client.List(ctx, t.filter) {
			if failed = err; err != nil || len(s.leases) == maxLeases {
				s.cut = err == nil
				return
			}
			s.leases = append(s.leases, l)
		}
	})
	wg.Wait()
	switch {
	case errors.Is(failed, client.ErrNotLeasehold), errors.Is(failed, client.ErrPermissionDenied),
		errors.Is(failed, client.ErrNotLoggedIn), errors.Is(failed, client.ErrInvalid):
		return app.WithCode(app.ExitConnection, failed)
	case failed != nil:
		why, found := app.DialErrorIn(failed.Error())
		if s.err = why; !found {
			s.err = fault.Reason(failed)
		}
	}
	return s
}

// look queries the status and metrics of all members.
func (t *topRun) look(to *snapshot) {
	to.State = *t.lookout.Look()
	to.Judge()
	to.QueryReleases(t.pages)
	to.metrics = make(map[string]metrics)
	var mu sync.Mutex // guards to.metrics
	var wg sync.WaitGroup
	for _, x := range to.Members {
		if x.Error != "" {
			continue
		}
		wg.Go(func() {
			text, err := t.pages.Get(x, "/metrics")
			if m := metricsIn(text); err == nil && m != nil {
				mu.Lock()
				defer mu.Unlock()
				to.metrics[x.ID] = m
			}
		})
	}
	wg.Wait()
}
