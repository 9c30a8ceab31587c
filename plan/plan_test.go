package plan

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

const s = time.Second

// TestClassicalNumbers checks the textbook numbers, without message delay, drift, or lateness.
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

// TestBadInput checks that nonsensical input is rejected with an error that says what to do.
func TestBadInput(t *testing.T) {
	good := Holder{TTL: 10 * s, RoundTrip: s / 50}
	bounds := func(change func(*Holder)) error {
		h := good
		change(&h)
		_, err := Bounds(h, ClassicIssuer(s))
		return err
	}
	sharing := func(change func(*Sharing)) error {
		v := Sharing{Reads: 1, Writes: 1, Caches: 2}
		change(&v)
		_, err := ChooseCaches(v)
		return err
	}
	size := func(change func(*Site)) error {
		v := Site{
			Leases: 1, TTL: s, Members: 1, Cores: 1, Memory: 1, Network: 1,
			Busy: 0.5,
		}
		change(&v)
		_, err := Size(v, DocumentedCosts(1))
		return err
	}
	chance := func(w Weather) error {
		_, err := Chance(good, w)
		return err
	}
	wish := func(w Wish) error {
		_, err := ChooseLength(w)
		return err
	}
	read := func(text string) error {
		_, err := ReadHistogram(strings.NewReader(text))
		return err
	}
	one, err := NewHistogram([]Bin{{Upper: s, Count: 1}})
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
		"no lease":     {bounds(func(h *Holder) { h.TTL = 0 }), "lease length is 0: specify"},
		"below a trip": {bounds(func(h *Holder) { h.TTL = s / 100 }), "use at least 60ms"},
		"renew above":  {bounds(func(h *Holder) { h.Renew = 12 * s }), "every 3.333s"},
		"renew at L":   {bounds(func(h *Holder) { h.Renew = 10 * s }), "every lease ends"},
		"negative renew": {
			bounds(func(h *Holder) { h.Renew = -s }),
			"renewal interval is negative",
		},
		"no attempt fits": {
			bounds(func(h *Holder) { h.Renew = 9990 * time.Millisecond }),
			"no attempt fits: renew",
		},
		"margin": {bounds(func(h *Holder) { h.Margin = 10 * s }), "smaller margin"},
		"drift":  {bounds(func(h *Holder) { h.Drift = 0.5 }), "clock drift is 0.5"},
		"drift of nothing": {
			bounds(func(h *Holder) { h.Drift = math.NaN() }),
			"clock drift is NaN",
		},
		"recovery":        {late, "issuer recovery time is negative"},
		"no levels":       {none, "at least one"},
		"factor":          {flat, "a factor above 1"},
		"too many levels": {deep, "1 to 10"},
		"level":           {short, "plan: the renewal interval of core"},
		"negative reads": {
			sharing(func(v *Sharing) { v.Reads = -1 }),
			"read rate is -1",
		},
		"no reads": {sharing(func(v *Sharing) { v.Reads = 0 }), "nothing to cache"},
		"negative writes": {
			sharing(func(v *Sharing) { v.Writes = -1 }),
			"write rate is -1",
		},
		"no cache": {sharing(func(v *Sharing) { v.Caches = 0 }), "at least 1"},
		"term too short": {
			sharing(func(v *Sharing) { v.Skew, v.Term = s, s/2 }),
			"use more than 1s",
		},
		"negative leases": {
			size(func(v *Site) { v.Leases = -1 }),
			"number of leases is -1",
		},
		"no cores":          {size(func(v *Site) { v.Cores = 0 }), "cores is 0"},
		"share":             {size(func(v *Site) { v.Busy = 2 }), "at most 1"},
		"members":           {size(func(v *Site) { v.Members = 9 }), "3 to 7"},
		"loss":              {chance(Weather{Loss: 1}), "request loss is 1"},
		"pauses, no window": {chance(Weather{Pauses: one}), "how long pauses were counted"},
		"failures": {
			chance(Weather{FailuresAYear: -1}),
			"issuer failures per year is -1",
		},
		"losses": {wish(Wish{}), "losses a year is 0"},
		"long trip": {wish(Wish{
			LossesAYear: 1,
			Holder:      Holder{RoundTrip: Year},
		}), "longer " +
			"leases"},
		"one lease": {
			wish(Wish{LossesAYear: 1, TTLs: []time.Duration{-s}}),
			"is negative",
		},
		"negative lease": {
			wish(Wish{LossesAYear: 1, Leases: -1}),
			"number of leases is -1",
		},
		"not a histogram": {read("fast,3"), `has "fast,3" on line 1`},
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

// TestNoAttempt checks that no renewal fits into a lease shorter than its round trip.
func TestNoAttempt(t *testing.T) {
	if n := (Holder{TTL: s, RoundTrip: 2 * s}).Attempts(); n != 0 {
		t.Errorf("%d attempts", n)
	}
}
