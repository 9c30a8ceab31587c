// Package top is the screen of "leasehold top". It shows snapshots of a cluster on a terminal, or
// as a single page.
//
// The remaining time shown for a lease is the last value from the cluster minus the time since the
// request for it was sent. So unless a lease is revoked, it lives at least that long. Countdowns
// stop while the cluster does not respond.
package top

import (
	"math"
	"time"

	"leasehold.dev/client/leases"
)

// maxLeases is the maximum number of leases in a snapshot. To see other leases, users can select a
// prefix or an owner.
const maxLeases = 20_000

// panes lists the names of the lists. The key that selects a list is its position, starting at 1.
var panes = []string{"leases", "ends", "members"}

const (
	leasesPane = iota
	endsPane
	membersPane
)

// A Snapshot is the state of the cluster at one instant.
type Snapshot struct {
	At      time.Time // time of the request
	Verdict string
	Reasons []string
	Members []Member
	Leases  []leases.Info
	Cut     bool   // whether leases were omitted
	Err     string // why leases could not be read, or ""
}

// Member is the state of a member.
type Member struct {
	Name, ID, Role, Release string
	Error                   string        // why it did not respond
	Took                    time.Duration // response time
	Behind                  uint64        // entries
	State, Quota            int64         // bytes
	Figures                 *Figures      // nil if not available
}

// Figures are the metrics of a member that are shown on the screen. Counters start at 0 when the
// member starts.
type Figures struct {
	Leases, Granted, Expired, Revoked, Renewed, NearMisses float64

	Overdue    time.Duration
	Sync, Late Histogram
}

// Histogram counts values up to each bound. The last bound is infinite.
type Histogram struct {
	Bounds []float64 // seconds
	Counts []uint64
}

// since returns the difference from an earlier reading, or all of h if the member has restarted
// since.
func (h Histogram) since(old Histogram) Histogram {
	if len(old.Counts) != len(h.Counts) || len(h.Counts) == 0 ||
		old.Counts[len(old.Counts)-1] > h.Counts[len(h.Counts)-1] {
		return h
	}
	counts := make([]uint64, len(h.Counts))
	for i := range counts {
		counts[i] = h.Counts[i] - min(old.Counts[i], h.Counts[i])
	}
	return Histogram{h.Bounds, counts}
}

// bound is an upper bound in seconds, or a lower one if over is set: a value in a histogram's last
// bucket has no upper bound.
type bound struct {
	seconds float64
	over    bool
}

// p99 returns the lowest bound that at least 99% of the values do not exceed, or the highest finite
// bound if they do. It returns nil if there are no values.
func (h Histogram) p99() *bound {
	if len(h.Counts) == 0 || h.Counts[len(h.Counts)-1] == 0 {
		return nil
	}
	want := uint64(math.Ceil(0.99 * float64(h.Counts[len(h.Counts)-1])))
	b := new(bound)
	for i, n := range h.Counts {
		if math.IsInf(h.Bounds[i], 1) {
			b.over = true
			break
		}
		b.seconds = h.Bounds[i]
		if n >= want {
			break
		}
	}
	return b
}

// lookBack is the time span covered by histograms. It is long enough to contain a useful number of
// syncs.
const lookBack = time.Minute

// history holds the snapshots of the last minute, oldest first.
type history []Snapshot

func (h history) add(s Snapshot) history {
	h = append(h, s)
	for len(h) > 2 && s.At.Sub(h[1].At) > lookBack {
		h = h[1:]
	}
	return h
}

func (h history) newest() Snapshot {
	if len(h) == 0 {
		return Snapshot{}
	}
	return h[len(h)-1]
}

// figures returns the figures of a member, or nil.
func (s *Snapshot) figures(id string) *Figures {
	for i := range s.Members {
		if s.Members[i].ID == id {
			return s.Members[i].Figures
		}
	}
	return nil
}

// counter is a counter that is shown as a rate. If it is summed, each member counts its own events.
// Otherwise, all members count the same events, and the highest count is shown.
type counter struct {
	name   string
	of     func(*Figures) float64
	summed bool
}

var counters = []counter{
	{"granted", func(f *Figures) float64 { return f.Granted }, false},
	{"renewed", func(f *Figures) float64 { return f.Renewed }, true},
	{"expired", func(f *Figures) float64 { return f.Expired }, false},
	{"revoked", func(f *Figures) float64 { return f.Revoked }, false},
	{"near misses", func(f *Figures) float64 { return f.NearMisses }, true},
}

// rate returns a counter's rate per second between the last two snapshots, or nil if it is unknown.
// If id is empty, it is the rate of the whole cluster, otherwise the rate of one member.
func (h history) rate(c counter, id string) *float64 {
	if len(h) < 2 {
		return nil
	}
	now, before := &h[len(h)-1], &h[len(h)-2]
	total, found := 0.0, false
	for i := range now.Members {
		m := &now.Members[i]
		x, y := m.Figures, before.figures(m.ID)
		if id != "" && m.ID != id || x == nil || y == nil || c.of(x) < c.of(y) {
			continue // the member did not respond, or was restarted
		}
		found = true
		if d := c.of(x) - c.of(y); c.summed {
			total += d
		} else {
			total = max(total, d)
		}
	}
	took := now.At.Sub(before.At).Seconds()
	if !found || took <= 0 {
		return nil
	}
	total /= took
	return &total
}

// recent returns the p99 of a member's histogram over the last minute.
func (h history) recent(id string, of func(*Figures) Histogram) *bound {
	now := h.newest()
	x := now.figures(id)
	if x == nil {
		return nil
	}
	for i := range h[:len(h)-1] {
		if y := h[i].figures(id); y != nil {
			return of(x).since(of(y)).p99()
		}
	}
	return of(x).p99()
}

func syncOf(f *Figures) Histogram { return f.Sync }
func lateOf(f *Figures) Histogram { return f.Late }

// total holds the figures of the whole cluster. A nil figure is unknown.
type total struct {
	leases     *float64
	sync, late *bound // p99 at the slowest member
	overdue    time.Duration
	lag        uint64
}

func (h history) total() (t total) {
	now := h.newest()
	for i := range now.Members {
		x := &now.Members[i]
		t.sync = slower(t.sync, h.recent(x.ID, syncOf))
		t.late = slower(t.late, h.recent(x.ID, lateOf))
		t.lag = max(t.lag, x.Behind)
		if f := x.Figures; f != nil {
			t.overdue = max(t.overdue, f.Overdue)
			if x.Role == "leader" {
				t.leases = &f.Leases
			}
		}
	}
	return t
}

// slower returns the larger of two values, each of which can be unknown.
func slower(a, b *bound) *bound {
	if a == nil || b != nil && (b.seconds > a.seconds || b.seconds == a.seconds && b.over) {
		return b
	}
	return a
}
