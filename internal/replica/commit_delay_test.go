package replica

import (
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// answeredAt returns a commitDelay for which one command was answered at each of the given instants.
func answeredAt(at ...lease.Instant) *commitDelay {
	d := &commitDelay{}
	for _, t := range at {
		d.answered(t)
	}
	return d
}

// eight stands for eight commands answered at the same time.
var eight = make([]lease.Instant, 8)

// TestDelayHolds checks that commands wait while fewer of them have arrived than expected. The
// number expected is seven eighths of the callers that were answered or are already waiting.
// Commands never wait before the log is free or for longer than the limit, and they do not wait for
// callers that were answered too long ago.
func TestDelayHolds(t *testing.T) {
	free := func(d *commitDelay, n int) *commitDelay {
		d.free(n)
		return d
	}
	ended := free(answeredAt(eight...), 0)
	ended.end()
	for name, c := range map[string]struct {
		d    *commitDelay
		n    int
		now  lease.Instant
		want bool
	}{
		"no one was answered":            {free(&commitDelay{}, 3), 1, 0, false},
		"the log is not free":            {answeredAt(eight...), 1, 0, false},
		"one of eight":                   {free(answeredAt(eight...), 0), 1, 0, true},
		"six of eight":                   {free(answeredAt(eight...), 0), 6, 0, true},
		"seven of eight":                 {free(answeredAt(eight...), 0), 7, 0, false},
		"waiting callers count":          {free(answeredAt(eight...), 8), 13, 0, true},
		"waiting callers are present":    {free(answeredAt(eight...), 8), 14, 0, false},
		"a single caller":                {free(answeredAt(0), 0), 1, 0, false},
		"the log was free twice":         {free(free(answeredAt(eight...), 0), 9), 7, 0, false},
		"long enough":                    {ended, 1, 0, false},
		"soon after the first answer":    {free(answeredAt(1000, 1003), 0), 1, 1005, true},
		"a while after the first answer": {free(answeredAt(1000, 1003), 0), 1, 1006, false},
	} {
		if got := c.d.holds(c.n, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDelayAlternating checks that callers in the previous entry count as well, but not those in
// earlier entries. Two callers that take turns never wait at the same time.
func TestDelayAlternating(t *testing.T) {
	d := answeredAt(0)
	d.free(1)
	d.proposed(1)
	for i, want := range []bool{true, false} {
		d.answered(0)
		d.free(0)
		if got := d.holds(1, 0); got != want {
			t.Errorf("entry %d after two callers were seen: one waits: %v", i+1, got)
		}
		d.proposed(2) // if there was a delay, the other caller has arrived
	}
}

// entry proposes one entry, for which eight commands are expected. had is the number of pending
// commands when the log becomes free, and came is the number when the entry is proposed. It reports
// whether there was a delay.
func (d *commitDelay) entry(had, came int) (delayed bool) {
	for range 8 - had {
		d.answered(0)
	}
	d.free(had)
	delayed = d.holds(had, 0)
	d.proposed(came)
	return delayed
}

// TestDelayFailures checks that if fewer than half of the expected callers arrive, the next entries are
// not delayed. The number of undelayed entries grows with each consecutive failure, up to 30. It is
// reset once at least half of the callers arrive.
func TestDelayFailures(t *testing.T) {
	d := &commitDelay{}
	skipped := func(had, came int) (list []int) {
		for n := 0; len(list) < 7; n++ {
			if d.entry(had, came) {
				list = append(list, n)
				n = -1
			}
		}
		return list
	}
	if got, want := skipped(1, 3), []int{0, 0, 2, 6, 14, 30, 30}; !slices.Equal(got, want) {
		t.Errorf("with two of six others: skipped %v, want %v", got, want)
	}
	if got, want := skipped(1, 4), []int{30, 0, 0, 0, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("with three of six others: skipped %v, want %v", got, want)
	}
	if got, want := skipped(2, 4), []int{0, 0, 2, 6, 14, 30, 30}; !slices.Equal(got, want) {
		t.Errorf("with two of five others: skipped %v, want %v", got, want)
	}
	if got, want := skipped(2, 5), []int{30, 0, 0, 0, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("with three of five others: skipped %v, want %v", got, want)
	}
}
