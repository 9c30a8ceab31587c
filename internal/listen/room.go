package listen

import (
	"cmp"
	"container/list"
	"context"
	"math/bits"
	"time"

	"google.golang.org/grpc/status"
)

// The rooms.
const (
	small = iota
	fresh
	readers
	rooms
)

// room is a part of what all may leave unread, and the queue of the calls that wait for it.
type room struct {
	most   int64 // bytes
	unread int64
	queue  list.List   // of *account, whose first call waits for this room; by their rank
	next   *time.Timer // looks for connections to close; nil if nobody waits for that
}

// waiter is a call, or a message of a stream, that waits for room.
type waiter struct {
	bytes    int64         // of its answer
	making   bool          // the answer is not made yet; bytes is what is expected
	made     bool          // it has waited for its connection before
	reserved *reservation  // nil if the connection was closed
	place    *list.Element // among those of its account that wait; nil if it never did
	granted  chan struct{}
	cost     int64 // of a call, while it is counted among those that wait
	crowded  bool  // it was refused because too many wait
}

// ask asks for room. It takes the place of the reservation, if that is not nil.
func (a *account) ask(w *waiter, of *reservation) *waiter {
	w.granted = make(chan struct{})
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if w.made = of.releaseLocked(); w.made {
		a.expected = min(max(w.bytes, leastExpected), mostExpected)
	}
	switch {
	case w.making:
		w.bytes = a.expected
		w.place = a.waiting.PushBack(w)
	case w.bytes < largeAnswer && w.bytes+a.unread.Load() <= largeAnswer && !a.closed:
		w.reserved = a.reserveLocked(w.bytes)
		close(w.granted)
	case w.made:
		w.place = a.waiting.PushFront(w)
	default:
		w.place = a.waiting.PushBack(w)
	}
	a.queueLocked()
	a.all.grantLocked()
	return w
}

// enter waits for room for the answer to a call. It returns a reservation for an answer of so many
// bytes, or for one that is in the making if they are 0.
func (a *account) enter(ctx context.Context, bytes int, request any) (*reservation, error) {
	w := a.ask(&waiter{bytes: int64(bytes), making: bytes == 0}, nil)
	return a.awaitCall(ctx, w, request)
}

// awaitCall is await for a call. It counts while it waits, and has patience with a client that has
// unread answers and reads nothing for so long at least.
func (a *account) awaitCall(ctx context.Context, w *waiter, request any) (*reservation, error) {
	select {
	case <-w.granted:
	default:
		a.crowd(w, waitCost+int64(sizeOf(request)))
	}
	return a.await(ctx, w, unreadPatience)
}

// await waits until w has a reservation, or will have none. Patience is for ever if it is 0.
func (a *account) await(
	ctx context.Context, w *waiter, patience time.Duration,
) (_ *reservation, err error) {
	select {
	case <-w.granted:
	default:
		err = a.wait(ctx, w, patience)
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	switch {
	case w.reserved != nil:
		return w.reserved, nil
	case w.crowded:
		err = errCrowd
	}
	a.forgetLocked(w)
	return nil, cmp.Or(err, errNoRoom)
}

// giveUp gives back what w has asked for, or has.
func (a *account) giveUp(w *waiter) {
	if w == nil {
		return
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	w.reserved.releaseLocked()
	a.forgetLocked(w)
}

func (a *account) wait(ctx context.Context, w *waiter, patience time.Duration) error {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTicker(patience)
		defer timer.Stop()
		late = timer.C
	}
	for read := a.written.Load(); ; {
		select {
		case <-w.granted:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-late:
			before := read
			if read = a.written.Load(); read == before && a.unread.Load() > 0 {
				return errNoRoom
			}
		}
	}
}

// forgetLocked lets those behind w pass.
func (a *account) forgetLocked(w *waiter) {
	if w.place != nil {
		a.removeLocked(w) // if it is there still
	}
	a.queueLocked()
	a.all.grantLocked()
}

// queueLocked puts the account into the queue for the room that its first call needs, if the
// account has room for it.
func (a *account) queueLocked() {
	for a.closed && a.waiting.Len() > 0 {
		w := a.waiting.Front().Value.(*waiter)
		a.removeLocked(w)
		close(w.granted)
	}
	var w *waiter
	if a.waiting.Len() > 0 {
		w = a.waiting.Front().Value.(*waiter)
		if !w.made && a.unread.Load() >= maxUnread {
			w = nil
		}
	}
	if w == a.first {
		return
	}
	a.leaveLocked()
	if w == nil {
		return
	}
	a.first, a.room = w, &a.all.rooms[a.roomLocked(w)]
	at := a.room.queue.Back()
	for at != nil && at.Value.(*account).rankLocked() > a.rankLocked() {
		at = at.Prev()
	}
	if at == nil {
		a.place = a.room.queue.PushFront(a)
	} else {
		a.place = a.room.queue.InsertAfter(a, at)
	}
}

// roomLocked returns the room that a call needs. One has proven that it reads who has read as much
// as it will have unread.
func (a *account) roomLocked(w *waiter) int {
	if a.reserved[readers]+w.bytes <= min(a.written.Load()-unproven, maxUnread) {
		return readers
	}
	return fresh
}

// rankLocked orders the calls that wait: readers as they come, of the others first the calls whose
// answers are made, and then the smaller ones.
func (a *account) rankLocked() int {
	if a.first.made || a.room == &a.all.rooms[readers] {
		return 0
	}
	return bits.Len64(uint64(a.first.bytes))
}

// leaveLocked takes the account out of the queue.
func (a *account) leaveLocked() {
	if a.first == nil {
		return
	}
	a.room.queue.Remove(a.place)
	if a.room.queue.Len() == 0 && a.room.next != nil {
		a.room.next.Stop()
		a.room.next = nil
	}
	a.first, a.room, a.place = nil, nil, nil
}

// grantLocked lets on those for whom there is room, one call of each account in turn.
func (all *Answers) grantLocked() {
	for at := range all.rooms {
		for r := &all.rooms[at]; r.queue.Len() > 0; {
			a := r.queue.Front().Value.(*account)
			w := a.first
			if r.unread+min(w.bytes, r.most) > r.most {
				if all.relieveLocked(at) {
					continue
				}
				break
			}
			a.leaveLocked()
			a.removeLocked(w)
			w.reserved = a.chargeLocked(at, w.bytes)
			if w.reserved.making = w.making; w.making {
				a.making++
			}
			close(w.granted)
			a.queueLocked()
		}
	}
}

// relieveLocked closes a connection whose client does not read. If there is none it looks again
// when there may be one.
func (all *Answers) relieveLocked(at int) bool {
	r := &all.rooms[at]
	if r.next != nil {
		return false
	}
	worst, soon := all.worstLocked(at, stalledTime)
	if worst != nil {
		worst.cutLocked()
		return true
	}
	var timer *time.Timer
	timer = time.AfterFunc(soon, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if r.next == timer {
			r.next = nil
			all.grantLocked()
		}
	})
	r.next = timer
	return false
}

// worstLocked returns the account that has left most unread in a room for longest, in bytes times
// seconds, of those that have not read for a while; nil if there is none, and in what time there
// may be one.
func (all *Answers) worstLocked(at int, idle time.Duration) (worst *account, soon time.Duration) {
	now, most := all.nowLocked(), -1.0
	soon = stalledTime
	for a := range all.accounts {
		if a.reserved[at] == 0 {
			continue
		}
		is := a.idleLocked(now)
		if is < idle {
			soon = min(soon, idle-is)
			continue
		}
		if cost := float64(a.reserved[at]) * float64(is+1); cost > most {
			worst, most = a, cost
		}
	}
	return worst, soon
}

// idleLocked returns for how long the client has not read enough. It is called if some is unread.
func (a *account) idleLocked(now time.Duration) time.Duration {
	if a.making > 0 {
		return 0 // it waits for the member
	}
	written, unread := a.written.Load(), a.unread.Load()
	if read := written - a.seen; read > 0 && read >= unread/leastRead {
		a.seen, a.seenAt = written, now
	}
	if now.Milliseconds()-a.begun/unread > slowTime.Milliseconds() {
		return max(now-a.seenAt, stalledTime)
	}
	return now - a.seenAt
}
