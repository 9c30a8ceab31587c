package top

import (
	"fmt"
	"maps"
	"slices"

	"leasehold.dev/client/leases"
	"leasehold.dev/internal/table"
	"leasehold.dev/lease"
)

// who names the holder of a lease.
func (m *Model) who(id lease.ID) string {
	e := m.book.all[id]
	if e == nil {
		return hexID(id)
	}
	if e.Owner != "" {
		return table.Readable(e.Owner)
	}
	return called(e.Name, id)
}

// waitRows are the wait queues that the filter leaves: it looks at their names and holders.
func (m *Model) waitRows() (rows []row) {
	match := matcher(m.filter)
	list := slices.DeleteFunc(slices.Clone(m.waits.list), func(q *queue) bool {
		l := leases.Info{Name: q.name}
		if q.holder != nil {
			l.ID, l.Owner = q.holder.lease, m.who(q.holder.lease)
		}
		return !match(&l)
	})
	if m.order() == "waiting" {
		slices.SortStableFunc(list, func(a, b *queue) int {
			return len(b.waiters) - len(a.waiters)
		})
	}
	for _, q := range list {
		r := row{cells: []string{
			table.Readable(q.name), q.kind, "nobody", "", "", number(len(q.waiters)),
		}}
		v := waitValue{Queue: q.name, Kind: q.kind, Waiters: []string{}}
		for _, w := range q.waiters {
			v.Waiters = append(v.Waiters, hexID(w.lease))
		}
		if q.holder != nil {
			r.lease = q.holder.lease
			v.Holder, v.Left = hexID(r.lease), m.leftValue(r.lease)
			r.cells[2] = m.who(r.lease)
			if e := m.book.all[r.lease]; e != nil {
				r.cells[3], r.style = m.left(e), styleOf(e)
			}
		}
		if len(q.waiters) > 0 {
			r.cells[4] = m.who(q.waiters[0].lease)
		}
		r.value = v
		rows = append(rows, r)
	}
	return rows
}

func (m *Model) memberRows() (rows []row) {
	now, _ := m.looks.newest()
	for i := range now.Members {
		x := &now.Members[i]
		r := row{cells: []string{
			table.Readable(x.Name), x.Role, short(x.Took), number(int(x.Behind)), "-", "-",
			size(x.State), table.Readable(x.Version),
		}}
		if f := x.Figures; f != nil {
			sync := m.looks.recent(x.ID, func(f *Figures) Histogram { return f.Sync })
			r.cells[4] = sync.text()
			r.cells[5] = perSecond(m.looks.only(x.ID).rate(renewed))
		}
		if x.Error != "" {
			r.style = Alarm
			for j := 2; j < len(r.cells); j++ {
				r.cells[j] = ""
			}
			r.cells[2] = "no answer"
		}
		rows = append(rows, r)
	}
	return rows
}

// only is the same with one member alone.
func (r readings) only(id string) readings {
	out := make(readings, 0, 2)
	for _, x := range r[max(0, len(r)-2):] {
		one := x
		one.Members = slices.DeleteFunc(slices.Clone(x.Members), func(m Member) bool {
			return m.ID != id
		})
		out = append(out, one)
	}
	return out
}

// openedRows is all about the lease that is open, a line each.
func (m *Model) openedRows() (rows []row) {
	o := m.open
	line := func(name, value string) {
		if value != "" {
			rows = append(rows, row{cells: []string{name, value}})
		}
	}
	line("lease", hexID(o.id))
	e := m.book.all[o.id]
	switch {
	case e != nil && !o.ended:
		line("state", e.state())
		line("left", m.left(e)+", at least")
	case o.ended || e == nil && m.book.listed:
		line("state", "ended")
	}
	if o.info == nil && e != nil {
		o.info = &e.Info
	}
	if l := o.info; l != nil {
		line("name", table.Readable(l.Name))
		line("owner", table.Readable(l.Owner))
		line("user", table.Readable(l.Principal))
		for _, k := range slices.Sorted(maps.Keys(l.Labels)) {
			line("label", table.Readable(k+"="+l.Labels[k]))
		}
		line("token", fmt.Sprint(uint64(l.Token)))
		line("TTL", l.TTL.String())
		if l.LockDelay > 0 {
			line("lock delay", l.LockDelay.String())
		}
		if l.KeepKeys {
			line("at expiry", "keys stay")
		}
		if l.Bound {
			line("bound", "to its key")
		}
		for _, h := range l.Holds {
			line("holds", fmt.Sprintf("%q up to %q", h.Key, h.End))
		}
		for _, k := range l.Keys {
			line("key", table.Readable(k))
		}
	}
	for i := range slices.Backward(m.book.ends) {
		if v := &m.book.ends[i]; v.Lease.ID == o.id {
			line("event", whole(m.now-v.at)+" ago: "+v.Kind.String()+by(v.By))
		}
	}
	return rows
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + table.Readable(who)
}
