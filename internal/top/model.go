// Package top is the screen of "leasehold top": what it knows, what keys do, and the frame that
// shows it. It reads no clock and does no I/O: the time, counted from the program's start, is an
// argument, as is all that the cluster has said.
//
// It shows nothing that it cannot stand behind. What is left of a lease is what the cluster said
// last, less the time since that was asked for, so a lease lives at least that long unless it is
// revoked. While the cluster does not answer, nothing is counted down.
package top

import (
	"slices"
	"time"

	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// ExpiringWithin is what is left of a lease that nobody renews when the member tells of it: events
// are to be asked for with it.
const ExpiringWithin = 5 * time.Second

// Pane is one of the lists that the screen has.
type Pane int

// The panes, in the order of their numbers.
const (
	Leases Pane = iota
	Prefixes
	Owners
	Ends
	Waits
	Members
	paneCount
)

// PaneNames are what people call them.
var PaneNames = []string{"leases", "prefixes", "owners", "ends", "waits", "members"}

// Options say what is shown.
type Options struct {
	// Title is what the cluster is called.
	Title string
	// Interval is the time between two looks at the cluster.
	Interval time.Duration
	Pane     Pane
	// Rows are how many of a list are seen, until the first frame says it.
	Rows int
}

// Model is the screen. Its zero value is of no use: see New.
type Model struct {
	options Options
	now     time.Duration
	book    book
	looks   readings
	waits   waits
	lost    *outage // nil while the cluster answers

	pane   Pane
	sorts  [paneCount]int
	filter string
	typing bool // the filter
	help   bool
	paused bool
	clock  time.Duration // runs on while it is paused, as now does not
	open   *opened       // a lease, nil if none is

	rows   []row
	at     position
	height int // of the list in the last frame
}

// position is where in a list the screen is.
type position struct {
	row int // that is chosen
	top int // the first that is seen
}

// opened is the lease of which all is shown.
type opened struct {
	id    lease.ID
	info  *leases.Info // with its keys, nil if it was not told yet
	ended bool
	from  position
}

// waits are the wait queues as they were when they were asked for.
type waits struct {
	list  []*queue
	at    time.Duration
	known bool
	more  bool   // there are more keys than were looked through
	err   string // why they are not known
}

// outage is a time in which the cluster does not answer.
type outage struct {
	since time.Duration
	why   string
}

// New returns a screen that knows nothing yet.
func New(o Options) *Model {
	return &Model{options: o, pane: o.Pane, height: max(1, o.Rows)}
}

// Tick says what time it is. A screen that is paused stays as it is.
func (m *Model) Tick(now time.Duration) {
	if m.clock = now; !m.paused {
		m.now = now
		m.pick()
	}
}

// Paused reports whether nothing is to be told to the screen.
func (m *Model) Paused() bool { return m.paused }

// Begin says that all leases are going to be listed, and that events are followed already.
func (m *Model) Begin() { m.book.begin() }

// List takes some of the leases, and reports whether the rest is wanted. asked is when the list
// began.
func (m *Model) List(infos []leases.Info, asked time.Duration) (more bool) {
	return m.book.list(infos, asked, m.now)
}

// Finish says that the list is complete.
func (m *Model) Finish(asked time.Duration) { m.book.finish(asked) }

// Events takes what happened to leases.
func (m *Model) Events(list []leases.Event, now time.Duration) {
	for i := range list {
		m.book.event(list[i], now)
	}
}

// maxWanted is how many leases are asked for at most besides those that are seen, and soon when
// what is known of them is over.
const (
	maxWanted = 300
	soon      = 3 * time.Second
)

// Wanted are the leases that are to be asked for again and again, with Answer: those that are
// seen and, if the one that ends next is to come first, some of which little is known.
func (m *Model) Wanted() (ids []lease.ID) {
	if m.open != nil {
		return []lease.ID{m.open.id}
	}
	for i := m.at.top; i < min(len(m.rows), m.at.top+m.height); i++ {
		if id := m.rows[i].lease; id != 0 {
			ids = append(ids, id)
		}
	}
	if m.pane != Leases || m.order() != byTime {
		return ids
	}
	seen := len(ids)
	for id, e := range m.book.all {
		if len(ids) == seen+maxWanted {
			break
		}
		at, ok := e.until()
		if (!ok || at < m.now+soon) && !slices.Contains(ids[:seen], id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Answer takes what was told of the leases that were wanted.
func (m *Model) Answer(ids []lease.ID, infos []leases.Info, asked time.Duration) {
	m.lost = nil
	m.book.answer(ids, infos, asked, m.now)
}

// Opened returns the lease that is to be described, 0 for none.
func (m *Model) Opened() lease.ID {
	if m.open == nil {
		return 0
	}
	return m.open.id
}

// Describe takes all about a lease, nil if it is gone.
func (m *Model) Describe(id lease.ID, info *leases.Info) {
	if m.open == nil || m.open.id != id {
		return
	}
	if m.open.ended = info == nil; info != nil {
		m.open.info = info
	}
}

// Silence says that the cluster has not answered what it was asked at some moment, and why.
func (m *Model) Silence(asked time.Duration, why string) {
	if m.lost == nil {
		m.lost = &outage{since: asked}
	}
	m.lost.why = why
}

// Lost says why the cluster does not answer, and since when; why is empty while it does.
func (m *Model) Lost() (why string, since time.Duration) {
	if m.lost == nil {
		return "", 0
	}
	return m.lost.why, m.lost.since
}

// Listed reports whether all leases were listed.
func (m *Model) Listed() bool { return m.book.listed }

// Complete reports whether all is known that a page shows.
func (m *Model) Complete() bool {
	waits := m.pane != Waits || m.waits.known || m.waits.err != ""
	return m.book.listed && len(m.looks) >= 2 && waits
}

// Look takes what was found out about the cluster from some moment on.
func (m *Model) Look(c Cluster, at time.Duration) { m.looks = m.looks.add(c, at) }

// WantsWaits reports whether wait queues are seen.
func (m *Model) WantsWaits() bool { return m.pane == Waits && m.open == nil }

// Keys takes the keys among which wait queues are looked for, and whether there are more.
func (m *Model) Keys(kvs []store.KV, more bool, asked time.Duration) {
	m.waits = waits{list: queuesOf(kvs), at: asked, known: true, more: more}
}

// NoKeys says why the keys cannot be had.
func (m *Model) NoKeys(why string) { m.waits.err = why }
