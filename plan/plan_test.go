package plan

import (
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 1, "seed of the simulations")

const s = time.Second

// Goal: the numbers of the textbooks. Method: no messages, no drift, no lateness.
func TestClassicalNumbers(t *testing.T) {
	o, err := Bounds(Holder{TTL: 10 * s, Renew: 3 * s}, ClassicIssuer(6*s))
	if err != nil {
		t.Fatal(err)
	}
	if o.Worst != 16*s || o.Slack != s || o.Survivable != 7*s || o.HealthyLose() {
		t.Errorf("L 10, T 3, D 6: %+v", o)
	}
	if o.NoticeFrom != 7*s || o.NoticeTo != 10*s || o.Typical != 8500*time.Millisecond {
		t.Errorf("a dead holder is noticed after %v to %v, typically %v", o.NoticeFrom, o.NoticeTo,
			o.Typical)
	}
	o, err = Bounds(Holder{TTL: 10 * s, Renew: 3 * s}, ClassicIssuer(9*s))
	if err != nil || !o.HealthyLose() || o.Slack != -2*s {
		t.Errorf("D 9 is 2 s above L - T: %+v, %v", o, err)
	}
	o, err = Bounds(Holder{TTL: 10 * s, Renew: 3 * s}, RefreshingIssuer(6*s))
	if err != nil || o.Worst != 26*s {
		t.Errorf("an issuer that refreshes: 2L + D: %+v, %v", o, err)
	}
}

// Goal: 10 s above, 25 s by the rule of thumb, 35 s without a holder at worst; and
// what the rule does not say: it holds no more at the third level if renewed at
// half. Method: the chain of the textbooks.
func TestLevels(t *testing.T) {
	holders, err := ThumbChain(Holder{TTL: 10 * s, Renew: 5 * s}, ThumbFactor, 3)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := Chain(0, []string{"core", "primary", "part"}, holders)
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ ttl, worst, slack, needs time.Duration }
	for i, want := range []row{
		{10 * s, 10 * s, 5 * s, 0},
		{25 * s, 35 * s, 2500 * time.Millisecond, 20 * s},
		{62500 * time.Millisecond, 97500 * time.Millisecond, -3750 * time.Millisecond, 70 * s},
	} {
		l := chain[i]
		if got := (row{l.Holder.TTL, l.Worst, l.Slack, l.Needs}); got != want {
			t.Errorf("level %d: %+v, want %+v", i, got, want)
		}
	}
}

// Goal: figures that Gray and Cheriton report for V: a read rate of 0.864/s, a
// write rate of 0.04/s, and a term of 10 s that leaves a tenth of the messages.
func TestCacheFigures(t *testing.T) {
	v := Sharing{
		Reads: 0.864, Writes: 0.04, Caches: 1,
		Propagation: time.Millisecond / 2, Processing: time.Millisecond, Skew: s / 10, Term: 10 * s,
	}
	c, err := Cache(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := 10*s - 102500*time.Microsecond; c.Effective != want {
		t.Errorf("t_c = %v, want %v", c.Effective, want)
	}
	if c.At.Load < 0.10 || c.At.Load > 0.11 {
		t.Errorf("load %v of that without leases, want about a tenth", c.At.Load)
	}
	if c.Recommended < 10*s || c.Recommended > 11*s {
		t.Errorf("recommended: %v, want about 10 s", c.Recommended)
	}
	v.Caches = 10
	if c, err = Cache(v); err != nil {
		t.Fatal(err)
	}
	if math.Abs(c.Benefit-4.32) > 1e-9 || math.Abs(c.Limit-1/4.32) > 1e-9 {
		t.Errorf("alpha %v, limit %v", c.Benefit, c.Limit)
	}
	if load := v.Load(c.BreakEven); math.Abs(load-1) > 1e-6 {
		t.Errorf("at the break-even term %v the load is %v", c.BreakEven, load)
	}
	v.Caches = 100
	if c, err = Cache(v); err != nil || c.Worth || c.Recommended != 0 || c.At.Load < 2 {
		t.Errorf("with alpha %v leases do not pay: %v, %v", c.Benefit, c.Recommended, err)
	}
}

// Goal: the chance of losing a healthy lease. Method: bad networks and long pauses,
// played attempt by attempt with independent draws.
func TestChance(t *testing.T) {
	rtt,
		err := ReadHistogram(strings.NewReader("upper_ms,count\n100,500000\n400,300000\n900,200000\n"))
	if err != nil {
		t.Fatal(err)
	}
	pauses, err := ReadHistogram(strings.NewReader("# of a bad machine\n500,50\n2500,30\n4000,5"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		w    Weather
	}{
		{"loss", Weather{RoundTrip: rtt, Loss: 0.2}},
		{"pauses", Weather{RoundTrip: rtt, Loss: 0.05, Pauses: pauses, PausesSeen: 10 * time.Minute}},
		{"issuer", Weather{RoundTrip: rtt, FailuresAYear: 4_000_000, Recovery: 1500 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := Holder{TTL: 3 * s, RoundTrip: 900 * time.Millisecond, Retry: s / 2}
			l, err := Chance(h, c.w)
			if err != nil {
				t.Fatal(err)
			}
			const n = 400_000
			lost := playCycles(h, c.w, rand.New(rand.NewPCG(*seed, 11)), n)
			got := float64(lost) / n * float64(Year) / float64(h.Interval())
			t.Logf("%+v; simulated %v losses a year (%d)", l, got, lost)
			if got < 0.93*l.LossesAYear || got > 1.07*l.LossesAYear {
				t.Errorf("%v losses a year simulated, %v computed", got, l.LossesAYear)
			}
		})
	}
}

// playCycles counts the cycles of n in which no renewal is answered in time.
func playCycles(h Holder, w Weather, rng *rand.Rand, n int) (lost int) {
	renew, valid := h.Interval(), h.Valid()
	draw := func(from Histogram) time.Duration {
		x := rng.Float64() * from.Count()
		for i, b := range from.bins {
			if x < from.below[i] {
				return b.Upper
			}
		}
		return from.Max()
	}
	perCycle := func(count float64, seen time.Duration) bool {
		return seen > 0 && rng.Float64() < count*float64(renew)/float64(seen)
	}
	for range n {
		from, down, back := renew, time.Duration(-1), time.Duration(-1)
		if perCycle(w.Pauses.Count(), w.PausesSeen) {
			from = max(from, scale(renew, rng.Float64())+draw(w.Pauses))
		}
		if perCycle(w.FailuresAYear, Year) {
			down = scale(renew, rng.Float64())
			back = down + w.Recovery
		}
		ok := false
		for at := from; at < valid && !ok; at += h.Retry {
			away := at >= down && at < back
			ok = !away && rng.Float64() >= w.Loss && at+draw(w.RoundTrip) <= valid
		}
		if !ok {
			lost++
		}
	}
	return lost
}

// Goal: the pick loses less than was wished, and everything shorter at its share
// does not grant the wish; sentences name the user's numbers.
func TestChoose(t *testing.T) {
	w := Wish{
		Holder:      Holder{RoundTrip: DefaultRoundTrip, Retry: DefaultRetry, Drift: DefaultDrift},
		Weather:     Weather{RoundTrip: AssumedRoundTrips(), FailuresAYear: 12, Recovery: RecoveryCutOff},
		LossesAYear: 0.1, Leases: 1000,
	}
	w.Weather.Pauses, w.Weather.PausesSeen = AssumedPauses()
	c, err := Choose(w)
	if err != nil {
		t.Fatal(err)
	}
	if !c.OK || c.Best.LossesAYear > 0.1 || c.Best.Holder.TTL > DefaultTTL {
		t.Errorf("best: %+v", c.Best)
	}
	for _, l := range c.All {
		if l.Holder.TTL < c.Best.Holder.TTL && w.good(l) {
			t.Errorf("%+v is shorter and good", l)
		}
	}
	text := strings.Join(c.Explain(), "\n")
	for _, word := range []string{"TAKE", "TOO SHORT", "TOO LONG", c.Best.Holder.TTL.String()} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in\n%s", word, text)
		}
	}
	w.LossesAYear, w.Weather.Loss = 1e-9, 0.9
	if c, err = Choose(w); err != nil || c.OK || !strings.Contains(c.Explain()[0], "NONE") {
		t.Errorf("nothing is that good: %+v, %v", c.Best, err)
	}
}

// Goal: capacity by hand. Method: round numbers.
func TestSize(t *testing.T) {
	site := Site{
		Leases: 1e6, TTL: 10 * s, Renew: 5 * s, Keys: 1, Members: 3,
		Cores: 2, Memory: 8e9, Network: 125e6, Busy: 0.5,
	}
	c, err := Size(site, Costs{
		Renew: 10 * time.Microsecond, Grant: 100 * time.Microsecond, RenewBytes: 100,
		LeaseBytes: 300, KeyBytes: 1000, Expiries: 100_000, Restart: 2 * s,
	})
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }
	if !near(c.RenewalsASecond, 200_000) || !near(c.Cores, 2) || !near(c.Memory,
		1.3e9) || !near(c.BytesASecond, 20e6) {
		t.Errorf("load: %+v", c)
	}
	if !near(c.PerCell, 500_000) || c.Cells != 2 || c.Limits[0].Name != "CPU of the leader" {
		t.Errorf("limits: %+v", c)
	}
	if c.AllEnd != 5*s || c.GrantAll != 50*s || c.Restart != s {
		t.Errorf("bad day: %+v", c)
	}
	site.Leases = 1e30 // more cells than an integer counts
	if c, err = Size(site, DocumentedCosts(3)); err != nil || c.Cells < 1e20 {
		t.Errorf("far too many: %+v, %v", c, err)
	}
}

// Goal: input that makes no sense is an InputError that says what to do.
func TestBadInput(t *testing.T) {
	good := Holder{TTL: 10 * s, RoundTrip: s / 50}
	bounds := func(change func(*Holder)) error {
		h := good
		change(&h)
		_, err := Bounds(h, ClassicIssuer(s))
		return err
	}
	caches := func(change func(*Sharing)) error {
		v := Sharing{Reads: 1, Writes: 1, Caches: 2}
		change(&v)
		_, err := Cache(v)
		return err
	}
	size := func(change func(*Site)) error {
		v := Site{Leases: 1, TTL: s, Members: 1, Cores: 1, Memory: 1, Network: 1, Busy: 0.5}
		change(&v)
		_, err := Size(v, DocumentedCosts(1))
		return err
	}
	chance := func(w Weather) error {
		_, err := Chance(good, w)
		return err
	}
	wish := func(w Wish) error {
		_, err := Choose(w)
		return err
	}
	read := func(text string) error {
		_, err := ReadHistogram(strings.NewReader(text))
		return err
	}
	one, err := NewHistogram([]Bin{{s, 1}})
	if err != nil {
		t.Fatal(err)
	}
	_, late := Bounds(good, ClassicIssuer(-s))
	_, none := Chain(0, nil, nil)
	_, flat := ThumbChain(good, 1, 2)
	_, deep := ThumbChain(good, 2, 11)
	_, short := Chain(0, []string{"core"}, []Holder{{TTL: s, Renew: 2 * s}})
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no lease":       {bounds(func(h *Holder) { h.TTL = 0 }), "lease length is 0: give"},
		"below a trip":   {bounds(func(h *Holder) { h.TTL = s / 100 }), "take at least 60ms"},
		"renew above":    {bounds(func(h *Holder) { h.Renew = 12 * s }), "every 3.333s"},
		"renew at L":     {bounds(func(h *Holder) { h.Renew = 10 * s }), "every lease ends"},
		"negative renew": {bounds(func(h *Holder) { h.Renew = -s }), "renewal interval is negative"},
		"no attempt fits": {bounds(func(h *Holder) { h.Renew = 9990 * time.Millisecond }), "not " +
			"one attempt"},
		"margin":            {bounds(func(h *Holder) { h.Margin = 10 * s }), "smaller margin"},
		"drift":             {bounds(func(h *Holder) { h.Drift = 0.5 }), "clock drift is 0.5"},
		"drift of nothing":  {bounds(func(h *Holder) { h.Drift = math.NaN() }), "clock drift is NaN"},
		"recovery":          {late, "recovery time of the issuer is negative"},
		"no levels":         {none, "at least one"},
		"factor":            {flat, "more than 1"},
		"too many levels":   {deep, "1 to 10"},
		"level":             {short, "core: plan: the renewal interval"},
		"negative reads":    {caches(func(v *Sharing) { v.Reads = -1 }), "rate of reads is -1"},
		"no reads":          {caches(func(v *Sharing) { v.Reads = 0 }), "nothing to cache"},
		"negative writes":   {caches(func(v *Sharing) { v.Writes = -1 }), "rate of writes is -1"},
		"no cache":          {caches(func(v *Sharing) { v.Caches = 0 }), "at least 1"},
		"term too short":    {caches(func(v *Sharing) { v.Skew, v.Term = s, s/2 }), "take more than 1s"},
		"negative leases":   {size(func(v *Site) { v.Leases = -1 }), "number of leases is -1"},
		"no cores":          {size(func(v *Site) { v.Cores = 0 }), "cores is 0"},
		"share":             {size(func(v *Site) { v.Busy = 2 }), "at most 1"},
		"members":           {size(func(v *Site) { v.Members = 9 }), "3 to 7"},
		"loss":              {chance(Weather{Loss: 1}), "loss of requests is 1"},
		"pauses, no window": {chance(Weather{Pauses: one}), "how long was looked"},
		"failures":          {chance(Weather{FailuresAYear: -1}), "failures of the issuer a year is -1"},
		"losses":            {wish(Wish{}), "losses a year is 0"},
		"long trip": {wish(Wish{LossesAYear: 1, Holder: Holder{RoundTrip: Year}}), "longer " +
			"leases"},
		"one lease":       {wish(Wish{LossesAYear: 1, TTLs: []time.Duration{-s}}), "is negative"},
		"negative lease":  {wish(Wish{LossesAYear: 1, Leases: -1}), "number of leases is -1"},
		"not a histogram": {read("fast,3"), `has "fast,3" in line 1`},
		"empty histogram": {read("upper_ms,count\n"), "counts nothing"},
		"negative count":  {read("1,-1"), "count of a bin is -1"},
	} {
		var in *InputError
		if !errors.As(c.err, &in) {
			t.Errorf("%s: %v", name, c.err)
			continue
		}
		if !strings.Contains(c.err.Error(), c.want) || in.Advice == "" {
			t.Errorf("%s: %q does not say %q", name, c.err, c.want)
		}
	}
}

// Goal: bins are sorted also where their edges are further apart than 32 bits can say.
func TestHistogramOrder(t *testing.T) {
	h, err := NewHistogram([]Bin{{5 * s, 1}, {time.Hour, 2}, {s, 3}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Bin{{s, 3}, {5 * s, 1}, {time.Hour, 2}}; !slices.Equal(h.bins, want) {
		t.Errorf("bins %+v, want %+v", h.bins, want)
	}
}

// Goal: what is written is read again.
func TestHistogramRoundTrip(t *testing.T) {
	h, err := NewHistogram([]Bin{{2 * s, 3}, {1500 * time.Microsecond, 7}})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := h.Write(&text); err != nil {
		t.Fatal(err)
	}
	back, err := ReadHistogram(strings.NewReader(text.String()))
	if err != nil || !slices.Equal(back.bins, h.bins) {
		t.Errorf("%q: %+v, %v", text.String(), back, err)
	}
	for d, want := range map[time.Duration]float64{
		0: 1, time.Millisecond: 1, 1500 * time.Microsecond: 0.3, s: 0.3, 2 * s: 0, 3 * s: 0,
	} {
		if got := h.Above(d); math.Abs(got-want) > 1e-12 {
			t.Errorf("above %v: %v, want %v", d, got, want)
		}
	}
	if h.Quantile(0.5) != 1500*time.Microsecond || h.Quantile(1) != 2*s || h.Max() != 2*s {
		t.Errorf("quantiles %v %v, max %v", h.Quantile(0.5), h.Quantile(1), h.Max())
	}
}
