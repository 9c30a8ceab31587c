package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
)

// watchClient is a watch stream used by a test.
type watchClient struct {
	t      testing.TB
	stream pb.Watch_WatchClient
}

func openWatch(t testing.TB, c *clients) *watchClient {
	t.Helper()
	s, err := c.watch.Watch(ctx10(t))
	if err != nil {
		t.Fatal(err)
	}
	return &watchClient{t, s}
}

// send sends a request. If the server has already ended the stream, Recv returns the reason.
func (w *watchClient) send(r *pb.WatchRequest) {
	w.t.Helper()
	if err := w.stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
}

func (w *watchClient) create(r *pb.WatchCreateRequest) {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
}

func (w *watchClient) progress() {
	w.t.Helper()
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
		ProgressRequest: &pb.WatchProgressRequest{},
	}})
}

func (w *watchClient) recv() *pb.WatchResponse {
	w.t.Helper()
	r, err := w.stream.Recv()
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// events receives responses until it has n events.
func (w *watchClient) events(n int) []*mvccpb.Event {
	w.t.Helper()
	var out []*mvccpb.Event
	for len(out) < n {
		out = append(out, w.recv().Events...)
	}
	return out
}

// TestWatchNegativeID checks that a client cannot choose the ID -1, which stands for all watches in
// responses.
func TestWatchNegativeID(t *testing.T) {
	w := openWatch(t, serve(t, newNode(t), Options{}))
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: -1})
	if r := w.recv(); !r.Created || !r.Canceled || r.WatchId != -1 || r.CancelReason == "" {
		t.Errorf("answered %v", r)
	}
}

// TestTooManyWatches checks that a watch above the total limit is canceled with a reason, and that
// other watches continue. A stream ends if it does not read many such refusals.
func TestTooManyWatches(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	w := openWatch(t, c)
	w.create(&pb.WatchCreateRequest{Key: []byte("k"), WatchId: 1})
	w.recv()
	long := bytes.Repeat([]byte("k"), 1<<20)
	for i := range 9 { // up to half the limit
		w.create(&pb.WatchCreateRequest{Key: long, WatchId: int64(i) + 2})
		r := w.recv()
		if last := i == 8; r.Canceled != last || last && !strings.Contains(r.CancelReason, "too many") {
			t.Errorf("watch %d: %v", i, r)
		}
	}
	n.put(t, "k", "v")
	w.events(1)

	s := &watchStream{service: &watchService{node: n, admit: func(context.Context) error {
		return status.Error(codes.ResourceExhausted, "no")
	}}, stream: unreadStream{ctx: t.Context()}, hub: n.hub.NewStream()}
	defer s.hub.Close()
	var err error
	for i := 0; i < 1<<16 && err == nil; i++ {
		err = s.create(&pb.WatchCreateRequest{Key: []byte("k")})
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream with too many unread refusals ends with %v", err)
	}
}

// unreadStream is a stream that has only a context. Its responses are never sent.
type unreadStream struct {
	pb.Watch_WatchServer
	ctx context.Context
}

func (s unreadStream) Context() context.Context { return s.ctx }

// TestWatchW1 checks that a watch from the past receives every event once and in order, across the
// transition from history to live events, while a writer keeps writing (W1).
func TestWatchW1(t *testing.T) {
	n := newNode(t)
	const total = 3000
	go func() {
		for i := range total {
			_, _ = n.Propose(context.Background(), &fsm.Put{Key: "k", Value: fmt.Append(nil, i)})
		}
	}()
	c := serve(t, n, Options{})
	for range 3 {
		w := openWatch(t, c)
		w.create(&pb.WatchCreateRequest{Key: []byte("k"), StartRevision: 2})
		for i, e := range w.events(total) {
			if e.Kv.ModRevision != int64(i+2) || string(e.Kv.Value) != fmt.Sprint(i) {
				t.Fatalf("event %d is %v", i, e)
			}
		}
	}
}

// TestWatchPrevKV checks that clients decode complete events from our frames.
func TestWatchPrevKV(t *testing.T) {
	n := newNode(t)
	w := openWatch(t, serve(t, n, Options{}))
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), PrevKv: true, WatchId: 1})
	w.recv()
	w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 2})
	w.recv()
	n.put(t, "a", "1")
	n.put(t, "a", "2")
	got := map[int64][]*mvccpb.Event{}
	for len(got[1]) < 2 || len(got[2]) < 2 {
		r := w.recv()
		if r.Header.MemberId != testMember || r.Header.RaftTerm != 2 || r.Header.Revision < 2 {
			t.Errorf("header %v", r.Header)
		}
		got[r.WatchId] = append(got[r.WatchId], r.Events...)
	}
	first := &mvccpb.KeyValue{
		Key: []byte("a"), Value: []byte("1"), CreateRevision: 2, ModRevision: 2, Version: 1,
	}
	if e := got[1]; e[0].PrevKv != nil || !proto.Equal(e[0].Kv, first) ||
		!proto.Equal(e[1].PrevKv, first) {
		t.Errorf("with previous pairs: %v", e)
	}
	if e := got[2]; e[0].PrevKv != nil || e[1].PrevKv != nil {
		t.Errorf("without previous pairs: %v", e)
	}
}

// TestT14Fragments checks that a revision larger than a message is sent in parts, each with the
// revision in its header, and all but the last marked as fragments. A watch that did not request
// fragments receives it in one piece.
func TestT14Fragments(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{MaxRequestBytes: 1 << 10})
	limit := 1<<10 + requestOverhead
	w := openWatch(t, c)
	w.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), Fragment: true})
	whole := openWatch(t, c)
	whole.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l")})
	w.recv()
	whole.recv()
	txn := &fsm.Txn{}
	for i := range 20 {
		txn.Then = append(txn.Then, fsm.Op{Put: &fsm.Put{
			Key: fmt.Sprintf("k%02d", i), Value: make([]byte, 100<<10),
		}})
	}
	if r, err := n.Propose(t.Context(), txn); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	if r := whole.recv(); r.Fragment || len(r.Events) != 20 {
		t.Errorf("unasked: fragment %v, %d events", r.Fragment, len(r.Events))
	}
	var events []*mvccpb.Event
	parts := 0
	for more := true; more; parts++ {
		r := w.recv()
		if proto.Size(r) >= limit {
			t.Errorf("a part of %d bytes", proto.Size(r))
		}
		if r.Header.Revision != 2 || r.WatchId != 0 {
			t.Errorf("revision %d of watch %d", r.Header.Revision, r.WatchId)
		}
		events = append(events, r.Events...)
		more = r.Fragment
	}
	if parts < 3 || len(events) != 20 {
		t.Errorf("%d parts with %d events", parts, len(events))
	}
	for i, e := range events {
		if want := fmt.Sprintf("k%02d", i); string(e.Kv.Key) != want {
			t.Errorf("event %d is of %s", i, e.Kv.Key)
		}
	}
}

// TestProgressInterval checks that an idle watch receives progress notifications if it requested
// them. A busy watch, or one that did not request them, receives none.
func TestProgressInterval(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{ProgressInterval: minProgressInterval})
	w := openWatch(t, c)
	create := func(r *pb.WatchCreateRequest) {
		w.create(r)
		for !w.recv().Created { // the first watch can receive it before the last one exists
			continue
		}
	}
	const watches = 3 * maxProgress // more than the hub processes at once
	for i := range watches {
		create(&pb.WatchCreateRequest{
			Key: fmt.Appendf(nil, "k%d", i), ProgressNotify: true, WatchId: int64(i + 1),
		})
	}
	create(&pb.WatchCreateRequest{Key: []byte("other"), WatchId: 9999})
	rev := n.put(t, "unrelated", "1")
	answered := map[int64]bool{}
	for len(answered) < watches {
		r := w.recv()
		if r.WatchId == 9999 {
			t.Fatal("progress of a watch that did not ask")
		}
		if len(r.Events) > 0 || r.Created || r.Canceled {
			t.Fatalf("received %v", r)
		}
		if r.Header.Revision == rev {
			answered[r.WatchId] = true
		}
	}
}

// TestProgressNoWatch checks that a progress request on a stream without watches has no effect.
func TestProgressNoWatch(t *testing.T) {
	w := openWatch(t, serve(t, newNode(t), Options{}))
	w.progress()
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	if r := w.recv(); !r.Created {
		t.Errorf("received %v", r)
	}
	w.progress()
	if r := w.recv(); r.WatchId != -1 || r.Header.Revision != 1 {
		t.Errorf("received %v", r)
	}
}

// TestWatchHalfClose checks that a client still receives events after it half-closes its stream, as
// in etcd. The stream ends with its context and leaves nothing behind.
func TestWatchHalfClose(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	ctx, cancel := context.WithCancel(ctx10(t))
	defer cancel()
	s, err := c.watch.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &watchClient{t, s}
	w.create(&pb.WatchCreateRequest{Key: []byte("a")})
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if r := w.recv(); !r.Created {
		t.Errorf("received %v", r)
	}
	for _, value := range []string{"1", "2"} {
		n.put(t, "a", value)
		if e := w.events(1)[0]; string(e.Kv.Value) != value {
			t.Errorf("received %v", e)
		}
	}
	cancel()
	for end := ctx10(t); ; {
		if st := n.hub.Stats(); st.Streams == 0 && st.Watchers == 0 {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-end.Done():
			t.Fatalf("left behind %+v", n.hub.Stats())
		}
	}
}

// TestWatchLargeShared checks that a large event reaches many streams intact, although they share
// its bytes.
func TestWatchLargeShared(t *testing.T) {
	n := newNode(t)
	c := serve(t, n, Options{})
	var streams []*watchClient
	for range 8 {
		w := openWatch(t, c)
		w.create(&pb.WatchCreateRequest{Key: []byte("big"), PrevKv: true})
		w.recv()
		streams = append(streams, w)
	}
	for i := range 5 {
		value := strings.Repeat(fmt.Sprint(i), 300<<10)
		n.put(t, "big", value)
		for _, w := range streams {
			e := w.events(1)[0]
			if !bytes.Equal(e.Kv.Value, []byte(value)) || (i > 0) != (e.PrevKv != nil) {
				t.Fatalf("round %d: a value of %d bytes, previous %v", i, len(e.Kv.Value), e.PrevKv != nil)
			}
		}
	}
}
