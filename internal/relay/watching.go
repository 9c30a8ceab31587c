package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/channel"
)

// watching contains the watches of one call and their pending messages from shared watches.
type watching struct {
	merger   *merger
	upstream *upstream
	call     *pb.RelayCall
	ctx      context.Context // the call's context
	fail     func(error)     // ends the call
	// a call to StreamService, which can have many watches, identified by their request IDs
	stream bool
	wake   chan struct{} // capacity 1: there may be something to send
	turns  chan struct{} // contains a token for each watch that is catching up

	caller *caller // belongs to the goroutine that sends to the member; nil until needed

	mu    sync.Mutex // guards the following fields; locked after a group's mu
	open  map[uint64]*follower
	list  []message
	bytes int           // total size of list
	read  chan struct{} // closed when list becomes empty; nil if nothing is waiting for that
	over  bool
}

// follower is one of a client's watches.
type follower struct {
	of     *watching
	id     uint64
	group  *group
	merged bool
	from   int64 // the requested start revision; 0 if there is none

	// at is the revision up to which all events have been sent. It belongs to the goroutine that
	// passes events to the follower. While the follower is part of the shared watch, the group's mu
	// guards it.
	at int64

	// The fields below are guarded by of.mu.
	begun, over bool
	stop        context.CancelFunc // nil unless the follower is catching up
}

// up tracks the watches in a message from the client. It returns the message to send to the member.
func (w *watching) up(b []byte) []byte {
	if w == nil {
		return b
	}
	if !w.stream {
		r := new(pb.WatchRequest)
		if proto.Unmarshal(b, r) != nil || !w.begin(0, r) {
			return b
		}
		return encoded(r, b)
	}
	if !hasWatches(b) {
		return b
	}
	m, changed := new(pb.ClientMessage), false
	if proto.Unmarshal(b, m) != nil {
		return b
	}
	for _, r := range m.Requests {
		if ask := r.GetWatch(); ask != nil && w.begin(r.Id, ask) {
			changed = true
		}
	}
	if !changed {
		return b
	}
	return encoded(m, b)
}

func encoded(m proto.Message, old []byte) []byte {
	if b, err := proto.Marshal(m); err == nil {
		return b
	}
	return old // unreachable: the message arrived in encoded form
}

// begin starts tracking a watch. If the watch is merged, begin changes the request so that the
// member sends no events, and returns true.
func (w *watching) begin(id uint64, r *pb.WatchRequest) (merged bool) {
	ask, what, ok := mergeable(r)
	if !ok {
		return false
	}
	if w.caller == nil {
		w.caller = callerOf(w.call)
	}
	f := &follower{of: w, id: id, from: r.StartRevision}
	w.merger.enter(f, watchKey{w.upstream, w.caller.sum, what}, ask)
	if !w.add(f) {
		w.merger.leave(f)
		return false
	}
	if f.merged {
		r.NoPut, r.NoDelete, r.ProgressMs = true, true, 0
	}
	return f.merged
}

// add adds a watch. It returns false if the call has ended or already has a watch with the same ID.
// In the second case, the member reports the error.
func (w *watching) add(f *follower) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.open[f.id] != nil {
		return false
	}
	if w.open == nil {
		w.open = make(map[uint64]*follower)
	}
	w.open[f.id] = f
	return true
}

// news returns a channel that contains a token when there may be something to send.
func (w *watching) news() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.wake
}

// down tracks a message from the member before it is sent to the client. It returns the watches
// that have begun. The caller must pass them to join once the message has been sent.
func (w *watching) down(b []byte) (begun []*follower) {
	if w == nil || !w.has() {
		return nil
	}
	if !w.stream {
		return w.handle(response{more: true, watch: b}, nil)
	}
	parseResponses(b, func(r response) { begun = w.handle(r, begun) })
	return begun
}

func (w *watching) has() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open) > 0
}

func (w *watching) handle(r response, begun []*follower) []*follower {
	w.mu.Lock()
	f := w.open[r.id]
	w.mu.Unlock()
	switch {
	case f == nil:
	case !r.more:
		w.end(f)
	case f.merged && !f.begun && r.watch != nil:
		if t, ok := parseWatchMessage(r.watch); ok {
			f.begun, f.at = true, t.revision
			if f.from > 0 {
				f.at = f.from - 1
			}
			begun = append(begun, f)
		}
	}
	return begun
}

// join makes each watch join its group or catch up.
func (w *watching) join(begun []*follower) {
	for _, f := range begun {
		if !f.group.join(f) {
			go f.catchUp()
		}
	}
}

// end records that a watch has ended.
func (w *watching) end(f *follower) {
	w.mu.Lock()
	delete(w.open, f.id)
	f.over = true
	stop := f.stop
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	w.merger.leave(f)
}

// close ends all watches.
func (w *watching) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.over, w.list = true, nil
	all := w.open
	w.open = nil
	w.mu.Unlock()
	for _, f := range all {
		w.end(f)
	}
}

// take removes and returns the messages to send.
func (w *watching) take() (list []message) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list, w.list, w.bytes = w.list, nil, 0
	if w.read != nil {
		close(w.read)
		w.read = nil
	}
	return list
}

// put adds a message to send to the client. It returns false if too many bytes are waiting.
func (f *follower) put(b []byte) bool {
	w := f.of
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.over || w.over {
		return true // the watch has ended
	}
	if w.bytes > 0 && w.bytes+len(b)+cost > maxUnread {
		return false
	}
	m := message{body: b}
	if w.stream {
		m.bytes = head(f.id, len(b))
	}
	w.bytes += len(b) + cost
	w.list = append(w.list, m)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}

// give passes the events after f.at to the watch. It returns false if the watch must catch up
// instead.
func (f *follower) give(t watchMessage) bool {
	rest, err := t.after(f.at)
	if err != nil || rest != nil && !f.put(rest) && t.first > 0 {
		return false
	}
	f.at = max(f.at, t.revision)
	return true
}

func (f *follower) isOver() bool {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	return f.over
}

// room waits until the client has read its waiting messages.
func (f *follower) room(ctx context.Context) {
	w := f.of
	w.mu.Lock()
	if w.bytes == 0 {
		w.mu.Unlock()
		return
	}
	if w.read == nil {
		w.read = make(chan struct{})
	}
	read := w.read
	w.mu.Unlock()
	select {
	case <-read:
	case <-ctx.Done():
	}
}

// catchUp fetches the missing events of the watch with separate calls until the watch can join its
// group.
func (f *follower) catchUp() {
	ctx, cancel := context.WithCancel(f.of.ctx)
	defer cancel()
	f.of.mu.Lock()
	over := f.over || f.of.over
	f.stop = cancel
	f.of.mu.Unlock()
	if over {
		return
	}
	for wait := firstPause; ; {
		joined, err := f.turn(ctx)
		switch {
		case joined, ctx.Err() != nil, errors.Is(err, channel.ErrLost):
			return
		case err == nil:
			wait = firstPause
			continue // let other watches have a turn
		case errors.Is(err, errRefused) && f.group.merger.catchesUp(f.group.key.who):
			// other watches that are catching up use up the limit until they finish
			wait = firstPause
		case !errors.Is(err, errRefused) || wait > lastPause:
			f.failLate(ctx)
			return
		}
		backoff.Sleep(ctx, wait)
		wait *= 2
	}
}

// failLate ends the call unless the member reports the reason first.
func (f *follower) failLate(ctx context.Context) {
	if backoff.Sleep(ctx, refusalTime) {
		f.of.fail(errUnfollowed)
	}
}

// turn lets the watch catch up for a while. It first waits until few enough of the call's other
// watches are catching up and the client has read its waiting messages. It returns true when the
// watch has joined or ended.
func (f *follower) turn(ctx context.Context) (joined bool, err error) {
	select {
	case f.of.turns <- struct{}{}:
	case <-ctx.Done():
		return false, nil
	}
	defer func() { <-f.of.turns }()
	if f.room(ctx); ctx.Err() != nil {
		return false, nil
	}
	if f.group.join(f) {
		return true, nil
	}
	return f.catchUpAlone(ctx)
}

// catchUpAlone makes a separate call and passes its messages to the watch. It returns when the
// watch can join or its turn is over.
func (f *follower) catchUpAlone(ctx context.Context) (joined bool, err error) {
	until := time.Now().Add(turnTime)
	c, err := f.group.open(f.at+1, catchUpEvery)
	if err != nil {
		return false, err
	}
	defer c.End(endOfOwn())
	m, who := f.group.merger, f.group.key.who
	for began := false; ; began = true {
		b, err := c.Recv(ctx)
		if err != nil {
			if f.group.refused(c) {
				err = errRefused
			}
			return false, err
		}
		if !began {
			m.catchUp(who, 1)
			defer m.catchUp(who, -1)
			continue
		}
		t, ok := parseWatchMessage(b)
		rest, err := t.after(f.at)
		if !ok || err != nil {
			return false, errUnfollowed
		}
		for rest != nil && t.first > 0 && !f.put(rest) {
			if f.room(ctx); ctx.Err() != nil {
				return false, nil
			}
		}
		if t.fragment {
			continue // wait until the revision is complete
		}
		f.at = max(f.at, t.revision)
		if joined = f.group.join(f); joined || time.Now().After(until) {
			return joined, nil
		}
	}
}
