package native

import (
	"cmp"
	"slices"
	"sync"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// batch collects the outcomes of the renewals in one request. It implements RenewedAll.
type batch struct {
	asks    replica.Renewals
	header  *pb.Header
	columns bool // the request used columns, so the response must use them too
	// report is called once, when all outcomes are known or the batch is cut short. If done is set,
	// done is closed instead. report may be nil if wait is called.
	report func()

	mu   sync.Mutex    // guards the fields below
	done chan struct{} // closed when all outcomes are known or b is cut short; nil before wait
	open int           // number of outstanding outcomes
	over bool          // there will be no more responses
	// together is true once the leases with a TTL in asks have been renewed. reported is true once
	// a response has included them.
	together, reported bool
	answered           bool // a response has been returned
	// outcomes of individual leases that have not been in a response yet
	singles []outcome
	// by index: whether the outcome of the lease is or was in singles; nil if none is
	known []bool
	// groups tracks the outcome for the groups. The outcome itself is in asks.Renewed.
	groups groupsState
	// joined, if not nil, receives the leases that have joined groups. They are then omitted from
	// the response.
	joined func(*pb.RelayJoined)
	// denied contains the leases, by index, that the caller may not renew. They are not in asks.
	denied map[int]lease.ID
	// lost contains the leases that the last response reported as gone. It belongs to the goroutine
	// that took the response.
	lost []lostLease
}

// groupsState is the state of the group renewals in a batch.
type groupsState uint8

const (
	noGroups groupsState = iota // nothing to report
	groupsOpen
	groupsKnown
)

// outcome is the outcome of the renewal at the given index.
type outcome struct {
	place  int
	reason pb.Reason
	ttl    lease.TTL
}

func newBatch(r *pb.RenewRequest, h *pb.Header) *batch {
	n := len(r.Ids) + len(r.Leases)
	b := &batch{
		asks:   replica.Renewals{IDs: make([]lease.ID, n), TTLs: make([]lease.TTL, n)},
		header: h, columns: len(r.Ids) > 0, open: n,
	}
	b.asks.Owner = b
	if len(r.Tokens)+len(r.Leases) > 0 {
		b.asks.Tokens = make([]lease.Token, n)
	}
	for i, id := range r.Ids {
		b.asks.IDs[i] = lease.ID(id)
	}
	for _, g := range r.Groups {
		b.asks.Renew = append(b.asks.Renew, lease.GroupID(g))
	}
	for _, id := range r.Leave {
		b.asks.Leave = append(b.asks.Leave,
			holder.Leaving{ID: lease.ID(id), AsOf: lease.LastRenewal})
	}
	if len(r.Groups)+len(r.Leave) > 0 {
		b.groups = groupsOpen
		b.open++
	}
	for i, token := range r.Tokens {
		b.asks.Tokens[i] = lease.Token(token)
	}
	for i, ref := range r.Leases {
		b.asks.IDs[i], b.asks.Tokens[i] = lease.ID(ref.Id), lease.Token(ref.Token)
	}
	return b
}

// deny removes leases from asks. For these leases, the response contains only what the request said
// about them.
func (b *batch) deny(places map[int]bool, r *pb.RenewRequest) {
	for i := range places {
		if b.denied == nil {
			b.denied = make(map[int]lease.ID)
		}
		b.denied[i] = b.asks.IDs[i]
		if len(r.Leases) > 0 {
			b.denied[i] = lease.ID(r.Leases[i].Id)
		}
		b.asks.IDs[i] = 0 // not a valid lease
	}
}

// RenewedTogether implements RenewedAll.
func (b *batch) RenewedTogether() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joined != nil {
		b.reportJoined() // even if the batch is over, because the leases have joined the groups
	}
	if b.over {
		return
	}
	b.together = true
	b.settle(b.asks.Kept)
}

// RenewedGroups implements RenewedAll.
func (b *batch) RenewedGroups() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return // a client that gets no response treats its groups as ended
	}
	b.groups = groupsKnown
	b.settle(1)
}

// RenewedOne implements RenewedAll.
func (b *batch) RenewedOne(place int, ttl lease.TTL, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.known == nil {
		b.known = make([]bool, len(b.asks.IDs))
	}
	b.known[place] = true
	reason := api.Reason(err)
	if _, no := b.denied[place]; no {
		reason = pb.Reason_REASON_PERMISSION_DENIED
	}
	b.singles = append(b.singles, outcome{place, reason, ttl})
	b.settle(1)
}

// settle records that n more outcomes are known.
func (b *batch) settle(n int) {
	if b.open -= n; b.open == 0 {
		b.finish()
	}
}

// finish wakes the waiter or, if there is none, calls report.
func (b *batch) finish() {
	if b.done != nil {
		close(b.done)
	} else {
		b.report()
	}
}

// wait returns a channel that is closed when all outcomes are known or the batch is cut short. It
// returns nil if report has already been called.
func (b *batch) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open > 0 && !b.over {
		b.done = make(chan struct{})
	}
	return b.done
}

// waits reports whether any outcome is outstanding.
func (b *batch) waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open > 0 && !b.over
}

// cut stops waiting. Outcomes that are unknown stay unknown.
func (b *batch) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open > 0 && !b.over {
		b.over = true
		b.finish()
	}
}

// take returns a response with the new outcomes. It returns nil if there are no new outcomes. It
// also returns nil if all outcomes are known, because end will return them.
func (b *batch) take() *pb.RenewResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 || len(b.singles) == 0 && (b.reported || !b.together) {
		return nil
	}
	return b.respond()
}

// end returns the final response. It reports the outstanding outcomes as unknown.
func (b *batch) end() *pb.RenewResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for i := range b.asks.IDs {
		if b.open == 0 {
			break
		}
		single := b.known != nil && b.known[i]
		if !single && (!b.together || b.asks.TTLs[i] == 0) {
			b.open--
			b.singles = append(b.singles, outcome{i, pb.Reason_REASON_UNKNOWN_OUTCOME, 0})
		}
	}
	return b.respond()
}

// respond returns a response with everything that earlier responses have not reported.
func (b *batch) respond() *pb.RenewResponse {
	resp, rest := &pb.RenewResponse{Header: b.header}, b.singles
	column := b.columns && !b.answered
	if column {
		resp.TtlMs = make([]int64, len(b.asks.IDs))
		rest = slices.DeleteFunc(rest, func(o outcome) bool {
			resp.TtlMs[o.place] = int64(o.ttl)
			return o.reason == pb.Reason_REASON_UNSPECIFIED
		})
	}
	if b.together && !b.reported {
		for i, ttl := range b.asks.TTLs {
			switch {
			case ttl == 0:
			case column:
				resp.TtlMs[i] = int64(ttl)
			default:
				rest = append(rest, outcome{place: i, ttl: ttl})
			}
		}
		b.reported = true
		b.respondJoined(resp)
	}
	b.answered, b.singles = true, nil
	resp.Results = b.results(rest)
	if b.groups == groupsKnown {
		b.groups = noGroups
		for _, g := range b.asks.Renewed {
			left := make([]int64, len(g.Left))
			for i, id := range g.Left {
				left[i] = int64(id)
			}
			resp.Groups = append(resp.Groups,
				&pb.RenewedGroup{Id: uint64(g.ID), TtlMs: int64(g.TTL), Left: left})
		}
	}
	return resp
}

// respondJoined adds the leases that have joined groups to the response, if the groups belong to a
// client's stream.
func (b *batch) respondJoined(resp *pb.RenewResponse) {
	if b.joined != nil ||
		!slices.ContainsFunc(b.asks.Joined, func(g lease.GroupID) bool { return g != 0 }) {
		return
	}
	resp.Joined = make([]uint64, len(b.asks.IDs))
	for i, g := range b.asks.Joined {
		if b.asks.TTLs[i] > 0 {
			resp.Joined[i] = uint64(g)
		}
	}
}

// reportJoined reports to the relay which leases have joined its groups.
func (b *batch) reportJoined() {
	j := &pb.RelayJoined{AnsweredRounds: b.asks.Rounds}
	for i, g := range b.asks.Joined {
		if g != 0 && b.asks.TTLs[i] > 0 {
			j.Ids = append(j.Ids, int64(b.asks.IDs[i]))
			j.Tokens = append(j.Tokens, uint64(b.token(i)))
			j.Groups = append(j.Groups, uint64(g))
			j.TtlMs = append(j.TtlMs, int64(b.asks.TTLs[i]))
		}
	}
	if len(j.Ids) > 0 {
		b.joined(j)
	}
}

// results converts outcomes to results, in the order of the request.
func (b *batch) results(list []outcome) []*pb.RenewResult {
	slices.SortFunc(list, func(x, y outcome) int { return cmp.Compare(x.place, y.place) })
	out, all := make([]*pb.RenewResult, len(list)), make([]pb.RenewResult, len(list))
	b.lost = nil
	for i, o := range list {
		out[i] = &all[i]
		out[i].Id, out[i].Reason = int64(b.asks.IDs[o.place]), o.reason
		out[i].TtlMs = int64(o.ttl)
		if id, no := b.denied[o.place]; no {
			out[i].Id = int64(id)
		}
		if o.reason == pb.Reason_REASON_LEASE_NOT_FOUND {
			b.lost = append(b.lost, lostLease{out[i], b.token(o.place)})
		}
	}
	return out
}

// token returns the token at the given index of the request, or 0.
func (b *batch) token(place int) lease.Token {
	if b.asks.Tokens == nil {
		return 0
	}
	return b.asks.Tokens[place]
}
