package native

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// A page is limited by the number of leases, the total number of their keys, and its size in bytes.
// The size must stay below the message limit of clients. The first lease on a page may exceed the
// limits on keys and bytes.
const (
	maxPage      = 1000
	maxPageKeys  = 10_000
	maxPageBytes = 2 << 20
)

// list returns a page of leases. It chooses the leases from a view, outside the core's goroutine.
// It then gets their remaining times from the leader.
func (s *leases) list(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	size := int(r.PageSize)
	if size < 0 || size > maxPage {
		return nil, invalid("page_size must be between 0 and %d, not %d", maxPage, size)
	}
	if size == 0 {
		size = maxPage
	}
	if err := checkIDs(r); err != nil {
		return nil, err
	}
	after, err := readCursor(r)
	if err != nil {
		return nil, err
	}
	var view lease.View
	var named []lease.Info
	if err := s.node.Inspect(ctx, func(l *lease.Lessor) {
		if len(r.Ids) > 0 {
			named = lookup(l, r.Ids)
			return
		}
		view = l.View()
	}); err != nil {
		return nil, err
	}
	a := s.authorizer(ctx)
	if err := a.checkLogin(); err != nil {
		return nil, err
	}
	resp := &pb.ListResponse{Header: s.headerNow()}
	page, more := choose(ctx, view, listing{r, a, named}, after, size)
	if err := ctx.Err(); err != nil || len(page) == 0 {
		return resp, err
	}
	if err := listen.Room(ctx); err != nil {
		return nil, err
	}
	if resp.Leases, err = s.describeAll(ctx, page, r.Keys); err != nil {
		return nil, err
	}
	if n := len(resp.Leases); more || n < len(page) {
		resp.NextPageToken = cursor{page[n-1].ID, page[n-1].Name}.token(r)
	}
	resp.Leases, err = s.visible(ctx, resp.Leases, page)
	return resp, err
}

// listing is a request together with its caller.
type listing struct {
	*pb.ListRequest
	authorizer
	named []lease.Info // the leases that the request lists by ID, sorted by ID
}

// matches reports whether a lease matches the request and is visible to the caller.
func (l listing) matches(i *lease.Info) bool {
	return matches(l.ListRequest, i) && (l.seesAll() || l.maySee(i))
}

// visible removes from a page the leases, keys and ranges that the caller may no longer see.
func (s *leases) visible(
	ctx context.Context, list []*pb.Lease, page []lease.Info,
) (out []*pb.Lease, err error) {
	a := s.authorizer(ctx)
	if err := a.checkLogin(); err != nil {
		return nil, err
	}
	if a.seesAll() {
		return list, nil
	}
	for i, m := range list {
		if a.maySee(&page[i]) {
			a.redact(m)
			out = append(out, m)
		}
	}
	return out, nil
}

// choose returns the leases of a page and reports whether there are more.
func choose(
	ctx context.Context, v lease.View, r listing, after cursor, size int,
) (page []lease.Info, more bool) {
	if len(r.Ids) > 0 {
		return r.byID(after, size)
	}
	if r.NamePrefix == "" {
		page = v.First(after.id, size+1, wanted(ctx, r))
		return page[:min(size, len(page))], len(page) > size
	}
	seen := 0
	for info := range v.Named(r.NamePrefix) {
		if seen++; seen%1024 == 0 && ctx.Err() != nil {
			return nil, false
		}
		if info.Name <= after.name || !r.matches(&info) {
			continue
		}
		if len(page) == size {
			return page, true
		}
		page = append(page, info)
	}
	return page, false
}

// byID returns a page of the leases that the request lists by ID. It reports whether there are
// more.
func (l listing) byID(after cursor, size int) (page []lease.Info, more bool) {
	for i := range l.named {
		info := &l.named[i]
		if info.ID <= after.id || !l.matches(info) {
			continue
		}
		if len(page) == size {
			return page, true
		}
		page = append(page, *info)
	}
	return page, false
}

// checkIDs checks the IDs in a request.
func checkIDs(r *pb.ListRequest) error {
	switch {
	case len(r.Ids) > maxPage:
		return invalid("ids contains %d IDs; the limit is %d", len(r.Ids), maxPage)
	case len(r.Ids) > 0 && r.NamePrefix != "":
		return invalid("ids and name_prefix must not be set together")
	}
	return nil
}

// lookup returns the leases that exist, sorted by ID and without duplicates.
func lookup(l *lease.Lessor, ids []int64) (out []lease.Info) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if info, ok := l.Lookup(lease.ID(id)); ok {
			out = append(out, info)
		}
	}
	return out
}

// wanted returns a filter for the leases of a page, or nil if every lease matches. Once the context
// has ended, the filter rejects all leases. The caller must then discard the page.
func wanted(ctx context.Context, r listing) func(*lease.Info) bool {
	if r.Owner == "" && len(r.Labels) == 0 && r.seesAll() {
		return nil
	}
	seen, over := 0, false
	return func(i *lease.Info) bool {
		if seen++; seen%1024 == 0 {
			over = ctx.Err() != nil
		}
		return !over && r.matches(i)
	}
}

// ordered yields leases in listing order.
func ordered(v lease.View, r *pb.ListRequest) iter.Seq[lease.Info] {
	if r.NamePrefix != "" {
		return v.Named(r.NamePrefix)
	}
	return v.All()
}

func matches(r *pb.ListRequest, i *lease.Info) bool {
	if r.Owner != "" && r.Owner != i.Owner {
		return false
	}
	for k, v := range r.Labels {
		if have, ok := i.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// describeAll converts the leases of a page. It stops when the response is full. If a lease has
// ended since the page was chosen, its remaining time is 0.
func (s *leases) describeAll(
	ctx context.Context, page []lease.Info, keys bool,
) ([]*pb.Lease, error) {
	ids := make([]lease.ID, len(page))
	out := make([]*pb.Lease, len(page))
	for i := range page {
		ids[i] = page[i].ID
		out[i] = api.LeaseMessage(&page[i])
	}
	described := 0
	err := s.node.InspectLeases(ctx, ids, func(l *lease.Lessor, left []replica.Left) {
		total := 0
		for i, m := range out {
			n := l.KeyCount(ids[i])
			if total += n; keys && total > maxPageKeys && i > 0 {
				return
			}
			described++
			now, ok := l.Lookup(ids[i])
			if !ok || now.Token != page[i].Token {
				continue
			}
			m.KeyCount, m.RemainingMs = int64(n), int64(left[i].TTL)
			m.Delayed = !left[i].Found && (now.Delayed || left[i].TTL > 0)
			m.Holds = rangeMessages(s.node.Holds(ids[i]))
			if keys {
				m.Keys = keysOf(l, ids[i])
			}
		}
	})
	if err != nil {
		return nil, err
	}
	bytes := 0
	for i, m := range out[:described] {
		if bytes += proto.Size(m) + 8; bytes > maxPageBytes && i > 0 {
			return out[:i], nil
		}
	}
	return out[:described], nil
}
