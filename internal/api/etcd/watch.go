package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/watch"
)

// watchService serves etcdserverpb.Watch.
type watchService struct {
	pb.UnsafeWatchServer
	identity
	node     Node
	maxBytes int           // per fragment
	interval time.Duration // interval between progress notifications
	stop     context.Context
	panics   *listen.Panics
	admit    func(context.Context) error
}

// watcher is what a stream keeps about one of its watchers. The receiving goroutine creates it.
// From then on, the sending goroutine owns it.
type watcher struct {
	prev     bool // include the previous key-value pair in events
	fragment bool // split large responses
	progress bool // report progress while there are no events
	quiet    bool // nothing has been sent since the last tick

	key, end string // the watched range
	denied   error  // set if the caller has lost permission; sent when the watch ends
}

// Watch implements pb.WatchServer. One goroutine receives requests and passes them to the hub. The
// calling goroutine sends the hub's batches for the stream.
func (s *watchService) Watch(stream pb.Watch_WatchServer) error {
	w := &watchStream{
		service: s,
		stream:  stream,
		hub:     s.node.Watches().NewStream(),
		ended:   make(chan error, 1),
		quiet:   make(map[int64]*watcher), watchers: make(map[int64]*watcher),
	}
	defer w.close()
	go w.receive()
	return w.send(stream.Context())
}

// watchStream is one open stream.
type watchStream struct {
	service *watchService
	stream  pb.Watch_WatchServer
	hub     *watch.Stream[*api.Event]
	ended   chan error // receives one error if receiving fails

	// The fields below belong to the sending goroutine.
	watchers map[int64]*watcher // watchers whose creation has been reported to the client
	// allowed holds the users and roles as of the last check of the watchers, and who holds the
	// caller as of that check.
	allowed *access.State
	who     access.Caller
	quiet   map[int64]*watcher // watchers with progress notifications
	ticker  *time.Ticker       // runs while quiet is not empty
	due     []int64            // watchers whose progress must still be requested
	pending int                // number of outstanding progress requests
	frame   watchFrame
}

func (w *watchStream) close() {
	w.hub.Close()
	if w.ticker != nil {
		w.ticker.Stop()
	}
}

// receive passes requests to the hub until the client has finished sending or the stream ends. As
// in etcd, a client that has closed its side still receives events. An HTTP client closes its side
// as soon as it has sent its request.
func (w *watchStream) receive() {
	if err := w.receiveAll(); !errors.Is(err, io.EOF) {
		w.ended <- err
	}
}

func (w *watchStream) receiveAll() (err error) {
	defer w.service.panics.End("watch", &err)
	for {
		req, err := w.stream.Recv()
		if err != nil {
			return err
		}
		switch r := req.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			if err := w.create(r.CreateRequest); err != nil {
				return err
			}
		case *pb.WatchRequest_CancelRequest:
			// The client receives no response for an unknown watcher.
			_ = w.hub.Cancel(r.CancelRequest.GetWatchId())
		case *pb.WatchRequest_ProgressRequest:
			w.hub.RequestProgress(watch.AllWatchers)
		}
	}
}

// create adds a watcher. If that fails, it queues an error for the client, in order with the other
// responses. It returns an error if the client has too many unread errors.
func (w *watchStream) create(r *pb.WatchCreateRequest) error {
	if r == nil {
		return nil
	}
	ctx := w.stream.Context()
	if err := w.service.admit(ctx); err != nil {
		return w.reject(errors.New(status.Convert(api.Error(err)).Message()))
	}
	if err := w.begin(ctx, r); err != nil {
		return w.reject(err)
	}
	return nil
}

func (w *watchStream) reject(err error) error {
	if err := w.hub.Reject(err); err != nil {
		return status.Error(codes.ResourceExhausted, reason(err))
	}
	return nil
}

// begin adds a watcher. It returns an error if that is not possible.
func (w *watchStream) begin(ctx context.Context, r *pb.WatchCreateRequest) error {
	t := &watcher{prev: r.PrevKv, fragment: r.Fragment, progress: r.ProgressNotify}
	req := watch.Request{
		ID:   r.WatchId,
		Key:  string(r.Key),
		End:  string(r.RangeEnd),
		From: r.StartRevision,
		Tag:  t,
	}
	if req.Key == "" {
		req.Key = "\x00" // the smallest possible key
	}
	for _, f := range r.Filters {
		req.NoPut = req.NoPut || f == pb.WatchCreateRequest_NOPUT
		req.NoDelete = req.NoDelete || f == pb.WatchCreateRequest_NODELETE
	}
	t.key, t.end = req.Key, req.End
	if err := t.permit(ctx, w.service.node.View()); err != nil {
		return err
	}
	if r.WatchId < 0 {
		return errWatchID
	}
	_, err := w.hub.Watch(req)
	return err
}

// permit returns an error if the caller may not watch the watcher's range. Empty ranges are
// rejected elsewhere.
func (t *watcher) permit(ctx context.Context, v *fsm.View) error {
	return readable(ctx, v, t.key, t.end)
}

// recheck ends the watchers that the current users and roles no longer permit. For these, the
// client receives only the reason.
func (w *watchStream) recheck() {
	v := w.service.node.View()
	who := api.CallerOf(w.stream.Context())
	if v.Access == w.allowed && who == w.who {
		return
	}
	w.allowed, w.who = v.Access, who
	for id, t := range w.watchers {
		w.end(id, t, v)
	}
}

// end ends a watcher if the caller lacks the permission.
func (w *watchStream) end(id int64, t *watcher, v *fsm.View) {
	if t.denied != nil {
		return
	}
	if t.denied = t.permit(w.stream.Context(), v); t.denied != nil {
		_ = w.hub.Cancel(id) // fails only if the watch has already ended
	}
}

// errWatchID rejects negative IDs, because they have a different meaning in responses.
var errWatchID = errors.New("etcdserver: watch ID is negative")

// reason returns the text that tells the client why a watch was rejected.
func reason(err error) string {
	switch {
	case errors.Is(err, watch.ErrRevision):
		return rpctypes.ErrCompacted.Error()
	case errors.Is(err, watch.ErrEmptyRange):
		return "mvcc: watcher range is empty"
	case errors.Is(err, watch.ErrFull):
		return "leasehold: there are too many watches, or their keys are too long"
	case errors.Is(err, watch.ErrDuplicate):
		return "mvcc: duplicate watch ID provided on the WatchStream"
	default:
		return err.Error()
	}
}

// send sends until the stream ends.
func (w *watchStream) send(ctx context.Context) error {
	for {
		changed := w.service.node.AccessChanged()
		w.recheck()
		for b, ok := w.hub.Poll(); ok; b, ok = w.hub.Poll() {
			if err := w.answer(&b); err != nil {
				return err
			}
		}
		select {
		case <-w.hub.Ready():
		case <-changed:
		case <-w.ticks():
			w.tick()
		case err := <-w.ended:
			return watchEnd(err)
		case <-ctx.Done():
			return watchEnd(context.Cause(ctx))
		case <-w.service.stop.Done():
			return api.Error(context.Cause(w.service.stop))
		}
	}
}

// watchEnd returns the error for a stream whose receiving goroutine has ended with err.
func watchEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	return err
}

// answer handles one batch from the hub.
func (w *watchStream) answer(b *watch.Batch[*api.Event]) error {
	switch b.Kind {
	case watch.Changed:
		t := b.Tag.(*watcher)
		if w.recheck(); t.denied != nil {
			return nil
		}
		t.quiet = false
		return w.sendEvents(b, t)
	case watch.Progress:
		if b.ID != watch.AllWatchers {
			w.pending--
			w.askProgress()
		} else if len(w.watchers) == 0 {
			return nil // like etcd, send no response
		}
	case watch.Created:
		if b.Err == nil {
			w.began(b)
		}
	case watch.Cancelled:
		t := w.watchers[b.ID]
		delete(w.watchers, b.ID)
		delete(w.quiet, b.ID)
		if t != nil && t.denied != nil {
			resp := w.control(b)
			resp.CancelReason = t.denied.Error()
			return w.stream.Send(resp)
		}
	default:
		panic(fmt.Sprintf("etcd: batch has unknown kind %d", b.Kind))
	}
	return w.stream.Send(w.control(b))
}

// control returns the response for a batch without events.
func (w *watchStream) control(b *watch.Batch[*api.Event]) *pb.WatchResponse {
	rev := b.Revision
	if b.Compacted != 0 {
		rev = 0 // as in etcd, do not confirm delivery
	}
	resp := &pb.WatchResponse{
		Header:          w.service.headerAt(w.service.node.View(), rev),
		WatchId:         b.ID,
		Created:         b.Kind == watch.Created,
		Canceled:        b.Kind == watch.Cancelled || b.Err != nil,
		CompactRevision: b.Compacted,
	}
	if b.Kind == watch.Created && b.Err != nil {
		resp.CancelReason = reason(b.Err)
	}
	return resp
}

// began records a watcher whose creation is about to be reported to the client.
func (w *watchStream) began(b *watch.Batch[*api.Event]) {
	t := b.Tag.(*watcher)
	w.watchers[b.ID] = t
	w.end(b.ID, t, w.service.node.View())
	if !t.progress {
		return
	}
	// As in etcd, the first tick after its creation reports the watcher's progress.
	t.quiet = true
	w.quiet[b.ID] = t
	if w.ticker == nil {
		// Spread the ticks, so that the streams of a restarted client do not tick together.
		d := w.service.interval
		w.ticker = time.NewTicker(d + rand.N(d/10+1))
	}
}

// ticks returns the ticker's channel, or nil if the ticker is not running.
func (w *watchStream) ticks() <-chan time.Time {
	if w.ticker == nil {
		return nil
	}
	return w.ticker.C
}

// maxProgress limits the outstanding progress requests. The hub drops requests that exceed its own
// limit.
const maxProgress = 32

// tick requests progress notifications for watchers that have sent nothing since the last tick.
func (w *watchStream) tick() {
	w.due, w.pending = w.due[:0], 0 // earlier requests that are still unanswered have been lost
	for id, t := range w.quiet {
		if t.quiet {
			w.due = append(w.due, id)
		}
		t.quiet = true
	}
	w.askProgress()
}

func (w *watchStream) askProgress() {
	for w.pending < maxProgress && len(w.due) > 0 {
		id := w.due[len(w.due)-1]
		w.due = w.due[:len(w.due)-1]
		w.pending++
		w.hub.RequestProgress(id)
	}
}

// sendEvents sends the events of one batch. If the response would be too large and the watcher
// supports it, the response is split into fragments. All fragments except the last have the flag
// set. Until the last one arrives, the client does not have a complete revision and must not resume
// after it (W1, T14).
func (w *watchStream) sendEvents(b *watch.Batch[*api.Event], t *watcher) error {
	f := &w.frame
	f.stamp = stamp{w.service.identity, b.Revision, w.service.node.View().Term}
	f.id, f.prev, f.events = b.ID, t.prev, b.Events
	f.fragment = false
	defer func() { f.events = nil }()
	if !t.fragment || len(b.Events) < 2 || f.Size() < w.service.maxBytes {
		return w.stream.SendMsg(f)
	}
	for rest := b.Events; len(rest) > 0; {
		n := f.fits(rest, w.service.maxBytes)
		f.events, rest = rest[:n], rest[n:]
		f.fragment = len(rest) > 0
		if err := w.stream.SendMsg(f); err != nil {
			return err
		}
	}
	return nil
}
