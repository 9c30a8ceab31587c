package plan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// upTo draws a duration in whole milliseconds.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most/time.Millisecond)+1)) * time.Millisecond
}

// anyHolder draws a random valid holder.
func anyHolder(r *rand.Rand) Holder {
	for {
		h := Holder{
			TTL: upTo(r, time.Minute), RoundTrip: upTo(r, s), Retry: upTo(r, s),
			Margin: upTo(r, s), Drift: r.Float64() / 10,
		}
		h.Renew = time.Duration(float64(h.TTL) * (0.05 + 0.9*r.Float64()))
		if h.Check() == nil {
			return h
		}
	}
}

func bounds(t *testing.T, h Holder, i Issuer) Outage {
	t.Helper()
	o, err := Bounds(h, i)
	if err != nil {
		t.Fatalf("%+v, %+v: %v", h, i, err)
	}
	return o
}

// issuers returns one issuer of each type.
func issuers(ttl, recovery time.Duration) []Issuer {
	return []Issuer{
		ClassicIssuer(recovery), RefreshingIssuer(recovery),
		Leasehold(ttl, recovery), Leasehold(ttl, recovery).Silent(),
	}
}

// TestOutageInOrder checks the order of the bounds for random choices: no holder acts after its
// lease has ended, no death is detected before that is possible, and no bound improves if the
// issuer fails.
func TestOutageInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	for range 2000 {
		h, recovery := anyHolder(r), s+upTo(r, 10*s)
		for _, i := range issuers(h.TTL, recovery) {
			o := bounds(t, h, i)
			ok := o.Valid <= h.TTL && h.TTL <= o.NoticeTo && o.NoticeFrom <= o.NoticeTo &&
				o.NoticeFrom <= o.Typical && o.Typical <= o.Alone && o.NoticeTo <= o.Alone &&
				o.Alone+recovery <= o.Worst && o.Attempts >= 1
			if !ok || o.HealthyLose() != (recovery > o.Survivable) {
				t.Fatalf("%+v", o)
			}
			if better := bounds(t, h, i.Silent()); better.Worst < o.Worst {
				t.Fatalf("%+v\nis worse than for a holder that falls silent\n%+v", o, better)
			}
		}
		classic := bounds(t, h, ClassicIssuer(recovery))
		forgets := bounds(t, h, RefreshingIssuer(recovery))
		if classic.Worst > forgets.Worst || classic.Slack != forgets.Slack {
			t.Fatalf("%+v\nis worse than for an issuer that forgets\n%+v", classic, forgets)
		}
	}
}

// TestOutageIsMonotonic checks that more drift, slower messages, a margin, or a longer issuer
// outage never improve a bound.
func TestOutageIsMonotonic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for name, worsen := range map[string]func(*Holder, *Issuer){
		"drift":    func(h *Holder, _ *Issuer) { h.Drift += 0.01 },
		"trip":     func(h *Holder, _ *Issuer) { h.RoundTrip += 10 * time.Millisecond },
		"margin":   func(h *Holder, _ *Issuer) { h.Margin += 10 * time.Millisecond },
		"retry":    func(h *Holder, _ *Issuer) { h.Retry += 10 * time.Millisecond },
		"recovery": func(_ *Holder, i *Issuer) { i.Recovery += 10 * time.Millisecond },
		"lateness": func(_ *Holder, i *Issuer) { i.Lateness += 10 * time.Millisecond },
	} {
		for range 300 {
			h := anyHolder(r)
			for _, i := range issuers(h.TTL, s+upTo(r, 10*s)) {
				worse, issuer := h, i
				worsen(&worse, &issuer)
				b, err := Bounds(worse, issuer)
				if err != nil {
					continue // no attempt fits anymore
				}
				a := bounds(t, h, i)
				if b.Worst < a.Worst || b.Alone < a.Alone || b.Valid > a.Valid || b.Slack > a.Slack ||
					b.Survivable > a.Survivable || h.Retry > 0 && b.Attempts > a.Attempts {
					t.Fatalf("%s: %+v\nis better than\n%+v", name, b, a)
				}
			}
		}
	}
}

// TestShortestTTL checks that the shortest recommended lease survives a failure of the issuer, and
// that a slightly shorter one, renewed after the same fraction of its TTL, does not.
func TestShortestTTL(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 10))
	tested := 0
	for range 2000 {
		h, recovery := anyHolder(r), s+upTo(r, 10*s)
		share := float64(h.Renew) / float64(h.TTL)
		ttl := bounds(t, h, ClassicIssuer(recovery)).ShortestTTL()
		if ttl == 0 || ttl > time.Hour {
			continue
		}
		tested++
		for by, lose := range map[time.Duration]bool{
			20 * time.Microsecond: false, -20 * time.Microsecond: true,
		} {
			x := h
			x.TTL = ttl + time.Duration(float64(by)/(1-h.Drift-share))
			x.Renew = time.Duration(share * float64(x.TTL))
			o, err := Bounds(x, ClassicIssuer(recovery))
			if err == nil && o.HealthyLose() != lose {
				t.Fatalf("%+v, %v away: the shortest lease is %v, and of %v they lose: %v", h, recovery, ttl,
					x.TTL, !lose)
			}
		}
	}
	if tested < 1000 {
		t.Errorf("only %d are told", tested)
	}
}

// TestChainAddsUp checks that in a chain of leases, each level's worst case exceeds that of the
// level above by at least its own TTL, and that its required TTL exceeds the recovery that it waits
// for.
func TestChainAddsUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 11))
	for range 500 {
		holders := []Holder{anyHolder(r), anyHolder(r), anyHolder(r)}
		base := upTo(r, 10*s)
		chain, err := Chain(base, []string{"a", "b", "c"}, holders)
		if err != nil {
			t.Fatal(err)
		}
		above := base
		for i, l := range chain {
			if l.Recovery != above || l.Worst < above+holders[i].TTL ||
				l.Needs > 0 && above > 0 && l.Needs <= above {
				t.Fatalf("level %d of %+v", i, chain)
			}
			above = l.Worst
		}
	}
}

// TestCachesByTheModel checks Gray and Cheriton's model. A longer term never causes more load than
// a shorter useful one, an infinite term has a load of 1/alpha, and the break-even term has the
// same load as no lease.
func TestCachesByTheModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 12))
	for range 2000 {
		v := Sharing{
			Reads: 0.01 + r.Float64(), Writes: r.Float64() / 10, Caches: float64(2 + r.IntN(20)),
			Propagation: upTo(r, 50*time.Millisecond), Processing: upTo(r, 5*time.Millisecond),
			Skew: upTo(r, s),
		}
		c, err := ChooseCaches(v)
		if err != nil {
			t.Fatal(err)
		}
		last := math.Inf(1)
		for _, p := range c.Curve {
			if p.Load != v.Load(p.Term) || p.Delay != v.Delay(p.Term) {
				t.Fatalf("%+v: the curve has %+v", v, p)
			}
			if v.Effective(p.Term) == 0 {
				if p.Load != 1 {
					t.Fatalf("%+v: a term of nothing loads the server %v", v, p.Load)
				}
				continue
			}
			if p.Load > last || p.Load < c.Limit {
				t.Fatalf("%+v: at %v the load is %v, after %v, limit %v", v, p.Term, p.Load, last, c.Limit)
			}
			last = p.Load
		}
		if end := v.Load(1e6 * time.Hour); math.Abs(end-c.Limit) > 1e-3 {
			t.Fatalf("%+v: an endless term loads the server %v, limit %v", v, end, c.Limit)
		}
		if c.Worth && math.Abs(v.Load(c.BreakEven)-1) > 1e-3 || c.Worth && c.At.Load >= 1 {
			t.Fatalf("%+v: %v at the term that breaks even, %+v", v, v.Load(c.BreakEven), c.At)
		}
	}
}

// TestCellCapacity checks that the recommended number of cells can carry the leases and one fewer
// cannot, and that a cell with twice the resources carries twice as many leases.
func TestCellCapacity(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 13))
	costs := DocumentedCosts(3)
	for range 1000 {
		v := Site{
			Leases: 1 + float64(r.IntN(1e7)), TTL: s + upTo(r, time.Minute), Keys: float64(r.IntN(5)),
			Members: 3, Cores: 1 + float64(r.IntN(8)), Memory: 1e9 * (1 + 10*r.Float64()), Network: 1e8,
			Busy: 0.1 + 0.9*r.Float64(), Quota: 2e9,
		}
		one, err := Size(v, costs)
		if err != nil {
			t.Fatal(err)
		}
		if one.Cells*one.PerCell < v.Leases-1e-6 || (one.Cells-1)*one.PerCell >= v.Leases {
			t.Fatalf("%+v: %v cells of %v leases", v, one.Cells, one.PerCell)
		}
		v.Cores, v.Memory, v.Network, v.Quota = 2*v.Cores, 2*v.Memory, 2*v.Network, 2*v.Quota
		two, err := Size(v, costs)
		if err != nil || math.Abs(two.PerCell-2*one.PerCell) > 1e-6*two.PerCell {
			t.Fatalf("%+v: %v leases a cell, and %v in half of it: %v", v, two.PerCell, one.PerCell, err)
		}
	}
}

// TestHistogramMatchesList checks that a histogram gives the same answers as a list of all counted
// values.
func TestHistogramMatchesList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 14))
	for range 500 {
		var bins []Bin
		var list []time.Duration
		for range 1 + r.IntN(6) {
			b := Bin{Upper: upTo(r, 20*time.Millisecond), Count: float64(r.IntN(4))}
			bins = append(bins, b)
			for range int(b.Count) {
				list = append(list, b.Upper)
			}
		}
		h, err := NewHistogram(bins)
		if err != nil {
			t.Fatal(err)
		}
		longest := time.Duration(0)
		for _, d := range list {
			longest = max(longest, d)
		}
		if h.Count() != float64(len(list)) || h.Max() != longest {
			t.Fatalf("%v: counts %v, longest %v", bins, h.Count(), h.Max())
		}
		for range 5 {
			d, above := upTo(r, 25*time.Millisecond), 0
			for _, x := range list {
				if x > d {
					above++
				}
			}
			want := float64(above) / max(1, float64(len(list)))
			if got := h.Above(d); math.Abs(got-want) > 1e-12 {
				t.Fatalf("%v: above %v: %v, want %v", bins, d, got, want)
			}
			q := r.Float64()
			if x := h.Quantile(q); len(list) > 0 && h.Above(x) > 1-q+1e-12 {
				t.Fatalf("%v: the share %v is at most %v, and %v is above it", bins, q, x, h.Above(x))
			}
		}
		twice, err := h.Plus(h, 2)
		if err != nil || twice.Count() != 3*h.Count() || twice.Quantile(0.5) != h.Quantile(0.5) {
			t.Fatalf("%v, and twice as much more: %v, half %v: %v", bins, twice.Count(),
				twice.Quantile(0.5), err)
		}
	}
}
