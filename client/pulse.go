package client

import (
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// pulse tracks the health of a member.
type pulse struct {
	// time of the oldest request sent since the last answer; zero if there is none
	oldestRequest time.Time
	lastResponse  time.Time
	useful        bool      // the member has sent an answer other than a rejection
	refusing      time.Time // when the member began to reject all requests
}

// sent records that a request that should be answered soon is open.
func (p *pulse) sent(now time.Time) {
	if p.oldestRequest.IsZero() {
		p.oldestRequest = now
	}
}

// received records that a message has arrived.
func (p *pulse) received(now time.Time) {
	p.lastResponse, p.oldestRequest = now, time.Time{}
}

// answered records a response in the message just received. It reports whether the member has been
// rejecting all requests for so long that the client should leave it.
func (p *pulse) answered(refuses bool) (leave bool) {
	switch {
	case !refuses:
		p.refusing, p.useful = time.Time{}, true
	case p.refusing.IsZero():
		p.refusing = p.lastResponse
	default:
		return p.lastResponse.Sub(p.refusing) >= refusals
	}
	return false
}

// refusal returns how long the member has been rejecting all requests.
func (p pulse) refusal() time.Duration { return sinceIfSet(p.refusing) }

// silence returns how long the member has sent no answers while requests were pending.
func (p pulse) silence() time.Duration { return sinceIfSet(p.oldestRequest) }

// sinceIfSet returns the time since t, or 0 if t is zero.
func sinceIfSet(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

// idle reports whether no request is pending and nothing has been received for d.
func (p pulse) idle(d time.Duration) bool {
	return p.oldestRequest.IsZero() && time.Since(p.lastResponse) >= d
}

// refusals is how long a member can reject all requests before the client leaves it.
const refusals = 250 * time.Millisecond

// refusalOf reports whether a response shows that the member cannot serve requests now. For a
// renewal this means that no lease was renewed.
func refusalOf(r *pb.Response) bool {
	if slices.ContainsFunc(r.GetRenew().GetTtlMs(), func(ttl int64) bool { return ttl > 0 }) {
		return false
	}
	results := r.GetRenew().GetResults()
	for _, res := range results {
		if res.Reason != pb.Reason_REASON_UNAVAILABLE {
			return false
		}
	}
	return len(results) > 0 || r.GetError().GetReason() == pb.Reason_REASON_UNAVAILABLE
}
