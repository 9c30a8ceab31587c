package native

import (
	"fmt"
	"sync"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// maxFragment is from which size in bytes on a response of a watch is split.
const maxFragment = 1 << 20

// watches are the watches of one stream, whose IDs are those of the requests. begin and
// end may be called from any goroutine, next from one.
type watches struct {
	store *store
	hub   *watch.Stream[*api.Event]

	mu        sync.Mutex // guards what follows
	quiet     map[int64]*quiet
	soon      time.Time          // none of them is due before
	ahead     map[int64]*isAhead // by the IDs of their watches
	confirmed []*isAhead         // whose confirm round is over

	// What is left of a batch that is handed out in fragments belongs to next.
	id   int64
	prev bool
	rest []*api.Event
	rev  int64
}

// quiet is a watch that wants to be told also that nothing has happened.
type quiet struct {
	every time.Duration
	last  time.Time // when that was asked for
}

// leastQuiet bounds how often that is.
const leastQuiet = 100 * time.Millisecond

func newWatches(s *store) *watches {
	return &watches{store: s, hub: s.node.Watches().NewStream()}
}

// isAhead is a watch that begins at a revision for which this member is not ready. Another
// member may have told of revisions that this one does not know yet. But after a confirm round
// this one knows all that were told before the watch was asked for. A watch that is ahead even
// then goes on from a state that the cluster does not have any more: somebody has restored an
// older one. It would wait for revisions that come a second time, so it is refused (T34).
type isAhead struct {
	watches *watches
	id      int64
	from    int64
	err     error // of the confirm round; guarded by the watches' mu
}

// Answered implements Answered.
func (a *isAhead) Answered(_ fsm.Result, err error) {
	w := a.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	a.err = err
	w.confirmed = append(w.confirmed, a)
}

// confirm begins a confirm round for a watch, if it is ahead.
func (w *watches) confirm(id, from int64) {
	if from <= w.store.node.View().KV.Revision()+1 {
		return
	}
	a := &isAhead{watches: w, id: id, from: from}
	w.mu.Lock()
	if w.ahead == nil {
		w.ahead = make(map[int64]*isAhead)
	}
	w.ahead[id] = a
	w.mu.Unlock()
	w.store.node.Submit([]Submission{{To: a}})
}

// refuseAhead refuses the watches that are still ahead after their confirm round. A round that
// failed is begun anew.
func (w *watches) refuseAhead() {
	w.mu.Lock()
	list := w.confirmed
	w.confirmed = nil
	var again []Submission
	var late []*isAhead
	for _, a := range list {
		switch {
		case w.ahead[a.id] != a: // the client does not want it any more
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
			_ = w.hub.Refuse(a.id, fmt.Errorf("watch from revision %d, and the newest is %d: if the "+
				"cluster told of it, it was restored to an earlier state since then: read again: %w",
				a.from, revision, mvcc.ErrFutureRevision))
		}
	}
}

// forget forgets what there is to be done for a watch that has ended.
func (w *watches) forget(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.quiet, id)
	delete(w.ahead, id)
}

// tick asks for the progress of the watches that want to be told of it now, and refuses those
// that are ahead.
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

// nextLook returns when tick has something to do, or may have; ok is false if it has not.
func (w *watches) nextLook(now time.Time) (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at = now.Add(lookEvery)
	if len(w.ahead) == 0 && w.soon.After(at) {
		at = w.soon
	}
	return at, len(w.ahead)+len(w.quiet) > 0
}

// maxDue bounds for how many watches progress is asked for at once. Those of a client may all
// have begun together, and the hub takes no more than 64 such requests of a stream.
const maxDue = 32

// dueLocked returns which watches are to be told of their progress now.
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

// soonLocked notes when a watch is due.
func (w *watches) soonLocked(q *quiet) {
	if at := q.last.Add(q.every); at.Before(w.soon) {
		w.soon = at
	}
}

// begin begins a watch; if that fails, next says nothing of it.
func (w *watches) begin(id uint64, r *pb.WatchRequest) error {
	if len(r.GetKey()) == 0 {
		return invalid("the key is empty: for all keys, say key and range_end of one zero byte")
	}
	w.hush(int64(id), r.ProgressMs)
	_, err := w.hub.Watch(watch.Request{
		ID: int64(id), Key: string(r.Key), End: string(r.RangeEnd), From: r.StartRevision,
		NoPut: r.NoPut, NoDelete: r.NoDelete, Tag: r.PrevKv,
	})
	if err != nil {
		w.forget(int64(id))
		return invalid("%s", err)
	}
	w.confirm(int64(id), r.StartRevision)
	return nil
}

// hush notes how often a watch wants to be told that nothing has happened, 0 for never.
func (w *watches) hush(id, ms int64) {
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

// end ends a watch, if there is one.
func (w *watches) end(id uint64) { w.refuse(id, nil) }

// refuse implements feed.
func (w *watches) refuse(id uint64, why error) { _ = w.hub.Refuse(int64(id), why) }

// watchNeeds returns what a watch needs.
func watchNeeds(r *pb.WatchRequest) *api.Need {
	return &api.Need{Reads: []keyrange.Range{{Key: string(r.GetKey()), End: string(r.GetRangeEnd())}}}
}

// next returns what is to be told next, nil if nothing is.
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
			panic(fmt.Sprintf("native: batch of unknown kind %d", b.Kind))
		}
	}
}

// fragment is as much of the events as one response may have.
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

// eventOf converts an event, with the pair before if that is wanted.
func eventOf(e *mvcc.Event, prev bool) *pb.Event {
	out := &pb.Event{Kind: pb.Event_KIND_PUT, Kv: pair(e.KV, false)}
	if e.Delete {
		why, id := fsm.WhyDeleted(e)
		out.Kind, out.Why, out.Lease = pb.Event_KIND_DELETE, whys[why], int64(id)
		out.Kv.Lease = 0 // in the store that is the cause
	}
	if prev && e.Prev != nil {
		out.PrevKv = pair(e.Prev, false)
	}
	return out
}

var whys = map[fsm.Reason]pb.Event_Why{
	fsm.Deleted: pb.Event_WHY_DELETED, fsm.Expired: pb.Event_WHY_EXPIRED,
	fsm.Revoked: pb.Event_WHY_REVOKED,
}
