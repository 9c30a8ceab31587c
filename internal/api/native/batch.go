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
	columns bool // the request has columns, so the response has, too
	// report is called once, when all outcomes are known or the batch is cut, unless done is set. It
	// may be nil if wait is called.
	report func()

	mu   sync.Mutex    // guards the fields below
	done chan struct{} // closed when all outcomes are known or the batch is cut; nil before wait
	open int           // number of leases without an outcome
	over bool          // no response will follow
	// together is set once the leases with a TTL in asks are renewed; reported is set once a
	// response has included them.
	together, reported bool
	answered           bool      // there has been a response
	singles            []outcome // outcomes of other leases that have not been in a response
	known              []bool    // by index: there is, or was, a single; nil for none
	// groups is the state of the outcome about groups, which is in asks.Renewed.
	groups groupsState
	// joined, unless nil, receives the leases that have joined groups, instead of the response.
	joined func(*pb.RelayJoined)
	// denied are the leases, by index, that the caller may not renew. They are not in asks.
	denied map[int]lease.ID
	// lost are the leases that the last response reported as gone. It belongs to the goroutine that
	// took the response.
	lost []lostLease
}

// groupsState is the state of a batch's requests about groups.
type groupsState uint8

const (
	noGroups groupsState = iota // nothing to report
	groupsOpen
	groupsKnown
)

// outcome is the outcome of the renewal at an index.
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

// deny removes leases of a request from asks. For them, the response repeats only the data in the
// request.
func (b *batch) deny(places map[int]bool, r *pb.RenewRequest) {
	for i := range places {
		if b.denied == nil {
			b.denied = make(map[int]lease.ID)
		}
		b.denied[i] = b.asks.IDs[i]
		if len(r.Leases) > 0 {
			b.denied[i] = lease.ID(r.Leases[i].Id)
		}
		b.asks.IDs[i] = 0 // no lease
	}
}

// RenewedTogether implements RenewedAll.
func (b *batch) RenewedTogether() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joined != nil {
		b.reportJoined() // even if the response is not awaited: the leases are in the groups
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
		return // a client without an answer considers its groups ended
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

// settle counts known outcomes.
func (b *batch) settle(n int) {
	if b.open -= n; b.open == 0 {
		b.finish()
	}
}

// finish wakes the waiter, or else calls report.
func (b *batch) finish() {
	if b.done != nil {
		close(b.done)
	} else {
		b.report()
	}
}

// wait returns a channel that is closed when nothing is left to wait for, or nil if report was
// called already.
func (b *batch) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open > 0 && !b.over {
		b.done = make(chan struct{})
	}
	return b.done
}

// waits reports whether there is something to wait for.
func (b *batch) waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open > 0 && !b.over
}

// cut stops waiting. Unknown outcomes stay unknown.
func (b *batch) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open > 0 && !b.over {
		b.over = true
		b.finish()
	}
}

// take returns a response with the new outcomes. It returns nil if there are none, or if all are
// known: then end returns them.
func (b *batch) take() *pb.RenewResponse {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 || len(b.singles) == 0 && (b.reported || !b.together) {
		return nil
	}
	return b.respond()
}

// end returns the final response, in which unknown outcomes are reported as such.
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

// respond returns a response with everything that no earlier response has reported.
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

// respondJoined reports the leases that have joined groups of a client's stream.
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

// results returns the results for outcomes, in the order of the request.
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

// token returns the token at an index of the request, or 0.
func (b *batch) token(place int) lease.Token {
	if b.asks.Tokens == nil {
		return 0
	}
	return b.asks.Tokens[place]
}
