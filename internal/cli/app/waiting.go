package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
)

// A waitLine is a line on a terminal that shows what a command is waiting for or doing, if that
// takes more than a second. The line is removed when the command continues or prints a message.
type waitLine struct {
	w     io.Writer
	width func() int

	shown bool // guarded by App.Mu
}

const (
	// waitQuietly is how long a command waits before it shows the line.
	waitQuietly = time.Second
	// waitLookEvery is the interval between queries for the text of the line.
	waitLookEvery = 2 * time.Second
	// waitLookWithin is the timeout of each query.
	waitLookWithin = 5 * time.Second
	// ClearLine clears the current line of a terminal.
	ClearLine = "\r\x1b[K"
)

// ShowWaiting shows what the command is waiting for until end is called. It does nothing unless
// standard error is a terminal. The function what can query the cluster.
func (a *App) ShowWaiting(what func(ctx context.Context) string) (end func()) {
	f, ok := a.ErrTerminal()
	if !ok {
		return func() {}
	}
	return a.showWaitingOn(&waitLine{w: f, width: func() int {
		n, _ := Columns(f)
		return n
	}}, what)
}

// ErrTerminal returns standard error if it is a terminal.
func (a *App) ErrTerminal() (*os.File, bool) {
	f, ok := a.Stderr.(*os.File)
	if ok {
		_, ok = Columns(f)
	}
	return f, ok
}

// showWaitingOn is ShowWaiting with a given line.
func (a *App) showWaitingOn(l *waitLine, what func(ctx context.Context) string) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	a.Mu.Lock()
	a.line = l
	a.Mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := waitQuietly; ; wait = waitLookEvery {
			if !backoff.Sleep(ctx, wait) {
				return
			}
			short, done := context.WithTimeout(ctx, waitLookWithin)
			text := what(short)
			done()
			a.Mu.Lock()
			if ctx.Err() == nil && text != "" {
				fmt.Fprint(l.w, ClearLine+ansi.Truncate(Harmless(text), l.width()-1, ""))
				l.shown = true
			}
			a.Mu.Unlock()
		}
	}()
	return func() {
		cancel()
		<-ended
		a.Mu.Lock()
		defer a.Mu.Unlock()
		a.clearLocked()
		a.line = nil
	}
}

// clearLocked removes the line so that other text can be printed.
func (a *App) clearLocked() {
	if a.line != nil && a.line.shown {
		fmt.Fprint(a.line.w, ClearLine)
		a.line.shown = false
	}
}

// place is a ticket in a wait queue, together with its lease.
type place struct {
	ticket.Ticket
	lease lease.ID
}

// A turn describes a user's position in the wait queue of a lock or an election.
type turn struct {
	name   string
	own    lease.ID                               // of this waiter
	places func(context.Context) ([]place, error) // the holder and the waiters, in any order
	owner  func(context.Context, lease.ID) string // "" if the lease has no owner

	holder place
	since  time.Time // when the holder was first seen
}

// NewTurn returns the turn of lease own in the named queue.
func NewTurn(c *client.Client, name string, own lease.ID) *turn {
	return &turn{
		name: name, own: own,
		places: func(ctx context.Context) (list []place, err error) {
			r := store.Prefix(name + "/")
			got, err := c.Range(ctx, store.Range{Key: r.Key, End: r.End, KeysOnly: true})
			for _, kv := range got.KVs {
				if ticket.Is(r.Key, kv.Key, int64(kv.Lease)) {
					t := ticket.Ticket{Revision: kv.CreateRevision, Key: kv.Key}
					list = append(list, place{t, kv.Lease})
				}
			}
			return list, err
		},
		owner: func(ctx context.Context, id lease.ID) string {
			// if this fails, assume that the lease has no owner
			info, _ := c.Describe(ctx, leases.Ref{ID: id})
			return info.Owner
		},
	}
}

// Text names the holder and says for how long, at least, it has held the lease.
func (t *turn) Text(ctx context.Context) string {
	all, err := t.places(ctx)
	if err != nil || len(all) == 0 {
		return fmt.Sprintf("Waiting for %q", t.name)
	}
	slices.SortFunc(all, func(a, b place) int {
		switch {
		case a.Before(b.Ticket):
			return -1
		case b.Before(a.Ticket):
			return 1
		}
		return 0
	})
	if all[0] != t.holder {
		t.holder, t.since = all[0], time.Now()
	}
	if t.holder.lease == t.own {
		return ""
	}
	who := t.owner(ctx, t.holder.lease)
	if who == "" {
		who = fmt.Sprintf("lease %016x", uint64(t.holder.lease))
	}
	text := fmt.Sprintf("Waiting for %q, held by %s", t.name, Readable(who))
	if held := time.Since(t.since).Truncate(time.Second); held > 0 {
		text += fmt.Sprintf(" for at least %s", held)
	}
	before := slices.IndexFunc(all, func(p place) bool { return p.lease == t.own }) - 1
	if before > 0 {
		text += fmt.Sprintf("; %d waiting ahead of this one", before)
	}
	return text
}
