package native

import (
	"cmp"
	"container/heap"
	"context"
	"slices"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

const (
	// maxSilent is the approximate number of silent leases that a stream of lease events tracks. If
	// there are more, the stream drops the leases that end last, and finds them again when they are
	// about to end.
	maxSilent = 16_384
	// scanBatch is the number of leases that the core looks up in one step.
	scanBatch = 512
)

// expiring finds, for a stream of lease events, the leases that will end soon because they are not
// being renewed. Leases that are renewed on time never become silent and cost nothing here. An
// expiring belongs to one goroutine.
//
// Invariants: next is a heap of the silent leases that have not been reported yet. A lease is in
// leases if it is in next, or if it was reported and has neither ended nor been renewed since.
type expiring struct {
	node   Node
	within lease.TTL
	wants  func(*lease.Info) bool
	may    func(*lease.Info) bool // whether the caller may see the lease
	list   *pb.ListRequest        // selects the leases to scan

	begun    bool
	index    uint64 // index of the last log entry reflected here
	leases   map[lease.ID]*silent
	next     silentHeap
	reported int           // leases that are in leases but not in next; at most maxSilent
	limit    int           // limit on the length of next; grows for leases that end together
	beyond   lease.Instant // leases that end at or after this instant were left out; 0 if none were
	sweep    uint64        // number of the last scan
	out      []*pb.LeaseEvent
}

// silent is a lease that is not being renewed.
type silent struct {
	info  lease.Info
	until lease.Instant // when it may end
	place int           // index in next; negative if the lease has been reported
	sweep uint64        // number of the last scan that found it
}

func newExpiring(n Node, r *pb.EventsRequest, wants func(*lease.Info) bool) *expiring {
	return &expiring{
		node: n, within: lease.TTL(r.ExpiringWithinMs), wants: wants,
		list:   &pb.ListRequest{NamePrefix: r.NamePrefix},
		leases: make(map[lease.ID]*silent), limit: maxSilent,
	}
}

// permitted removes the events that the caller may not see.
func (e *expiring) permitted(list []*pb.LeaseEvent) []*pb.LeaseEvent {
	return slices.DeleteFunc(list, func(m *pb.LeaseEvent) bool {
		return !e.may(&lease.Info{Terms: lease.Terms{
			Name: m.Lease.Name, Principal: m.Lease.Principal,
		}})
	})
}

// follow catches up with a view. It uses the list of silences in the view. If the list does not go
// back far enough, follow scans all leases instead.
func (e *expiring) follow(ctx context.Context, v *fsm.View) error {
	if e.begun && v.Silences.Since(e.index, e.learn) {
		e.index = max(e.index, v.Index)
		return nil
	}
	return e.scan(ctx, 0)
}

// learn records that a lease has become silent or has been renewed.
func (e *expiring) learn(s *fsm.Silence) {
	switch held := e.leases[s.Info.ID]; {
	case s.Until == 0:
		e.renewed(&s.Info)
	case s.Again && (held == nil || held.info.Token != s.Info.Token):
		// The lease was reported and then dropped, or a later scan will find it.
	default:
		e.add(&s.Info, s.Until)
	}
}

// scan searches all leases for silent ones that end at or after the given instant. It does this
// outside the core's goroutine.
func (e *expiring) scan(ctx context.Context, from lease.Instant) error {
	var view lease.View
	var index uint64
	err := e.node.InspectHere(ctx, func(l *lease.Lessor, i uint64) { view, index = l.View(), i })
	if err != nil {
		return err
	}
	e.sweep++
	e.beyond = 0
	var batch []lease.Info
	seen := 0
	for info := range ordered(view, e.list) {
		if seen++; seen%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if info.Remaining == 0 || info.Delayed || !e.wants(&info) {
			continue
		}
		if batch = append(batch, info); len(batch) == scanBatch {
			if err := e.found(ctx, batch, from); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if err := e.found(ctx, batch, from); err != nil || from > 0 {
		return err // later changes will be reported again, which is harmless
	}
	e.begun, e.index = true, index
	return e.forget(ctx)
}

// found adds the leases in a batch that are still silent.
func (e *expiring) found(ctx context.Context, batch []lease.Info, from lease.Instant) error {
	if len(batch) == 0 {
		return nil
	}
	until := make([]lease.Instant, len(batch))
	err := e.node.InspectHere(ctx, func(l *lease.Lessor, _ uint64) {
		for i := range batch {
			if now, ok := l.Lookup(batch[i].ID); ok && now.Token == batch[i].Token {
				until[i], _ = l.SilentUntil(now.ID)
			}
		}
	})
	if err != nil {
		return err
	}
	for i, at := range until {
		if at != 0 && at >= from {
			e.add(&batch[i], at)
		}
	}
	return nil
}

// forget drops the leases that the last scan did not find. If a lease still exists, it was renewed.
// Otherwise, it has ended.
func (e *expiring) forget(ctx context.Context) error {
	var gone []*silent
	for _, s := range e.leases {
		if s.sweep != e.sweep {
			gone = append(gone, s)
		}
	}
	slices.SortFunc(gone, func(a, b *silent) int { return cmp.Compare(a.info.ID, b.info.ID) })
	for batch := range slices.Chunk(gone, scanBatch) {
		now := make([]lease.Info, len(batch))
		err := e.node.InspectHere(ctx, func(l *lease.Lessor, _ uint64) {
			for i, s := range batch {
				now[i], _ = l.Lookup(s.info.ID)
			}
		})
		if err != nil {
			return err
		}
		for i, s := range batch {
			if n := &now[i]; n.ID != 0 && !n.Delayed && n.Remaining == 0 {
				e.renewed(n)
			} else {
				e.remove(s)
			}
		}
	}
	return nil
}

// add adds a silent lease.
func (e *expiring) add(info *lease.Info, until lease.Instant) {
	if !e.wants(info) {
		return
	}
	s := e.leases[info.ID]
	if s != nil && s.info.Token != info.Token {
		e.remove(s) // it is a different incarnation of the lease
		s = nil
	}
	if s != nil {
		s.info, s.until, s.sweep = *info, until, e.sweep
		if s.place >= 0 {
			heap.Fix(&e.next, s.place)
		}
		return
	}
	if e.beyond != 0 && until >= e.beyond {
		return // a later scan will find it
	}
	s = &silent{info: *info, until: until, sweep: e.sweep}
	e.leases[info.ID] = s
	heap.Push(&e.next, s)
	e.shed()
}

// shed drops the later half of next if next is too long. It never splits leases that end at the
// same instant.
func (e *expiring) shed() {
	if len(e.next) <= e.limit {
		return
	}
	slices.SortFunc(e.next, func(a, b *silent) int { return cmp.Compare(a.until, b.until) })
	keep := maxSilent / 2
	for keep < len(e.next) && e.next[keep].until == e.next[keep-1].until {
		keep++
	}
	if keep < len(e.next) {
		e.beyond = e.next[keep].until
	}
	for _, s := range e.next[keep:] {
		delete(e.leases, s.info.ID)
	}
	e.next = slices.Clone(e.next[:keep])
	for i, s := range e.next {
		s.place = i
	}
	e.limit = max(maxSilent, 2*keep)
}

// renewed records that a lease has been renewed.
func (e *expiring) renewed(info *lease.Info) {
	s := e.leases[info.ID]
	if s == nil {
		return
	}
	if s.place < 0 {
		e.out = append(e.out, &pb.LeaseEvent{
			Kind: pb.LeaseEvent_KIND_RENEWED, Lease: api.LeaseMessage(info),
		})
	}
	e.remove(s)
}

// ended records that a lease has ended.
func (e *expiring) ended(info *lease.Info) {
	if s := e.leases[info.ID]; s != nil && s.info.Token == info.Token {
		e.remove(s)
	}
}

func (e *expiring) remove(s *silent) {
	delete(e.leases, s.info.ID)
	if s.place >= 0 {
		heap.Remove(&e.next, s.place)
	} else {
		e.reported--
	}
}

// take returns the events that are due.
func (e *expiring) take(ctx context.Context) ([]*pb.LeaseEvent, error) {
	now := e.node.Now()
	if e.beyond != 0 && e.near(e.beyond, now) {
		if err := e.scan(ctx, e.beyond); err != nil {
			return nil, err
		}
	}
	for len(e.next) > 0 && e.near(e.next[0].until, now) {
		s := heap.Pop(&e.next).(*silent)
		m := api.LeaseMessage(&s.info)
		m.RemainingMs = max(0, int64(s.until-1-now))
		e.out = append(e.out, &pb.LeaseEvent{Kind: pb.LeaseEvent_KIND_EXPIRING, Lease: m})
		if s.place = -1; e.reported < maxSilent {
			e.reported++
		} else {
			delete(e.leases, s.info.ID)
		}
	}
	out := e.out
	e.out = nil
	return out, nil
}

// near reports whether an instant is within the requested time from now.
func (e *expiring) near(until, now lease.Instant) bool {
	return lease.TTL(until-1-now) <= e.within
}

// wait returns the number of milliseconds until the next event is due if nothing else happens. If
// ok is false, no event is scheduled.
func (e *expiring) wait() (ms lease.TTL, ok bool) {
	at := e.beyond
	if len(e.next) > 0 && (at == 0 || e.next[0].until < at) {
		at = e.next[0].until
	}
	if at == 0 {
		return 0, false
	}
	return max(0, lease.TTL(at-1-e.node.Now())-e.within), true
}

// silentHeap orders leases by the time at which they may end.
type silentHeap []*silent

// Len implements heap.Interface.
func (h silentHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h silentHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return a.until < b.until || a.until == b.until && a.info.ID < b.info.ID
}

// Swap implements heap.Interface.
func (h silentHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *silentHeap) Push(x any) {
	s := x.(*silent)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface.
func (h *silentHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	*h = old[:len(old)-1]
	return s
}
