package top

import (
	"math"
	"time"

	"leasehold.dev/lease"
)

// Summary is the page as values, for programs. What is not known is nil: of rates all, where a
// member cannot be asked for its metrics or has just begun anew.
type Summary struct {
	Title   string          `json:"title"`
	Verdict string          `json:"verdict"`
	Reasons []string        `json:"reasons"`
	Members []MemberSummary `json:"members"`
	Leases  *int            `json:"leases"`
	Rates   Rates           `json:"per_second"`
	// LogSync is of the slowest member, in seconds, and so is Late; 99 of 100 take no longer.
	LogSync     *float64 `json:"log_sync_p99_seconds"`
	Late        *float64 `json:"late_p99_seconds"`
	Overdue     float64  `json:"overdue_seconds"`
	Lag         uint64   `json:"lag_entries"`
	CacheWrites int      `json:"cache_writes_waiting"`

	Pane string `json:"pane"`
	// Rows are the first of the list that the pane shows. Those of members are above.
	Rows []any `json:"rows"`
	More int   `json:"more"` // rows that are left out
	// Cut says that there are more leases, or keys to look for wait queues in, than were looked at.
	Cut bool `json:"cut"`
}

// Rates are of the time between the last two looks at the cluster.
type Rates struct {
	Granted    *float64 `json:"granted"`
	Renewed    *float64 `json:"renewed"`
	Expired    *float64 `json:"expired"`
	Revoked    *float64 `json:"revoked"`
	NearMisses *float64 `json:"near_misses"`
}

// MemberSummary is what is known of a member.
type MemberSummary struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`
	Role    string   `json:"role"`
	Version string   `json:"version"`
	Error   string   `json:"error,omitempty"` // why it did not answer
	Took    float64  `json:"took_seconds"`
	Lag     uint64   `json:"lag_entries"`
	LogSync *float64 `json:"log_sync_p99_seconds"`
	Renewed *float64 `json:"renewed_per_second"`
	State   int64    `json:"state_bytes"`
	Quota   int64    `json:"quota_bytes"`
}

// leaseValue is a row of the pane of leases, of ends or, without what only these have, of waits.
type leaseValue struct {
	ID    string  `json:"id"`
	Token uint64  `json:"token,string"`
	Name  string  `json:"name"`
	Owner string  `json:"owner"`
	State string  `json:"state"`   // ended, if it has ended meanwhile
	Left  *millis `json:"left_ms"` // at least
	TTL   millis  `json:"ttl_ms"`
	Keys  int64   `json:"keys"`
}

// groupValue is a row of the panes of prefixes and of owners.
type groupValue struct {
	Name     string `json:"name"`
	Leases   int    `json:"leases"`
	Owners   *int   `json:"owners,omitempty"`
	Prefixes *int   `json:"prefixes,omitempty"`
	Expiring int    `json:"expiring"`
	Delayed  int    `json:"delayed"`
}

// eventValue is a row of the pane of ends: an end that is coming, or something that has happened.
type eventValue struct {
	What  string  `json:"what"`
	By    string  `json:"by,omitempty"`
	ID    string  `json:"id"`
	Name  string  `json:"name"`
	Owner string  `json:"owner"`
	Left  *millis `json:"left_ms,omitempty"` // at least
	Ago   *millis `json:"ago_ms,omitempty"`
}

// waitValue is a row of the pane of waits. Holders and waiters are leases.
type waitValue struct {
	Queue   string   `json:"queue"`
	Kind    string   `json:"kind"`
	Holder  string   `json:"holder,omitempty"`
	Left    *millis  `json:"left_ms,omitempty"` // of the holder, at least
	Waiters []string `json:"waiters"`
}

// millis is a time in milliseconds.
type millis int64

func millisOf(d time.Duration) *millis {
	ms := millis(d.Milliseconds())
	return &ms
}

// Summary returns what is known of the cluster, and the first rows of the list.
func (m *Model) Summary(rows int) Summary {
	m.height, m.at = rows, position{}
	m.pick()
	look, _ := m.looks.newest()
	s := Summary{
		Title: m.options.Title, Verdict: look.Verdict, Reasons: append([]string{}, look.Reasons...),
		Members: make([]MemberSummary, len(look.Members)), Rates: m.ratesOf(), Rows: []any{},
		Pane: PaneNames[m.pane], Cut: m.book.cut || m.pane == Waits && m.waits.more,
	}
	if m.pane == Waits && m.waits.err != "" {
		s.Reasons = append(s.Reasons, "the keys cannot be read: "+m.waits.err)
	}
	for i := range look.Members {
		s.Members[i] = m.memberSummary(&look.Members[i])
	}
	if n, ok := look.leases(); ok {
		s.Leases = &n
	}
	t := m.totalsOf(look)
	s.LogSync, s.Late, s.Overdue = t.sync.value(), t.late.value(), t.overdue.Seconds()
	s.Lag, s.CacheWrites = t.lag, int(t.waits)
	if m.pane == Members {
		return s
	}
	for i := range m.rows[:min(rows, len(m.rows))] {
		s.Rows = append(s.Rows, m.valueOf(&m.rows[i]))
	}
	s.More = len(m.rows) - len(s.Rows)
	return s
}

func (m *Model) memberSummary(x *Member) MemberSummary {
	out := MemberSummary{
		Name: x.Name, ID: x.ID, Role: x.Role, Version: x.Version, Error: x.Error,
		Took: x.Took.Seconds(), Lag: x.Behind, State: x.State, Quota: x.Full,
	}
	if x.Figures != nil {
		out.LogSync = m.looks.recent(x.ID, func(f *Figures) Histogram { return f.Sync }).value()
		out.Renewed = rateValue(m.looks.only(x.ID).rate(renewed))
	}
	return out
}

func (m *Model) ratesOf() Rates {
	of := func(c counter) *float64 { return rateValue(m.looks.rate(c)) }
	return Rates{
		Granted: of(granted), Renewed: of(renewed), Expired: of(expired), Revoked: of(revoked),
		NearMisses: of(nearMisses),
	}
}

func rateValue(rate float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	return &rate
}

// value is the bound as a value, nil if there is none.
func (h Histogram) value() *float64 {
	if s, ok := h.most(); ok && !math.IsInf(s, 1) {
		return &s
	}
	return nil
}

// valueOf is a row as a value.
func (m *Model) valueOf(r *row) any {
	if r.value != nil {
		return r.value
	}
	e := m.book.all[r.lease]
	if e == nil {
		return leaseValue{ID: hexID(r.lease), State: "ended"}
	}
	return leaseValue{
		ID: hexID(e.ID), Token: uint64(e.Token), Name: e.Name, Owner: e.Owner, State: e.state(),
		Left: m.leftValue(e.ID), TTL: *millisOf(e.TTL), Keys: e.KeyCount,
	}
}

// leftValue is left as a value, nil if nothing certain is known.
func (m *Model) leftValue(id lease.ID) *millis {
	e := m.book.all[id]
	if e == nil {
		return nil
	}
	at, ok := e.until()
	if !ok || at <= m.heard() {
		return nil
	}
	return millisOf(at - m.heard())
}
