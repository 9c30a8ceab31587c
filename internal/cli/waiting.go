package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/table"
	"leasehold.dev/internal/ticket"
	"leasehold.dev/lease"
)

// A waitLine tells on a terminal what a command waits for, or does, from a second on: in one line,
// which goes when the command goes on, or complains.
type waitLine struct {
	w     io.Writer
	width func() int

	shown bool // guarded by the app's mu
}

const (
	// waitQuietly is how long a command may wait without a word.
	waitQuietly = time.Second
	// waitLookEvery is how often is asked what a command waits for.
	waitLookEvery = 2 * time.Second
	// waitLookWithin is how long the answer may take.
	waitLookWithin = 5 * time.Second
	clearLine      = "\r\x1b[K"
)

// tellWaiting has the user told what the command waits for until end is called, if the standard
// error is a terminal. what may ask the cluster.
func (a *app) tellWaiting(what func(ctx context.Context) string) (end func()) {
	f, ok := a.errTerminal()
	if !ok {
		return func() {}
	}
	return a.tellOn(&waitLine{w: f, width: func() int {
		n, _ := columns(f)
		return n
	}}, what)
}

// errTerminal returns the terminal that the standard error is, if it is one.
func (a *app) errTerminal() (*os.File, bool) {
	f, ok := a.Stderr.(*os.File)
	if ok {
		_, ok = columns(f)
	}
	return f, ok
}

// tellOn is tellWaiting on some line.
func (a *app) tellOn(l *waitLine, what func(ctx context.Context) string) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	a.line = l
	a.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for wait := waitQuietly; ; wait = waitLookEvery {
			pause(ctx, wait)
			if ctx.Err() != nil {
				return
			}
			short, done := context.WithTimeout(ctx, waitLookWithin)
			text := what(short)
			done()
			a.mu.Lock()
			if ctx.Err() == nil && text != "" {
				fmt.Fprint(l.w, clearLine+cut(harmless(text), l.width()-1))
				l.shown = true
			}
			a.mu.Unlock()
		}
	}()
	return func() {
		cancel()
		<-ended
		a.mu.Lock()
		defer a.mu.Unlock()
		a.clearLocked()
		a.line = nil
	}
}

// clearLocked takes the line away, so that something else can be written.
func (a *app) clearLocked() {
	if a.line != nil && a.line.shown {
		fmt.Fprint(a.line.w, clearLine)
		a.line.shown = false
	}
}

// cut leaves of a text what fits a line.
func cut(text string, columns int) string {
	n := 0
	for i, r := range text {
		if n += table.Width(string(r)); n > columns {
			return text[:i]
		}
	}
	return text
}

// place is a ticket in a wait queue, and the lease that it is on.
type place struct {
	ticket.Ticket
	lease lease.ID
}

// turn says whose turn it is in a wait queue.
type turn struct {
	name   string
	own    lease.ID                               // of the one that waits
	places func(context.Context) ([]place, error) // in any order
	owner  func(context.Context, lease.ID) string // empty if it has none

	holder place
	since  time.Time // that the holder was seen first
}

// text says who has what is waited for, and since when at least.
func (t *turn) text(ctx context.Context) string {
	all, err := t.places(ctx)
	if err != nil || len(all) == 0 {
		return fmt.Sprintf("Waiting for %q", t.name)
	}
	// slices.SortFunc would be ten kilobytes of the binary, for this type alone.
	sort.Slice(all, func(i, j int) bool { return all[i].Before(all[j].Ticket) })
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
	text := fmt.Sprintf("Waiting for %q, which %s has", t.name, readable(who))
	if held := time.Since(t.since).Truncate(time.Second); held > 0 {
		text += fmt.Sprintf(", for %s at least", held)
	}
	before := slices.IndexFunc(all, func(p place) bool { return p.lease == t.own }) - 1
	if before > 0 {
		text += fmt.Sprintf("; %d wait before this one", before)
	}
	return text
}

// nativeTurn is the turn in a queue of client/lock.
func nativeTurn(c *client.Client, name string, own lease.ID) *turn {
	prefix := name + "/"
	return &turn{
		name: name, own: own,
		places: func(ctx context.Context) (list []place, err error) {
			r := store.Prefix(prefix)
			got, err := c.Range(ctx, store.Range{Key: r.Key, End: r.End, KeysOnly: true})
			for _, kv := range got.KVs {
				if ticket.Is(prefix, kv.Key, int64(kv.Lease)) {
					list = append(list, place{
						ticket.Ticket{Revision: kv.CreateRevision, Key: kv.Key}, kv.Lease,
					})
				}
			}
			return list, err
		},
		owner: func(ctx context.Context, id lease.ID) string {
			info, _ := c.Describe(ctx, leases.Ref{ID: id}) // without an answer it has none
			return info.Owner
		},
	}
}

// etcdTurn is the turn in a queue of etcd's package concurrency.
func etcdTurn(c *clientv3.Client, name string, own clientv3.LeaseID) *turn {
	prefix := name + "/"
	return &turn{
		name: name, own: lease.ID(own),
		places: func(ctx context.Context) (list []place, err error) {
			got, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return nil, err
			}
			for _, kv := range got.Kvs {
				key := string(kv.Key)
				if ticket.Is(prefix, key, kv.Lease) {
					list = append(list, place{
						ticket.Ticket{Revision: kv.CreateRevision, Key: key}, lease.ID(kv.Lease),
					})
				}
			}
			return list, nil
		},
		owner: func(ctx context.Context, id lease.ID) string {
			// An etcd server knows of none.
			got, _ := nativeLeases(c).Describe(ctx, &pb.DescribeRequest{Id: int64(id)})
			return got.GetLease().GetOwner()
		},
	}
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
