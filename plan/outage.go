package plan

import (
	"fmt"
	"time"
)

// The defaults for a holder and for this service. The service's figures come from
// docs/benchmarks.md and docs/operations.md.
const (
	// DefaultTTL is the usual length of a lease, which is renewed at a third of its length.
	DefaultTTL = 10 * time.Second
	// DefaultDrift is the maximum relative difference between the rates of two clocks.
	DefaultDrift = 1e-3
	// DefaultRetry is how long clientv3 waits before it retries a renewal.
	DefaultRetry = 500 * time.Millisecond
	// DefaultRoundTrip is the round trip of a slow request within one data center.
	DefaultRoundTrip = 20 * time.Millisecond

	// RecoveryCutOff is how long this service has no leader after the leader's machine has failed:
	// two election timeouts of 1 s.
	RecoveryCutOff = 2 * time.Second
	// RecoveryKilled is how long this service has no leader if only the leader's process has died.
	// It is the longest outage in 100 kills, rounded.
	RecoveryKilled = 70 * time.Millisecond

	// untended is the time from a lease's last renewal until this service checkpoints the lease, if
	// the holder's connection has ended.
	untended = 250 * time.Millisecond
	// lateness is the maximum delay of an expiry that this service's tests accept. The longest
	// measured delay is 5 ms.
	lateness = 500 * time.Millisecond
	// longestSilence is the default of --lease-checkpoint-interval.
	longestSilence = time.Minute
)

// A Holder describes the settings of a lease's holder.
type Holder struct {
	// TTL is L, the length of the lease.
	TTL time.Duration
	// Renew is T, the time from sending one renewal to sending the next. 0 means a third of the
	// TTL.
	Renew time.Duration
	// RoundTrip is the longest round trip of a request, whichever direction is slow.
	RoundTrip time.Duration
	// Retry is how long the holder waits after an unanswered renewal before it sends the next one.
	Retry time.Duration
	// Margin is how much the holder subtracts from its own validity.
	Margin time.Duration
	// Drift is the maximum relative difference between the rates of the holder's and the issuer's
	// clocks. For example, 0.001 is a tenth of a percent.
	Drift float64
}

// Interval returns the time between two renewals. This is Renew, or a third of the TTL if Renew is
// 0.
func (h Holder) Interval() time.Duration {
	if h.Renew != 0 {
		return h.Renew
	}
	return h.TTL / 3
}

// Valid returns how long the holder can act after sending a renewal that is acknowledged (O1). It
// is L(1 - drift) - margin.
func (h Holder) Valid() time.Duration { return scaled(h.TTL, 1-h.Drift) - h.Margin }

// longest returns d/(1 - drift), which is how long a lease of length d can last according to
// another clock (O2).
func (h Holder) longest(d time.Duration) time.Duration { return scaled(d, 1/(1-h.Drift)) }

// Check returns an error if the settings are invalid.
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
		return inputErrorf("lease length", "specify a length such as 10s", "is 0")
	case h.TTL <= h.RoundTrip:
		return inputErrorf("lease length", fmt.Sprintf("use at least %v, three round trips",
			3*h.RoundTrip), "is %v, and one round trip takes %v", h.TTL, h.RoundTrip)
	case t >= h.TTL:
		return inputErrorf("renewal interval",
			fmt.Sprintf("renew at a third of the lease length, every %v, or use a longer lease",
				rounded(h.TTL/3)),
			"(%v) is not below the lease length (%v), so every lease ends", t, h.TTL)
	case t == 0:
		return inputErrorf("renewal interval", "use a longer lease", "rounds to zero")
	case h.Valid() <= 0:
		return inputErrorf("margin", "use a smaller margin or a longer lease",
			"(%v) leaves no usable time in a lease of %v", h.Margin, h.TTL)
	case t+h.RoundTrip > h.Valid():
		return inputErrorf("renewal interval",
			fmt.Sprintf("renew at a third of the lease length, every %v, or use a longer lease",
				rounded(h.TTL/3)),
			"is %v and a round trip takes %v, but the holder stops %v after sending its "+
				"previous renewal: no attempt fits", rounded(t), h.RoundTrip,
			rounded(h.Valid()))
	}
	return nil
}

// Attempts returns how many times a renewal can be sent before the lease ends. The answer must
// still arrive in time if it takes RoundTrip.
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

// An Issuer grants the leases. It can fail, and recovers after each failure.
type Issuer struct {
	// Recovery is D, the time after a failure during which the issuer grants, renews and ends no
	// leases. Two failures are at least a lease and a recovery apart.
	Recovery time.Duration
	// Lateness is the maximum time from the expiry of a lease until the issuer ends it.
	Lateness time.Duration
	// Refreshes means that the issuer gives every lease its full length again after a recovery,
	// because it does not log renewals. Otherwise it remembers when each lease ends.
	Refreshes bool
	// Checkpoint applies to an issuer that refreshes leases. It is the time from the last renewal
	// of a lease until the issuer stores when the lease ends. 0 means that it never does.
	Checkpoint time.Duration
	// Untended replaces Checkpoint once the connection of a dead holder has ended. It is 0 if the
	// issuer ignores connections, or if the holder stops responding while its connection stays
	// open.
	Untended time.Duration
}

// Silence returns how much of a dead holder's silence the issuer can forget when it fails. It is at
// most ttl.
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

// ClassicIssuer returns the textbook issuer, which forgets nothing, is never late, and is serving
// again after the recovery time.
func ClassicIssuer(recovery time.Duration) Issuer { return Issuer{Recovery: recovery} }

// RefreshingIssuer returns an issuer that gives all leases their full length after each failure.
// Like etcd without checkpoints, it does not store silence.
func RefreshingIssuer(recovery time.Duration) Issuer {
	return Issuer{Recovery: recovery, Refreshes: true}
}

// Leasehold returns an issuer that models this service. If a holder dies, its connection ends, and
// its lease is checkpointed after 250 ms. For a holder that stops responding while its connection
// stays open, see [Issuer.Silent].
func Leasehold(ttl, recovery time.Duration) Issuer {
	return Issuer{
		Recovery: recovery, Lateness: lateness, Refreshes: true,
		Checkpoint: min(2*ttl/5, longestSilence), Untended: untended,
	}
}

// Silent returns the issuer as it behaves toward a holder that stops responding while its
// connection stays open. The lease is checkpointed after Checkpoint. For this service, that is two
// fifths of the TTL, but at most a minute.
func (i Issuer) Silent() Issuer {
	i.Untended = 0
	return i
}

func (i Issuer) check() error {
	return bounded(
		span("issuer recovery time", i.Recovery),
		span("issuer lateness", i.Lateness),
		span("checkpoint after silence", i.Checkpoint),
		span("checkpoint after a lost connection", i.Untended),
	)
}

// An Outage contains the times without a holder, for a given Holder and Issuer.
type Outage struct {
	Holder Holder
	Issuer Issuer

	// Worst is the maximum time from the death of a holder until another program holds the lease
	// (O3, O4), with one failure of the issuer at the worst moment.
	Worst time.Duration
	// Alone is the same maximum without a failure of the issuer.
	Alone time.Duration
	// Typical is the mean time without a failure of the issuer (O5).
	Typical time.Duration
	// NoticeFrom and NoticeTo are the minimum and maximum time from the death of a holder until the
	// issuer ends its lease (O6).
	NoticeFrom, NoticeTo time.Duration
	// Valid is the holder's own validity, measured from when a renewal is sent (O1).
	Valid time.Duration
	// Slack is how much of the holder's validity remains if the issuer fails just before it would
	// have accepted a renewal (O7). If it is negative, healthy holders stop by that much too early.
	Slack time.Duration
	// Survivable is the longest recovery during which no healthy holder loses its validity.
	Survivable time.Duration
	// Attempts is the number of renewal attempts that fit into one lease.
	Attempts int
}

// Bounds computes the outages for a holder and an issuer.
func Bounds(h Holder, i Issuer) (Outage, error) {
	if err := h.Check(); err != nil {
		return Outage{}, err
	}
	if err := i.check(); err != nil {
		return Outage{}, err
	}
	h.Renew = h.Interval()
	r := h.RoundTrip
	alone := r + h.longest(h.TTL) + i.Lateness + 2*r // send, lifetime, end; report, request
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
	// The issuer fails at the moment the lease ends, or just before it reports that (O3).
	o.Worst = alone + i.Recovery + h.Retry + r
	if i.Refreshes {
		// The issuer fails just before it stores the silence, and so forgets it (O4).
		forgotten := h.longest(i.Silence(h.TTL)) + i.Lateness
		o.Worst = max(o.Worst, alone+forgotten+i.Recovery)
	}
	return o, nil
}

// Noted reports whether healthy holders renew so rarely that their silence is checkpointed between
// renewals. If so, each renewal costs the issuer a log entry, and a failure of the issuer does not
// refresh the lease.
func (o Outage) Noted() bool {
	c := o.Issuer.Checkpoint
	return c > 0 && o.Holder.Renew+o.Holder.RoundTrip >= c
}

// HealthyLose reports whether a failure of the issuer makes healthy holders stop.
func (o Outage) HealthyLose() bool { return o.Slack < 0 }

// ShortestTTL returns the shortest lease that outlives a failure of the issuer, if it is renewed at
// the same fraction of its length (O8). It is 0 if there is no such lease.
func (o Outage) ShortestTTL() time.Duration {
	h := o.Holder
	left := 1 - h.Drift - float64(h.Renew)/float64(h.TTL)
	if left <= 0 {
		return 0
	}
	return scaled(o.Issuer.Recovery+h.Retry+2*h.RoundTrip+h.Margin, 1/left)
}
