package plan

import (
	"fmt"
	"time"
)

// The defaults of a holder and of this service. The service's figures come from docs/benchmarks.md
// and docs/operations.md.
const (
	// DefaultTTL is the usual length of a lease; it is renewed at a third.
	DefaultTTL = 10 * time.Second
	// DefaultDrift is the maximum relative difference between the rates of two clocks.
	DefaultDrift = 1e-3
	// DefaultRetry is how long clientv3 waits before it retries a renewal.
	DefaultRetry = 500 * time.Millisecond
	// DefaultRoundTrip is a slow request in one data center.
	DefaultRoundTrip = 20 * time.Millisecond

	// RecoveryCutOff is how long this service has no leader after a failure of the leader's
	// machine: two election timeouts of 1 s.
	RecoveryCutOff = 2 * time.Second
	// RecoveryKilled is the same if only the leader's process died: the longest of 100 kills,
	// rounded.
	RecoveryKilled = 70 * time.Millisecond

	// untended is how long after its last renewal this service checkpoints a lease whose holder's
	// connection has ended.
	untended = 250 * time.Millisecond
	// lateness is how late an expiry may be in this service's tests. 5 ms have been measured.
	lateness = 500 * time.Millisecond
	// longestSilence is the default of --lease-checkpoint-interval.
	longestSilence = time.Minute
)

// A Holder has the settings of the holder of a lease.
type Holder struct {
	// TTL is the length of the lease, L.
	TTL time.Duration
	// Renew is the time between the sending of two renewals, T. 0 means a third of the TTL.
	Renew time.Duration
	// RoundTrip is the longest round trip of a request, whichever direction is slow.
	RoundTrip time.Duration
	// Retry is how long after a renewal without an answer the holder sends the next one.
	Retry time.Duration
	// Margin is by how much the holder shortens its own valid-until time.
	Margin time.Duration
	// Drift is the maximum relative difference between the rates of the holder's and the issuer's
	// clocks: 0.001 is a thousandth.
	Drift float64
}

// Interval returns the time between two renewals: Renew, or a third of the TTL.
func (h Holder) Interval() time.Duration {
	if h.Renew != 0 {
		return h.Renew
	}
	return h.TTL / 3
}

// Valid returns how long after sending an acknowledged renewal the holder may act (O1): L(1 -
// drift) - margin.
func (h Holder) Valid() time.Duration { return scaled(h.TTL, 1-h.Drift) - h.Margin }

// longest returns how long a lease of d can last by another clock (O2): d/(1 - drift).
func (h Holder) longest(d time.Duration) time.Duration { return scaled(d, 1/(1-h.Drift)) }

// Check returns an error if the settings are wrong.
func (h Holder) Check() error {
	err := bounded(
		span("lease length", h.TTL),
		span("renewal interval", h.Renew),
		span("round trip", h.RoundTrip),
		span("wait before a retry", h.Retry),
		span("margin", h.Margin),
	)
	if err != nil {
		return err
	}
	if err := shareBelow(number("clock drift", h.Drift), 0.5); err != nil {
		return err
	}
	t := h.Interval()
	switch {
	case h.TTL == 0:
		return wrong("lease length", "pass a length such as 10s", "is 0")
	case h.TTL <= h.RoundTrip:
		return wrong("lease length", fmt.Sprintf("take at least %v, three round trips",
			3*h.RoundTrip), "is %v, and one round trip is %v", h.TTL, h.RoundTrip)
	case t >= h.TTL:
		return wrong("renewal interval",
			fmt.Sprintf("renew at a third, every %v, or take a longer lease",
				rounded(h.TTL/3)),
			"(%v) is not below the lease length (%v), so every lease ends", t, h.TTL)
	case t == 0:
		return wrong("renewal interval", "take a longer lease", "rounds to nothing")
	case h.Valid() <= 0:
		return wrong("margin", "take a smaller margin or a longer lease",
			"(%v) leaves nothing of a lease of %v", h.Margin, h.TTL)
	case t+h.RoundTrip > h.Valid():
		return wrong("renewal interval",
			fmt.Sprintf("renew at a third, every %v, or take a longer lease",
				rounded(h.TTL/3)),
			"is %v and a round trip %v, but the holder stops %v after it sent the "+
				"renewal before: not one attempt fits", rounded(t), h.RoundTrip,
			rounded(h.Valid()))
	}
	return nil
}

// Attempts returns how many times a renewal can be sent before the lease ends, such that the answer
// is in time if it takes RoundTrip.
func (h Holder) Attempts() int {
	spare := h.Valid() - h.RoundTrip - h.Interval()
	if spare < 0 {
		return 0
	}
	if h.Retry == 0 {
		return 1
	}
	return 1 + int(spare/h.Retry)
}

// An Issuer grants the leases: a core that fails and recovers.
type Issuer struct {
	// Recovery is D: how long after a failure the issuer grants, renews and ends nothing. The time
	// between two failures is longer than a lease and a recovery.
	Recovery time.Duration
	// Lateness is how long after the expiry of a lease the issuer may take to end it.
	Lateness time.Duration
	// If Refreshes is set, the issuer gives every lease its full length again after a recovery,
	// because renewals are not in its log. Otherwise it remembers when each lease ends.
	Refreshes bool
	// Checkpoint is how long after the last renewal of a lease a refreshing issuer stores when the
	// lease ends. 0 means never.
	Checkpoint time.Duration
	// Untended is the same after the connection of a dead holder has ended. It is 0 if the issuer
	// ignores connections, or if the holder stops responding with its connection open.
	Untended time.Duration
}

// Silence returns how much of a dead holder's silence the issuer may forget at a failure; at most
// ttl.
func (i Issuer) Silence(ttl time.Duration) time.Duration {
	d := ttl
	if i.Checkpoint > 0 {
		d = min(d, i.Checkpoint)
	}
	if i.Untended > 0 {
		d = min(d, i.Untended)
	}
	return d
}

// ClassicIssuer returns the issuer of the textbooks: it forgets nothing, is never late, and serves
// again after the recovery time.
func ClassicIssuer(recovery time.Duration) Issuer { return Issuer{Recovery: recovery} }

// RefreshingIssuer returns an issuer that gives all leases their full length after each failure,
// and does not store silence, like etcd without checkpoints.
func RefreshingIssuer(recovery time.Duration) Issuer {
	return Issuer{Recovery: recovery, Refreshes: true}
}

// Leasehold returns this service as an issuer. If a holder dies, its connection ends, and its lease
// is checkpointed after 250 ms. For a holder that stops responding with its connection open, see
// [Issuer.Silent].
func Leasehold(ttl, recovery time.Duration) Issuer {
	return Issuer{
		Recovery: recovery, Lateness: lateness, Refreshes: true,
		Checkpoint: min(2*ttl/5, longestSilence), Untended: untended,
	}
}

// Silent returns the issuer for a holder that stops responding with its connection open: the lease
// is checkpointed after two fifths of the TTL, at most a minute.
func (i Issuer) Silent() Issuer {
	i.Untended = 0
	return i
}

func (i Issuer) check() error {
	return bounded(
		span("recovery time of the issuer", i.Recovery),
		span("lateness of the issuer", i.Lateness),
		span("checkpoint after silence", i.Checkpoint),
		span("checkpoint after a lost connection", i.Untended),
	)
}

// An Outage holds the times without a holder for a Holder and an Issuer.
type Outage struct {
	Holder Holder
	Issuer Issuer

	// Worst is the maximum time from the death of a holder until another one holds (O3, O4), with
	// one failure of the issuer at the worst moment.
	Worst time.Duration
	// Alone is the same without a failure of the issuer.
	Alone time.Duration
	// Typical is the mean without a failure of the issuer (O5).
	Typical time.Duration
	// NoticeFrom and NoticeTo are the minimum and maximum time from the death of a holder until the
	// issuer ends its lease (O6).
	NoticeFrom, NoticeTo time.Duration
	// Valid is the holder's own validity, from the sending of a renewal (O1).
	Valid time.Duration
	// Slack is the rest of the holder's validity if the issuer fails just when it would have
	// accepted a renewal (O7). If it is negative, healthy holders stop that much too early.
	Slack time.Duration
	// Survivable is the longest recovery in which no healthy holder loses its validity.
	Survivable time.Duration
	// Attempts is how many renewals can be tried within one lease.
	Attempts int
}

// Bounds computes the outages of a holder and an issuer.
func Bounds(h Holder, i Issuer) (Outage, error) {
	if err := h.Check(); err != nil {
		return Outage{}, err
	}
	if err := i.check(); err != nil {
		return Outage{}, err
	}
	h.Renew = h.Interval()
	r := h.RoundTrip
	alone := r + h.longest(h.TTL) + i.Lateness + 2*r // sending, lasting, ending; telling, asking
	o := Outage{
		Holder: h, Issuer: i,
		Worst: alone, Alone: alone,
		Typical:    h.TTL - h.Renew/2 + r,
		NoticeFrom: h.TTL - h.Renew, NoticeTo: r + h.longest(h.TTL) + i.Lateness,
		Valid:      h.Valid(),
		Survivable: h.Valid() - h.Renew - h.Retry - 2*r,
		Attempts:   h.Attempts(),
	}
	o.Slack = o.Survivable - i.Recovery
	if i.Recovery == 0 {
		o.Slack = h.Valid() - h.Renew - r
		return o, nil
	}
	// The issuer fails as the lease ends, or just before it reports that (O3).
	o.Worst = alone + i.Recovery + h.Retry + r
	if i.Refreshes {
		// The issuer fails just before it stores the silence, and forgets it (O4).
		forgotten := h.longest(i.Silence(h.TTL)) + i.Lateness
		o.Worst = max(o.Worst, alone+forgotten+i.Recovery)
	}
	return o, nil
}

// Noted reports whether healthy holders renew so rarely that their silence is checkpointed between
// renewals. Then each renewal costs the issuer a log entry, and a failure of the issuer does not
// refresh the lease.
func (o Outage) Noted() bool {
	c := o.Issuer.Checkpoint
	return c > 0 && o.Holder.Renew+o.Holder.RoundTrip >= c
}

// HealthyLose reports whether a failure of the issuer makes healthy holders stop.
func (o Outage) HealthyLose() bool { return o.Slack < 0 }

// ShortestTTL returns the shortest lease, renewed at the same fraction of its length, that outlives
// a failure of the issuer (O8). It is 0 if there is none.
func (o Outage) ShortestTTL() time.Duration {
	h := o.Holder
	left := 1 - h.Drift - float64(h.Renew)/float64(h.TTL)
	if left <= 0 {
		return 0
	}
	return scaled(o.Issuer.Recovery+h.Retry+2*h.RoundTrip+h.Margin, 1/left)
}
