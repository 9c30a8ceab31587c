package listen

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// reader is a connection whose client reads at some rate.
type reader struct {
	net.Conn
	account *account
	closed  atomic.Bool
}

func (r *reader) Close() error {
	r.closed.Store(true)
	return nil
}

// newReader returns a connection that owes bytes, and reads so much of other answers a second.
func newReader(t *testing.T, all *Answers, owes, rate int64) *reader {
	r := &reader{}
	r.account = all.conn(r).(*accounted).account
	r.account.add(owes, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for range 60 {
			<-ticker.C
			r.account.written.Add(rate)
		}
	}()
	t.Cleanup(func() { <-done })
	return r
}

// Goal: connections that read next to nothing keep nobody's answers waiting for long, also if all
// the room is theirs; who reads well stays. Method: two slow connections, a fast one that owes
// more, and one that owes nothing and asks for room.
func TestSlowReadersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewAnswers()
		fast := newReader(t, all, maxUnreadAll/2, maxUnreadAll/8)
		slow := newReader(t, all, maxUnreadAll/4, 1<<10)
		slower := newReader(t, all, maxUnreadAll/4, 1<<9)
		asks := newReader(t, all, 0, 0)
		began := time.Now()
		for range 2 { // the second finds room
			if err := asks.account.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > readWindow {
			t.Errorf("it waited %v for room", took)
		}
		synctest.Wait()
		if fast.closed.Load() || slow.closed.Load() || !slower.closed.Load() {
			t.Errorf("closed: fast %v, slow %v, slower %v",
				fast.closed.Load(), slow.closed.Load(), slower.closed.Load())
		}
		if want := int64(maxUnreadAll*3/4 + 2*inTheMaking); all.unread.Load() != want {
			t.Errorf("%d bytes are unread, want %d", all.unread.Load(), want)
		}
	})
}

// Goal: a connection that is held up by its own answers closes no other. Method: it owes as much
// as it may, while slow connections use up what there is.
func TestOwnFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewAnswers()
		slow := newReader(t, all, maxUnreadAll, 0)
		asks := newReader(t, all, maxUnread, 0)
		began := time.Now()
		if err := asks.account.enter(t.Context()); err == nil || time.Since(began) != readPatience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		synctest.Wait()
		if slow.closed.Load() || asks.closed.Load() {
			t.Error("a connection was closed")
		}
	})
}

// Goal: room goes to the connection that owes least, not to the one that asks for most. Method:
// many calls of a connection that owes much wait before the one of another.
func TestLeastDebtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewAnswers()
		full := newReader(t, all, maxUnreadAll-maxUnread/2, 0)
		owes := newReader(t, all, maxUnread/2, 0)
		asks := newReader(t, all, 0, 0)
		order := make(chan string, maxTurns)
		enter := func(r *reader, name string) {
			go func() {
				if err := r.account.enter(t.Context()); err != nil {
					t.Error(err)
				}
				order <- name
			}()
			synctest.Wait()
		}
		for range 3 {
			enter(owes, "owes")
		}
		enter(asks, "asks")
		full.account.add(-1, 0) // room for one
		if got := <-order; got != "asks" {
			t.Errorf("the room went to the connection that %s", got)
		}
		full.account.add(-maxUnread, 0)
		for range 3 {
			<-order
		}
	})
}

// Goal: what waits for readers whose connections are not known, and cannot be closed, leaves room
// for others. Method: calls of such enter until they find no room.
func TestUnknownReadersLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewAnswers()
		for all.others.enter(t.Context()) == nil {
			all.others.add(maxUnread, 1)
		}
		r := newReader(t, all, 0, 0)
		began := time.Now()
		if err := r.account.enter(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
