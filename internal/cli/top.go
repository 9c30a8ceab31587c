package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/top"
)

// topFlags say what top shows.
type topFlags struct {
	pane          string
	prefix, owner string
	interval      time.Duration
	once          bool
	rows          int
}

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Shows live who holds what, which ends are coming, who waits, and how members are",
		Long: `Shows live, on a terminal, leases, and how many there are by the beginning of their
names and by owner; ends that are coming, and those that came; wait queues; members,
their lag and how long their disks take to sync. Press ? for the keys.

What is left of a lease is what the cluster said last, less the time since. While the
cluster does not answer nothing is counted down, and the screen says since when.

With --once, or if the standard output is no terminal, it prints one page and ends. So it
does with -o json, where the page is values for programs.
NO_COLOR switches colours off.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.top(&f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.pane, "pane", top.PaneNames[0],
		"which list to begin with: "+strings.Join(top.PaneNames, ", "))
	fs.StringVar(&f.prefix, "prefix", "",
		"Only leases whose names, and wait queues whose keys, begin with this")
	fs.StringVar(&f.owner, "owner", "", "Only leases of this owner")
	fs.DurationVar(&f.interval, "interval", 2*time.Second, "how often members are asked how they are")
	fs.BoolVar(&f.once, "once", false, "print one page and end")
	fs.IntVar(&f.rows, "rows", 20, "how many rows of the list a page has")
	completeFlag(cmd, "pane", top.PaneNames...)
	return cmd
}

// check says what is wrong with the flags.
func (f *topFlags) check() error {
	switch {
	case !slices.Contains(top.PaneNames, f.pane):
		return badArgs("--pane %q is none of %s", f.pane, strings.Join(top.PaneNames, ", "))
	case f.interval < 100*time.Millisecond:
		return badArgs("--interval must be at least 100ms")
	case f.rows < 1:
		return badArgs("--rows must be at least 1")
	}
	return nil
}

func (a *app) top(f *topFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	t, err := a.newTop(f)
	if err != nil {
		return err
	}
	defer t.close()
	ctx, cancel := context.WithCancelCause(a.context())
	defer cancel(nil)
	defer a.cancelBySignal(cancel).stop()
	if f.once || a.flags.format != "simple" || !a.hasScreen() {
		return t.once(ctx, f.rows)
	}
	s, err := a.openScreen()
	if err != nil {
		return err
	}
	defer s.close()
	return t.watch(ctx, s)
}

// topRun is one run of top. Goroutines ask the cluster, and its loop alone has the screen.
type topRun struct {
	a       *app
	client  *client.Client
	lookout *lookout
	pages   memberPages
	flags   *topFlags
	began   time.Time

	// told are changes of the screen, and poked says that it wants something else.
	told   chan func(*top.Model)
	poked  chan struct{}
	failed chan error
	model  *top.Model
}

func (a *app) newTop(f *topFlags) (*topRun, error) {
	spec, err := a.prepare()
	if err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"simple", "json"}, a.flags.format) {
		return nil, unsupported(a.flags.format)
	}
	secure, err := tlsOf(spec)
	if err != nil {
		return nil, err
	}
	c, err := a.dialNative(spec)
	if err != nil {
		return nil, err
	}
	return &topRun{
		a: a, client: c, lookout: a.newLookout(spec), flags: f, began: time.Now(),
		pages: newMemberPages(secure, a.flags.commandTimeout),
		told:  make(chan func(*top.Model)), poked: make(chan struct{}, 1),
		failed: make(chan error, 8),
		model: top.New(top.Options{
			Title: spec.Endpoints[0], Interval: f.interval, Rows: f.rows,
			Pane: top.Pane(slices.Index(top.PaneNames, f.pane)),
		}),
	}, nil
}

func (t *topRun) close() {
	_ = t.client.Close() // nothing is to be saved
	t.lookout.close()
}

func (t *topRun) now() time.Duration { return time.Since(t.began) }

// start starts what asks the cluster, until stop is called. What is under way then is not waited
// for.
func (t *topRun) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	for _, f := range []func(context.Context) error{t.follow, t.refresh, t.look, t.waits} {
		go func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.failed <- err
			}
		}()
	}
	return cancel
}

// tick is how often the screen is drawn at least.
const tick = time.Second

// watch shows the screen until the user, or a signal, ends it.
func (t *topRun) watch(ctx context.Context, s *screen) error {
	defer t.start(ctx)()
	clock := time.NewTicker(tick)
	defer clock.Stop()
	var next time.Duration
	for {
		if drawn := t.now(); drawn >= next {
			t.model.Tick(drawn)
			s.draw(t.model.Frame(s.size()))
			// To go through very many leases takes time: a tenth of it at most.
			next = drawn + max(tick/10, 10*(t.now()-drawn))
		}
		told := t.told
		if t.model.Paused() {
			told = nil // those that ask the cluster wait, too
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-t.failed:
			return err
		case keys, ok := <-s.keys:
			if !ok || t.press(s, keys) {
				return nil
			}
			s.draw(t.model.Frame(s.size()))
		case <-s.resized:
			s.draw(t.model.Frame(s.size()))
		case f := <-told:
			f(t.model)
		case <-clock.C:
		}
	}
}

// press does what keys mean, and reports whether one of them ends the program.
func (t *topRun) press(s *screen, keys []top.Key) (quit bool) {
	for _, k := range keys {
		if k == top.Redraw {
			s.forget()
		}
		if t.model.Press(k) {
			return true
		}
	}
	select {
	case t.poked <- struct{}{}:
	default:
	}
	return false
}

// once prints one page when all is known that it shows.
func (t *topRun) once(ctx context.Context, rows int) error {
	defer t.start(ctx)()
	for seen := false; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-t.failed:
			return err
		case f := <-t.told:
			f(t.model)
		}
		why, since := t.model.Lost()
		if why != "" && t.now()-since > t.a.flags.commandTimeout {
			return withCode(exitConnection, fmt.Errorf("the cluster does not answer: %s", why))
		}
		if t.model.Listed() && !seen {
			seen = true
			t.model.Tick(t.now()) // so that the rows that will be seen are asked for
		}
		if t.model.Complete() {
			t.model.Tick(t.now())
			return t.a.show(answer{json: t.model.Summary(rows), simple: func(p *page) {
				p.printf("%s", t.model.Page(t.a.pageWidth(), rows))
			}})
		}
	}
}

// pageWidth is the width of a page: as wide as the terminal, or as COLUMNS says.
func (a *app) pageWidth() int {
	if n, err := strconv.Atoi(a.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := a.Stdout.(*os.File); ok {
		if n, ok := columns(f); ok && n > 0 {
			return n
		}
	}
	return 80
}

// tell has the screen changed, unless the program ends.
func (t *topRun) tell(ctx context.Context, f func(*top.Model)) {
	select {
	case t.told <- f:
	case <-ctx.Done():
	}
}

// ask asks the screen something.
func (t *topRun) ask(ctx context.Context, f func(*top.Model)) {
	done := make(chan struct{})
	t.tell(ctx, func(m *top.Model) {
		f(m)
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// silence tells why the cluster has not answered what it was asked at some moment. It returns the
// error if it is one for which nothing more is to be asked.
func (t *topRun) silence(ctx context.Context, asked time.Duration, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, client.ErrNotLeasehold), errors.Is(err, client.ErrPermissionDenied),
		errors.Is(err, client.ErrNotLoggedIn), errors.Is(err, client.ErrInvalid):
		return withCode(exitConnection, err)
	case errors.Is(err, client.ErrCompacted):
		return nil
	}
	why, found := dialErrorIn(err.Error())
	if !found {
		why = fault.Reason(err)
	}
	t.tell(ctx, func(m *top.Model) { m.Silence(asked, why) })
	return nil
}

// watchOf is which events are followed, and filterOf which leases are listed.
func (t *topRun) watchOf() leases.Watch {
	return leases.Watch{
		NamePrefix: t.flags.prefix, Owner: t.flags.owner, ExpiringWithin: top.ExpiringWithin,
	}
}

func (t *topRun) filterOf() leases.Filter {
	return leases.Filter{NamePrefix: t.flags.prefix, Owner: t.flags.owner}
}
