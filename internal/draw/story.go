package draw

import (
	"time"

	"leasehold.dev/internal/figures"
	"leasehold.dev/plan"
)

// A Kind is what a span or a mark of a timeline stands for.
type Kind int

// The kinds of spans and marks.
const (
	holds    Kind = iota // the holder may act
	leased               // the lease stands at the issuer
	down                 // the issuer grants, renews and ends nothing
	nobody               // nobody holds
	grant                // a lease is granted
	renewal              // a renewal is sent
	crash                // a holder or an issuer fails
	recovery             // the issuer is back
	takeover             // the next holder has it
	stops                // a healthy holder stops at its own valid until
)

// A Span is a stretch of a lane.
type Span struct {
	From, To time.Duration
	Kind     Kind
}

// An Instant is a moment of a lane.
type Instant struct {
	At   time.Duration
	Kind Kind
}

// A Lane is what happens to one party, or to the lease.
type Lane struct {
	Name  string
	Spans []Span
	Marks []Instant
}

// A Timeline is a story to draw, from 0 to End, the first instant being a grant.
type Timeline struct {
	Title string
	End   time.Duration
	Lanes []Lane
}

// WorstCase tells the worst outage as a story: grant, two renewals, the death of
// the holder as the second is on its way, the failure of the issuer at the worst
// moment, its recovery, and the takeover.
func WorstCase(o plan.Outage) Timeline {
	h, i := o.Holder, o.Issuer
	death := 2 * h.Renew
	taken := death + o.Worst
	end := taken + h.Renew
	ends := taken - 2*h.RoundTrip // of the lease
	issuer := Lane{Name: "issuer"}
	title := "worst case: the holder dies as it renews"
	if i.Recovery > 0 {
		title += ", the issuer as it is worst"
		fails := death + h.RoundTrip + longest(h, h.TTL)
		if i.Refreshes {
			fails = death + h.RoundTrip + longest(h, i.Silence(h.TTL)) + i.Lateness
		}
		back := fails + i.Recovery
		issuer.Spans = []Span{{fails, back, down}}
		issuer.Marks = []Instant{{fails, crash}, {back, recovery}}
	}
	return Timeline{
		Title: title,
		End:   end,
		Lanes: []Lane{
			{
				"holder",
				[]Span{{0, death, holds}},
				[]Instant{{0, grant}, {h.Renew, renewal}, {death, renewal}, {death, crash}},
			},
			{Name: "lease", Spans: []Span{{0, ends, leased}}},
			issuer,
			{"next", []Span{{death, taken, nobody}, {taken, end, holds}}, []Instant{{taken, takeover}}},
		},
	}
}

// HealthyHolder tells what a failure of the issuer does to a holder with nothing wrong:
// the issuer fails as it would have taken the second renewal.
func HealthyHolder(o plan.Outage) Timeline {
	h, i := o.Holder, o.Issuer
	fails := h.Renew + h.Renew
	back := fails + i.Recovery
	valid := h.Renew + o.Valid
	marks := []Instant{{0, grant}, {h.Renew, renewal}, {fails, renewal}}
	again := back
	if h.Retry > 0 && h.Retry >= max(h.TTL, i.Recovery)/100 { // more often than that is a blur
		for again = fails + h.Retry; again < back; again += h.Retry {
			marks = append(marks, Instant{again, renewal})
		}
	}
	marks = append(marks, Instant{again, renewal})
	holder := Lane{"holder", []Span{{0, min(valid, again), holds}}, marks}
	ends := max(valid, again) + h.Renew
	if valid < again {
		holder.Marks = append(holder.Marks, Instant{valid, stops})
		holder.Spans = append(holder.Spans, Span{valid, again, nobody})
	}
	holder.Spans = append(holder.Spans, Span{again, ends, holds})
	return Timeline{
		Title: "a healthy holder while the issuer fails as a renewal is due",
		End:   ends,
		Lanes: []Lane{holder, {
			"issuer",
			[]Span{{fails, back, down}},
			[]Instant{{fails, crash}, {back, recovery}},
		}},
	}
}

// longest is how long a lease of d can last by another clock (O2).
func longest(h plan.Holder, d time.Duration) time.Duration {
	return figures.Scale(d, 1/(1-h.Drift))
}
