package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"leasehold.dev/client/leases"
	"leasehold.dev/internal/table"
	"leasehold.dev/lease"
)

// column is a column of a list. Columns without a width share the remaining space.
type column struct {
	title string
	width int
}

var columns = [][]column{
	leasesPane: {
		{"name", 0}, {"owner", 0}, {"ID", 16}, {"state", 8}, {"left", 10}, {"TTL", 7}, {"keys", 5},
	},
	endsPane: {{"when", 12}, {"what", 20}, {"name", 0}, {"owner", 0}},
	membersPane: {
		{"name", 0},
		{"role", 7},
		{"response", 9},
		{"lag", 7},
		{"sync p99", 9},
		{"renewals", 9},
		{"state", 9},
		{"release", 8},
	},
}

// States of a lease, according to the last snapshot.
const (
	alive    = "alive"
	silent   = "silent"   // less than half of the TTL remained
	expiring = "expiring" // less than a quarter of the TTL remained
	delayed  = "delayed"  // expired, but its lock delay has not ended
)

func stateOf(l *leases.Info) string {
	switch {
	case l.Delayed:
		return delayed
	case l.Remaining <= l.TTL/4:
		return expiring
	case l.Remaining <= l.TTL/2:
		return silent
	}
	return alive
}

// left formats the minimum remaining time of a lease.
func (m *Model) left(l *leases.Info) string {
	d := l.Remaining - m.now.Sub(m.latest.At)
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
	return table.Readable(l.Name)
}

// picked returns the leases that match the filter, sorted by expiry.
func (m *Model) picked() []*leases.Info {
	var list []*leases.Info
	for i := range m.latest.Leases {
		if l := &m.latest.Leases[i]; m.matches(l) {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *leases.Info) int {
		return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.Name, b.Name),
			cmp.Compare(uint64(a.ID), uint64(b.ID)))
	})
	return list
}

// matches reports whether a lease matches all words of the filter. The words are matched against
// its name, owner, user, labels, ID and token.
func (m *Model) matches(l *leases.Info) bool {
	all := []string{l.Name, l.Owner, l.Principal, hexID(l.ID), fmt.Sprint(uint64(l.Token))}
	for k, v := range l.Labels {
		all = append(all, k+"="+v)
	}
	text := strings.ToLower(strings.Join(all, "\x00"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(m.filter)), func(word string) bool {
		return !strings.Contains(text, word)
	})
}

// list returns the rows of the current pane.
func (m *Model) list() [][]string {
	switch m.pane {
	case leasesPane:
		return m.leaseRows()
	case endsPane:
		return m.endRows()
	default:
		return m.memberRows()
	}
}

func (m *Model) leaseRows() (rows [][]string) {
	for _, l := range m.picked() {
		rows = append(rows, []string{
			called(l), table.Readable(l.Owner), hexID(l.ID), stateOf(l), m.left(l), short(l.TTL),
			fmt.Sprint(l.KeyCount),
		})
	}
	return rows
}

// endRows returns the leases that expire next, followed by the latest events.
func (m *Model) endRows() (rows [][]string) {
	for _, l := range m.picked() {
		if stateOf(l) == expiring && l.Remaining > m.now.Sub(m.latest.At) && m.outage.IsZero() {
			rows = append(rows, []string{"in " + m.left(l), expiring, called(l), table.Readable(l.Owner)})
		}
	}
	for _, v := range slices.Backward(m.events) {
		if l := &v.Lease; m.matches(l) {
			what := v.Kind.String()
			if v.By != "" {
				what += " (" + table.Readable(v.By) + ")"
			}
			rows = append(rows, []string{
				short(m.now.Sub(v.received).Truncate(time.Second)) + " ago", what, called(l),
				table.Readable(l.Owner),
			})
		}
	}
	return rows
}

func (m *Model) memberRows() (rows [][]string) {
	now := m.history.newest()
	for i := range now.Members {
		x := &now.Members[i]
		cells := []string{
			table.Readable(x.Name), x.Role, short(x.Took), humanize.Comma(int64(x.Behind)),
			seconds(m.history.recent(x.ID, syncOf)), perSecond(m.history.rate(counters[1], x.ID)),
			humanize.Bytes(uint64(x.State)), table.Readable(x.Release),
		}
		if x.Error != "" {
			cells = []string{cells[0], cells[1], "no response", "", "", "", "", ""}
		}
		rows = append(rows, cells)
	}
	return rows
}
