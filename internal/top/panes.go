package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"leasehold.dev/internal/table"
	"leasehold.dev/lease"
)

// row is one of a list.
type row struct {
	lease  lease.ID // that it is about, 0 for none
	filter string   // the leases that it stands for, empty for none
	cells  []string // nil for a lease, which has them made when it is seen
	value  any      // for programs; nil for a lease and a member
	style  Style
}

// column of a list. Those that grow share what is left of the width.
type column struct {
	title string
	width int
	grow  bool
	right bool // to which side the cells go
	from  int  // the least width of a screen that has it
}

var columnsOf = [paneCount][]column{
	Leases: {
		{title: "name", grow: true},
		{title: "owner", grow: true},
		{title: "ID", width: 16, from: 110},
		{title: "token", width: 8, right: true, from: 110},
		{title: "state", width: 8},
		{title: "left, at least", width: 14, right: true},
		{title: "TTL", width: 7, right: true},
		{title: "keys", width: 5, right: true},
	},
	Prefixes: {
		{title: "names that begin with", grow: true},
		{title: "leases", width: 10, right: true},
		{title: "owners", width: 8, right: true},
		{title: "expiring", width: 8, right: true},
		{title: "delayed", width: 8, right: true},
	},
	Owners: {
		{title: "owner", grow: true},
		{title: "leases", width: 10, right: true},
		{title: "prefixes", width: 8, right: true},
		{title: "expiring", width: 8, right: true},
		{title: "delayed", width: 8, right: true},
	},
	Ends: {
		{title: "when", width: 14, right: true},
		{title: "what", width: 24},
		{title: "name", grow: true},
		{title: "owner", grow: true},
	},
	Waits: {
		{title: "queue", grow: true},
		{title: "kind", width: 8},
		{title: "holder", grow: true},
		{title: "left, at least", width: 14, right: true},
		{title: "next", grow: true},
		{title: "waiting", width: 7, right: true},
	},
	Members: {
		{title: "name", grow: true},
		{title: "role", width: 7},
		{title: "answers in", width: 10, right: true},
		{title: "lag", width: 7, right: true},
		{title: "sync 99%", width: 8, right: true},
		{title: "renewals", width: 8, right: true},
		{title: "state", width: 9, right: true},
		{title: "version", width: 8, from: 100},
	},
}

// byTime is the order in which the lease that ends next comes first.
const byTime = "time left"

// orders are the orders of the lists of leases and of their groups.
var orders = [paneCount][]string{
	Leases:   {byTime, "name", "owner", "ID"},
	Prefixes: {"leases", "name"},
	Owners:   {"leases", "name"},
	Waits:    {"waiting", "name"},
}

// order is the name of the order of the pane that is seen, empty if it has only one.
func (m *Model) order() string {
	list := orders[m.pane]
	if len(list) == 0 {
		return ""
	}
	return list[m.sorts[m.pane]%len(list)]
}

// pick makes the list that is seen anew.
func (m *Model) pick() {
	if m.open != nil {
		m.rows = m.openedRows()
		m.within()
		return
	}
	switch m.pane {
	case Leases:
		m.rows = m.leaseRows()
	case Prefixes, Owners:
		m.rows = m.groupRows()
	case Ends:
		m.rows = m.endRows()
	case Waits:
		m.rows = m.waitRows()
	case Members:
		m.rows = m.memberRows()
	}
	m.within()
}

// within keeps what is chosen in the list, and seen.
func (m *Model) within() {
	m.at.row = max(0, min(m.at.row, len(m.rows)-1))
	m.at.top = min(m.at.top, m.at.row, max(0, len(m.rows)-m.height))
	m.at.top = max(m.at.top, m.at.row-m.height+1, 0)
}

// picked are the leases that the filter leaves.
func (m *Model) picked() (list []*entry) {
	match := matcher(m.filter)
	for _, e := range m.book.all {
		if match(&e.Info) {
			list = append(list, e)
		}
	}
	return list
}

// endless stands for an end that is not known.
const endless = time.Duration(math.MaxInt64)

// soonest returns the order of ends: first those that the member has told of, and last those of
// which nothing is known any more.
func (m *Model) soonest(a, b *entry) int {
	end := func(e *entry) (coming int, at time.Duration) {
		at, ok := e.until()
		if e.hinted {
			return 0, at
		}
		if !ok || at <= m.heard() {
			at = endless
		}
		return 1, at
	}
	x, at := end(a)
	y, bt := end(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(at, bt), byID(a, b))
}

// heard is until when the cluster has been heard: the present, while it answers.
func (m *Model) heard() time.Duration {
	if m.lost != nil {
		return min(m.lost.since, m.now)
	}
	return m.now
}

func byID(a, b *entry) int { return cmp.Compare(uint64(a.ID), uint64(b.ID)) }

// named compares texts: those that are empty come last.
func named(a, b string) int {
	if (a == "") != (b == "") {
		return strings.Compare(b, a)
	}
	return strings.Compare(a, b)
}

func (m *Model) leaseRows() []row {
	list := m.picked()
	by := m.soonest
	switch m.order() {
	case "name":
		by = func(a, b *entry) int { return cmp.Or(named(a.Name, b.Name), byID(a, b)) }
	case "owner":
		by = func(a, b *entry) int {
			return cmp.Or(named(a.Owner, b.Owner), named(a.Name, b.Name), byID(a, b))
		}
	case "ID":
		by = byID
	}
	slices.SortFunc(list, by)
	rows := make([]row, len(list))
	for i, e := range list {
		rows[i].lease = e.ID
	}
	return rows
}

// styleOf is how a lease looks.
func styleOf(e *entry) Style {
	switch e.state() {
	case expiring:
		return Warning
	case delayed:
		return Faint
	default:
		return Plain
	}
}

func hexID(id lease.ID) string { return fmt.Sprintf("%016x", uint64(id)) }

// called is how a lease is called: by its name, or its ID.
func called(name string, id lease.ID) string {
	if name == "" {
		return hexID(id)
	}
	return table.Readable(name)
}

// leaseCells are those of a lease. It may have ended since the list was made.
func (m *Model) leaseCells(id lease.ID) (cells []string, style Style) {
	e := m.book.all[id]
	if e == nil {
		return []string{hexID(id), "", hexID(id), "", "ended", "", "", ""}, Faint
	}
	return []string{
		called(e.Name, id), table.Readable(e.Owner), hexID(id), fmt.Sprint(uint64(e.Token)),
		e.state(), m.left(e), ttl(e.TTL), fmt.Sprint(e.KeyCount),
	}, styleOf(e)
}

// oldAnswer is the age from which on an answer tells how old it is.
const oldAnswer = 5 * time.Second

// left is for how long a lease certainly lives on. It counts only while the cluster answers.
func (m *Model) left(e *entry) string {
	if e.asked < 0 {
		if m.lost != nil {
			return "not known"
		}
		return "asking"
	}
	age := m.now - e.asked
	switch d := e.Remaining - age; {
	case m.lost != nil:
		return "was " + short(e.Remaining)
	case d <= 0:
		return "not known"
	case age > oldAnswer:
		return short(d) + " (" + whole(age) + ")"
	default:
		return short(d)
	}
}

// group is what leases have in common.
type group struct {
	leases, expiring, delayed int
	others                    map[string]bool
}

// groupRows are the leases by the beginnings of their names, or by their owners.
func (m *Model) groupRows() []row {
	groups := make(map[string]*group)
	under := base(m.filter)
	for _, e := range m.picked() {
		name, other := prefixOf(e.Name, under), e.Owner
		if m.pane == Owners {
			name, other = e.Owner, prefixOf(e.Name, "")
		}
		g := groups[name]
		if g == nil {
			g = &group{others: make(map[string]bool)}
			groups[name] = g
		}
		g.leases++
		g.others[other] = true
		if e.Delayed {
			g.delayed++
		} else if e.hinted {
			g.expiring++
		}
	}
	names := slices.SortedFunc(maps.Keys(groups), named)
	if m.order() == "leases" {
		slices.SortStableFunc(names, func(a, b string) int {
			return cmp.Compare(groups[b].leases, groups[a].leases)
		})
	}
	rows := make([]row, len(names))
	for i, name := range names {
		rows[i] = m.groupRow(name, groups[name])
	}
	return rows
}

func (m *Model) groupRow(name string, g *group) row {
	what, none := "name", "(no name)"
	if m.pane == Owners {
		what, none = "owner", "(no owner)"
	}
	how := ":"
	if name == "" || m.pane == Owners {
		how = "="
	}
	r := row{filter: what + how + name, cells: []string{
		table.Readable(cmp.Or(name, none)), number(g.leases), number(len(g.others)),
		number(g.expiring), number(g.delayed),
	}}
	v := groupValue{Name: name, Leases: g.leases, Expiring: g.expiring, Delayed: g.delayed}
	others := len(g.others)
	if v.Owners = &others; m.pane == Owners {
		v.Owners, v.Prefixes = nil, &others
	}
	r.value = v
	if g.expiring > 0 {
		r.style = Warning
	}
	return r
}

// endRows are the ends that are coming, the next one first, and then what has happened, the last
// first.
func (m *Model) endRows() (rows []row) {
	var coming []*entry
	for _, e := range m.picked() {
		if at, ok := e.until(); e.hinted || ok && at > m.heard() && e.state() == expiring {
			coming = append(coming, e)
		}
	}
	slices.SortFunc(coming, m.soonest)
	for _, e := range coming {
		rows = append(rows, row{lease: e.ID, style: Warning, cells: []string{
			m.left(e), "expiring", called(e.Name, e.ID), table.Readable(e.Owner),
		}, value: eventValue{
			What: "expiring", ID: hexID(e.ID), Name: e.Name, Owner: e.Owner, Left: m.leftValue(e.ID),
		}})
	}
	match := matcher(m.filter)
	past := m.book.ends[max(0, len(m.book.ends)-maxEnds):]
	for i := range slices.Backward(past) {
		v := &past[i]
		if !match(&v.Lease) {
			continue
		}
		what := v.Kind.String()
		if v.By != "" {
			what += " (" + table.Readable(v.By) + ")"
		}
		rows = append(rows, row{lease: v.Lease.ID, cells: []string{
			whole(m.now-v.at) + " ago", what, called(v.Lease.Name, v.Lease.ID),
			table.Readable(v.Lease.Owner),
		}, value: eventValue{
			What: v.Kind.String(), By: v.By, ID: hexID(v.Lease.ID), Name: v.Lease.Name,
			Owner: v.Lease.Owner, Ago: millisOf(m.now - v.at),
		}})
	}
	return rows
}
