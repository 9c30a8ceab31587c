package top

import (
	"math"
	"time"
)

// Cluster is what was found out about the cluster at one moment.
type Cluster struct {
	Verdict string // healthy, degraded or down
	Reasons []string
	Members []Member
}

// Member is what was found out about a member.
type Member struct {
	Name, ID, Role, Version string
	// Error is why it did not answer.
	Error       string
	Took        time.Duration // to answer
	Behind      uint64        // entries
	State, Full int64         // bytes, and how many there may be
	// Figures are what it measures, nil if they cannot be had.
	Figures *Figures
}

// Figures are those of a member's metrics that the screen shows. The counters are since its start.
type Figures struct {
	Leases                    float64
	Granted, Expired, Revoked float64
	Renewed, NearMisses       float64
	CacheWaits                float64
	Overdue                   time.Duration
	Sync, Late                Histogram
}

// Histogram is one of a member: how many were at most as long as each bound. The last bound is
// endless.
type Histogram struct {
	Bounds []float64 // seconds
	Counts []uint64
}

// since returns what came after an earlier reading of the same histogram; all of it if the member
// has begun anew.
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

// add joins two histograms with the same bounds.
func (h Histogram) add(o Histogram) Histogram {
	if len(h.Counts) != len(o.Counts) {
		if len(h.Counts) == 0 {
			return o
		}
		return h
	}
	counts := make([]uint64, len(h.Counts))
	for i := range counts {
		counts[i] = h.Counts[i] + o.Counts[i]
	}
	return Histogram{h.Bounds, counts}
}

// most is the bound that 99 of a hundred do not pass; ok is false if there are none.
func (h Histogram) most() (seconds float64, ok bool) {
	if len(h.Counts) == 0 || h.Counts[len(h.Counts)-1] == 0 {
		return 0, false
	}
	want := uint64(math.Ceil(0.99 * float64(h.Counts[len(h.Counts)-1])))
	for i, n := range h.Counts {
		if n >= want {
			return h.Bounds[i], true
		}
	}
	return math.Inf(1), true
}

// text writes the bound for people.
func (h Histogram) text() string {
	switch s, ok := h.most(); {
	case !ok:
		return "-"
	case math.IsInf(s, 1):
		return "very long"
	default:
		return short(time.Duration(s * float64(time.Second)))
	}
}

// lookedBack is how far back histograms are looked at, so that few syncs are enough to tell.
const lookedBack = time.Minute

// reading is what was found out, and when that began.
type reading struct {
	Cluster
	at time.Duration
}

// readings are the last ones, the newest last.
type readings []reading

func (r readings) add(c Cluster, at time.Duration) readings {
	r = append(r, reading{c, at})
	for len(r) > 2 && r[1].at < at-lookedBack {
		r = r[1:]
	}
	return r
}

// newest returns the last reading; ok is false if there is none.
func (r readings) newest() (x reading, ok bool) {
	if len(r) == 0 {
		return reading{}, false
	}
	return r[len(r)-1], true
}

// figures of a member in a reading, nil if it had none.
func (r reading) figures(id string) *Figures {
	for i := range r.Members {
		if r.Members[i].ID == id {
			return r.Members[i].Figures
		}
	}
	return nil
}

// rate is how much a counter has risen a second between the last two readings that have it; ok is
// false if it cannot be told. What every member counts is that of the one that has seen most, and
// what each counts for itself the sum of all.
func (r readings) rate(c counter) (float64, bool) {
	if len(r) < 2 {
		return 0, false
	}
	now, before := r[len(r)-1], r[len(r)-2]
	total, found := 0.0, false
	for i := range now.Members {
		x, y := now.Members[i].Figures, before.figures(now.Members[i].ID)
		if x == nil || y == nil || c.of(x) < c.of(y) { // it has not answered, or has begun anew
			continue
		}
		found = true
		if d := c.of(x) - c.of(y); c.summed {
			total += d
		} else {
			total = max(total, d)
		}
	}
	took := (now.at - before.at).Seconds()
	return total / max(took, 0.001), found && took > 0
}

// recent is a histogram of a member for the last minute, as far as was read.
func (r readings) recent(id string, of func(*Figures) Histogram) Histogram {
	now, _ := r.newest()
	x := now.figures(id)
	if x == nil {
		return Histogram{}
	}
	for _, old := range r[:len(r)-1] {
		if y := old.figures(id); y != nil {
			return of(x).since(of(y))
		}
	}
	return of(x)
}

// counter is one whose rate is shown.
type counter struct {
	name   string
	of     func(*Figures) float64
	summed bool // each member counts for itself
}

var (
	granted    = counter{"granted", func(f *Figures) float64 { return f.Granted }, false}
	renewed    = counter{"renewed", func(f *Figures) float64 { return f.Renewed }, true}
	expired    = counter{"expired", func(f *Figures) float64 { return f.Expired }, false}
	revoked    = counter{"revoked", func(f *Figures) float64 { return f.Revoked }, false}
	nearMisses = counter{"near misses", func(f *Figures) float64 { return f.NearMisses }, true}
)

// leases is how many there are, as the leader says; ok is false if it does not.
func (r reading) leases() (n int, ok bool) {
	for i := range r.Members {
		if f := r.Members[i].Figures; f != nil && r.Members[i].Role == "leader" {
			n, ok = int(f.Leases), true
		}
	}
	return n, ok
}

// totals are figures of all members together.
type totals struct {
	sync    Histogram // of the slowest
	late    Histogram
	overdue time.Duration
	lag     uint64
	waits   float64
}

func (m *Model) totalsOf(look reading) (t totals) {
	for i := range look.Members {
		x := &look.Members[i]
		t.lag = max(t.lag, x.Behind)
		f := x.Figures
		if f == nil {
			continue
		}
		one := m.looks.recent(x.ID, func(f *Figures) Histogram { return f.Sync })
		a, _ := one.most()
		if b, ok := t.sync.most(); !ok || a > b {
			t.sync = one
		}
		t.late = t.late.add(m.looks.recent(x.ID, func(f *Figures) Histogram { return f.Late }))
		t.overdue, t.waits = max(t.overdue, f.Overdue), t.waits+f.CacheWaits
	}
	return t
}
