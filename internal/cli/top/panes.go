package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/table"
	"github.com/dustin/go-humanize"

	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/lease"
)

// pane is a list on the screen. The key that selects it is its position, starting at 1.
type pane struct {
	name    string
	columns []column
	rows    func(*model) []table.Row
}

// column is a column of a list. Columns without a width share the remaining space.
type column struct {
	title string
	width int
}

var panes = []pane{
	{"leases", []column{
		{"NAME", 0}, {"OWNER", 0}, {"ID", 16}, {"STATE", 8}, {"LEFT", 10}, {"TTL", 7}, {"KEYS", 5},
	}, (*model).leaseRows},
	{"ends", []column{{"WHEN", 12}, {"WHAT", 20}, {"NAME", 0}, {"OWNER", 0}}, (*model).endRows},
	{"members", []column{
		{"NAME", 0},
		{"ROLE", 7},
		{"RESPONSE", 9},
		{"LAG", 7},
		{"SYNC P99", 9},
		{"RENEWALS", 9},
		{"STATE", 9},
		{"RELEASE", 8},
	}, (*model).memberRows},
}

func paneNames() (names []string) {
	for _, p := range panes {
		names = append(names, p.name)
	}
	return names
}

// expiring is the state of a lease with at most a quarter of its TTL left.
const expiring = "expiring"

// stateOf returns the state of a lease in the last snapshot.
func stateOf(l *leases.Info) string {
	switch {
	case l.Delayed:
		return "delayed" // expired, but its lock delay has not ended
	case l.Remaining <= l.TTL/4:
		return expiring
	case l.Remaining <= l.TTL/2:
		return "silent"
	}
	return "alive"
}

// left formats the minimum remaining time of a lease.
func (m *model) left(l *leases.Info) string {
	d := l.Remaining - m.now.Sub(m.latest.at)
	switch {
	case !m.outage.IsZero():
		return "was " + short(l.Remaining)
	case d <= 0:
		return "-" // no longer known
	}
	return short(d)
}

func hexID(id lease.ID) string { return fmt.Sprintf("%016x", uint64(id)) }

// called returns the name of a lease or, if it has none, its ID.
func called(l *leases.Info) string {
	if l.Name == "" {
		return hexID(l.ID)
	}
	return app.Readable(l.Name)
}

// matches reports whether a lease matches all words of the filter. The words are matched against
// its name, owner, user, labels, ID and token.
func (m *model) matches(l *leases.Info) bool {
	all := []string{l.Name, l.Owner, l.Principal, hexID(l.ID), fmt.Sprint(uint64(l.Token))}
	for k, v := range l.Labels {
		all = append(all, k+"="+v)
	}
	text := strings.ToLower(strings.Join(all, "\x00"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(m.filter)), func(word string) bool {
		return !strings.Contains(text, word)
	})
}

func (m *model) leaseRows() (rows []table.Row) {
	for i := range m.latest.leases {
		if l := &m.latest.leases[i]; m.matches(l) {
			rows = append(rows, table.Row{
				called(l), app.Readable(l.Owner), hexID(l.ID), stateOf(l), m.left(l), short(l.TTL),
				fmt.Sprint(l.KeyCount),
			})
		}
	}
	return rows
}

// endRows returns the leases that expire next, followed by the latest events.
func (m *model) endRows() (rows []table.Row) {
	age := m.now.Sub(m.latest.at)
	for i := range m.latest.leases {
		l := &m.latest.leases[i]
		if stateOf(l) == expiring && l.Remaining > age && m.outage.IsZero() && m.matches(l) {
			rows = append(rows, table.Row{"in " + m.left(l), expiring, called(l), app.Readable(l.Owner)})
		}
	}
	for _, v := range slices.Backward(m.events) {
		if l := &v.Lease; m.matches(l) {
			what := v.Kind.String()
			if v.By != "" {
				what += " (" + app.Readable(v.By) + ")"
			}
			rows = append(rows, table.Row{
				short(m.now.Sub(v.received).Truncate(time.Second)) + " ago", what, called(l),
				app.Readable(l.Owner),
			})
		}
	}
	return rows
}

func (m *model) memberRows() (rows []table.Row) {
	for _, x := range m.history.newest().Members {
		row := table.Row{app.Readable(x.Name), x.Role, "no response", "", "", "", "", ""}
		if x.Error == "" {
			row = append(row[:2], short(time.Duration(x.Took)), humanize.Comma(int64(x.Behind)),
				m.history.recent(x.ID, syncMetric).String(), m.history.rate(renewed, x.ID),
				humanize.Bytes(uint64(x.State)), app.Readable(x.Release))
		}
		rows = append(rows, row)
	}
	return rows
}
