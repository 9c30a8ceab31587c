package native

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// maxFragment is the size, in bytes, above which a watch response is split.
const maxFragment = 1 << 20

// watches contains the watches of one stream. Watch IDs are request IDs. Any goroutine may call
// begin and end, but only one goroutine may call next.
type watches struct {
	store *store
	hub   *watch.Stream[*api.Event]

	mu        sync.Mutex // guards the fields up to confirmed
	quiet     map[int64]*quiet
	soon      time.Time              // when the first quiet watch is due
	ahead     map[int64]*futureWatch // by watch ID
	confirmed []*futureWatch         // watches whose confirm round has ended

	// The remaining events of a batch that next is returning in fragments.
	id   int64
	prev bool
	rest []*api.Event
	rev  int64
}

// quiet is a watch whose client wants progress responses when there are no changes.
type quiet struct {
	every time.Duration
	last  time.Time // when progress was last requested
}

// leastQuiet is the minimum interval between progress responses.
const leastQuiet = 100 * time.Millisecond

func newWatches(s *store) *watches {
	return &watches{store: s, hub: s.node.Watches().NewStream()}
}

// futureWatch is a watch that starts at a revision that this member has not reached. Another member
// may have reached it. After a confirm round, this member has every revision that was acknowledged
// before the watch was requested.
//
// If the watch is still ahead after that, the cluster has been restored to an earlier state. The
// watch would miss the revisions that are assigned a second time, so it is rejected (T34).
type futureWatch struct {
	watches *watches
	id      int64
	from    int64
	err     error // error of the confirm round; guarded by the watches' mu
}

// Answered implements Answered.
func (a *futureWatch) Answered(_ fsm.Result, err error) {
	w := a.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	a.err = err
	w.confirmed = append(w.confirmed, a)
}

// confirm starts a confirm round for a watch if the watch is ahead.
func (w *watches) confirm(id, from int64) {
	if from <= w.store.node.View().KV.Revision()+1 {
		return
	}
	a := &futureWatch{watches: w, id: id, from: from}
	w.mu.Lock()
	if w.ahead == nil {
		w.ahead = make(map[int64]*futureWatch)
	}
	w.ahead[id] = a
	w.mu.Unlock()
	w.store.node.Submit([]Submission{{To: a}})
}

// refuseAhead rejects the watches that are still ahead after their confirm round. It retries failed
// confirm rounds.
func (w *watches) refuseAhead() {
	w.mu.Lock()
	list := w.confirmed
	w.confirmed = nil
	var again []Submission
	var late []*futureWatch
	for _, a := range list {
		switch {
		case w.ahead[a.id] != a: // the watch was canceled
		case a.err != nil:
			again = append(again, Submission{To: a})
		default:
			delete(w.ahead, a.id)
			late = append(late, a)
		}
	}
	w.mu.Unlock()
	if len(again) > 0 {
		w.store.node.Submit(again)
	}
	revision := w.store.node.View().KV.Revision()
	for _, a := range late {
		if a.from > revision+1 {
			_ = w.hub.Refuse(a.id, fmt.Errorf("watch from revision %d, but the latest is %d: the "+
				"cluster may have been restored to an earlier state: read the keys again: %w",
				a.from, revision, mvcc.ErrFutureRevision))
		}
	}
}

// forget removes a watch that has ended.
func (w *watches) forget(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.quiet, id)
	delete(w.ahead, id)
}

// tick requests progress for the quiet watches that are due. It also rejects watches that are
// ahead.
func (w *watches) tick(now time.Time) {
	w.refuseAhead()
	w.mu.Lock()
	var due []int64
	if !now.Before(w.soon) {
		due = w.dueLocked(now)
	}
	w.mu.Unlock()
	for _, id := range due {
		w.hub.RequestProgress(id)
	}
}

// nextLook returns the next time at which tick might have something to do. If ok is false, tick is
// not needed.
func (w *watches) nextLook(now time.Time) (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at = now.Add(lookEvery)
	if len(w.ahead) == 0 && w.soon.After(at) {
		at = w.soon
	}
	return at, len(w.ahead)+len(w.quiet) > 0
}

// maxDue limits the progress requests of one tick. All of a client's watches may have started at
// the same time, and the hub accepts at most 64 such requests from a stream.
const maxDue = 32

// dueLocked returns the quiet watches that are due. It also updates soon.
func (w *watches) dueLocked(now time.Time) (due []int64) {
	w.soon = now.Add(maxQuiet * time.Millisecond)
	for id, q := range w.quiet {
		if now.Sub(q.last) >= q.every && len(due) < maxDue {
			q.last, due = now, append(due, id)
		}
		w.soonLocked(q)
	}
	return due
}

// soonLocked lowers soon to the time at which the watch is due.
func (w *watches) soonLocked(q *quiet) {
	if at := q.last.Add(q.every); at.Before(w.soon) {
		w.soon = at
	}
}

// begin starts a watch. If it returns an error, next returns no responses for the watch.
func (w *watches) begin(id uint64, r *pb.WatchRequest) error {
	if len(r.GetKey()) == 0 {
		return invalid(emptyKey)
	}
	w.setQuiet(int64(id), r.ProgressMs)
	_, err := w.hub.Watch(watch.Request{
		ID: int64(id), Key: string(r.Key), End: string(r.RangeEnd), From: r.StartRevision,
		NoPut: r.NoPut, NoDelete: r.NoDelete, Tag: r.PrevKv,
	})
	if err != nil {
		w.forget(int64(id))
		if errors.Is(err, watch.ErrFull) {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
		return invalid("%s", err)
	}
	w.confirm(int64(id), r.StartRevision)
	return nil
}

// setQuiet sets the interval between progress responses of a watch, in milliseconds. 0 means that
// there are none.
func (w *watches) setQuiet(id, ms int64) {
	if ms <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	every := time.Duration(min(ms, maxQuiet)) * time.Millisecond
	q := &quiet{every: max(every, leastQuiet), last: time.Now()}
	if w.quiet == nil {
		w.quiet = make(map[int64]*quiet)
	}
	w.quiet[id] = q
	w.soonLocked(q)
}

const maxQuiet = 3_600_000 // milliseconds

// end implements feed.
func (w *watches) end(id uint64) { w.refuse(id, nil) }

// refuse implements feed.
func (w *watches) refuse(id uint64, why error) { _ = w.hub.Refuse(int64(id), why) }

// watchNeeds returns the permissions that a watch needs.
func watchNeeds(r *pb.WatchRequest) *api.Need {
	return &api.Need{Reads: []keyrange.Range{{Key: string(r.GetKey()), End: string(r.GetRangeEnd())}}}
}

// next implements feed.
func (w *watches) next() *pb.Response {
	if len(w.rest) > 0 {
		return w.fragment()
	}
	for {
		b, ok := w.hub.Poll()
		if !ok {
			return nil
		}
		switch b.Kind {
		case watch.Changed:
			w.id, w.prev, w.rest, w.rev = b.ID, b.Tag.(bool), b.Events, b.Revision
			return w.fragment()
		case watch.Created, watch.Progress:
			return w.response(b.ID, &pb.WatchResponse{Header: w.header(b.Revision)})
		case watch.Cancelled:
			w.forget(b.ID)
			r := &pb.Response{Id: uint64(b.ID)}
			if b.Err != nil {
				e := api.ErrorMessage(b.Err, api.ReadReason(b.Err))
				r.Body = &pb.Response_Error{Error: e}
			}
			return r
		default:
			panic(fmt.Sprintf("native: batch has unknown kind %d", b.Kind))
		}
	}
}

// fragment returns a response with as many events as fit.
func (w *watches) fragment() *pb.Response {
	n, size := 0, 0
	for n < len(w.rest) && (n == 0 || size < maxFragment) {
		size += w.rest[n].Size()
		if prev := w.rest[n].Change().Prev; w.prev && prev != nil {
			size += len(prev.Key) + len(prev.Value)
		}
		n++
	}
	m := &pb.WatchResponse{Header: w.header(w.rev), Events: make([]*pb.Event, n)}
	for i, e := range w.rest[:n] {
		m.Events[i] = eventOf(e.Change(), w.prev)
	}
	w.rest = w.rest[n:]
	m.Fragment = len(w.rest) > 0
	return w.response(w.id, m)
}

func (w *watches) response(id int64, m *pb.WatchResponse) *pb.Response {
	return &pb.Response{Id: uint64(id), More: true, Body: &pb.Response_Watch{Watch: m}}
}

func (w *watches) header(revision int64) *pb.Header {
	return w.store.header(w.store.node.View(), revision)
}

// eventOf converts an event. If prev is set, the result includes the previous key-value pair.
func eventOf(e *mvcc.Event, prev bool) *pb.Event {
	out := &pb.Event{Kind: pb.Event_KIND_PUT, Kv: pair(e.KV, false)}
	if e.Delete {
		why, id := fsm.WhyDeleted(e)
		out.Kind, out.Cause, out.Lease = pb.Event_KIND_DELETE, eventCauses[why], int64(id)
		out.Kv.Lease = 0 // the store uses this field for the cause
	}
	if prev && e.Prev != nil {
		out.PrevKv = pair(e.Prev, false)
	}
	return out
}

var eventCauses = map[fsm.Reason]pb.Event_Cause{
	fsm.Deleted: pb.Event_CAUSE_DELETED, fsm.Expired: pb.Event_CAUSE_EXPIRED,
	fsm.Revoked: pb.Event_CAUSE_REVOKED,
}
