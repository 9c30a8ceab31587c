package listen

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// reader is a connection whose client reads some of its answers.
type reader struct {
	net.Conn
	account *account
	closed  atomic.Bool
}

// RemoteAddr implements net.Conn.
func (*reader) RemoteAddr() net.Addr { return addr("reader") }

func (r *reader) Close() error {
	r.closed.Store(true)
	return nil
}

// newReader returns a connection whose client has not read much yet, and leaves bytes unread.
func newReader(all *Answers, unread int) *reader {
	r := &reader{}
	r.account = all.conn(r).(*accounted).account
	if unread > 0 {
		all.mu.Lock()
		defer all.mu.Unlock()
		r.account.chargeLocked(fresh, int64(unread))
	}
	return r
}

// proven makes it one whose client has read.
func (r *reader) proven() *reader {
	r.account.written.Add(unproven + maxUnread)
	return r
}

// reads lets the client read a little every second, until the test ends.
func (r *reader) reads(t *testing.T) *reader {
	every := time.NewTicker(time.Second)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-every.C:
				r.account.written.Add(megabyte)
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { <-ended })
	return r
}

// newReaders returns connections that leave bytes unread each.
func newReaders(all *Answers, n, unread int) (rs []*reader) {
	for range n {
		rs = append(rs, newReader(all, unread))
	}
	return rs
}

// closed returns how many of rs were closed.
func closed(rs ...*reader) (n int) {
	synctest.Wait()
	for _, r := range rs {
		if r.closed.Load() {
			n++
		}
	}
	return n
}

// ask asks for room for a call that ends before long, and reports how long it waited.
func (r *reader) ask(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	turn, err := r.account.enter(t.Context(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	turn.release()
	return time.Since(began)
}

// Goal: whatever connections do that leave answers unread, one whose client has read before waits
// for none of them, and another not for long; and those that have left most for longest make room.
// Method: connections use up the room of clients that have not read, in some way; then one that
// has nothing unread asks for room and gives a large message.
func TestStrangersDelayNobody(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*testing.T, []*reader)
	}{
		{"they read nothing", func(*testing.T, []*reader) {}},
		{"they make calls and give them up", func(t *testing.T, rs []*reader) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for range 200 {
				if turn, err := rs[0].account.enter(ctx, 0, nil); err == nil {
					turn.release()
				}
			}
		}},
		{"they read small answers fast", func(_ *testing.T, rs []*reader) {
			for _, r := range rs {
				for range 100 {
					r.account.reserve(60 << 10).release()
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newAnswers()
				slow := newReaders(all, 2, maxUnread-megabyte)
				fast := newReader(all, maxUnread).reads(t)
				for range 10 {
					time.Sleep(1003 * time.Millisecond)
					c.then(t, slow)
				}
				for _, who := range []struct {
					*reader
					patience time.Duration
				}{{newReader(all, 0).proven(), 0}, {newReader(all, 0), stalledTime}} {
					began := time.Now()
					who.ask(t)
					if err := who.account.send(t, megabyte); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > who.patience {
						t.Errorf("a call and a message waited %v", took)
					}
					if closed(fast, who.reader) > 0 {
						t.Error("one that reads was closed")
					}
				}
				if n := closed(slow...); n != 1 {
					t.Errorf("%d of %d slow ones are closed", n, len(slow))
				}
				checkAnswers(t, all)
			})
		})
	}
}

// Goal: small messages that are too many close the connection at once that has left most of them
// unread for longest, and not one that has large answers; a closed connection is told so if it
// asks. Method: the room is used up a byte at a time.
func TestLongestUnreadIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		large := newReader(all, maxUnread)
		old, young := newReader(all, 0), newReader(all, 0)
		old.account.reserve(roomSmall / 2)
		time.Sleep(time.Millisecond)
		young.account.reserve(roomSmall / 2)
		if n := closed(old, young); n != 0 {
			t.Errorf("%d are closed before there is too much", n)
		}
		young.account.reserve(1)
		if closed(old) != 1 || closed(young, large) != 0 {
			t.Errorf("closed: old %d, others %d", closed(old), closed(young, large))
		}
		if _, err := old.account.enter(t.Context(), 0, nil); err == nil {
			t.Error("a call of a connection that was closed has room")
		}
		if want := int64(maxUnread + roomSmall/2 + 1); all.unread.Load() != want {
			t.Errorf("%d bytes are unread, want %d", all.unread.Load(), want)
		}
	})
}

// Goal: a connection is closed only if others wait, and not before its client has stopped to read;
// even one that reads is, if it has taken very long, since a little can be read for ever. Method:
// two leave the room full, of which one reads; then a third asks, and a fourth when it is full
// again.
func TestWhoIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		stops, goesOn := newReader(all, roomNew/2), newReader(all, roomNew/2).reads(t)
		time.Sleep(slowTime / 2)
		if closed(stops, goesOn) > 0 {
			t.Error("one was closed for nobody")
		}
		if took := newReader(all, 0).ask(t); took > 0 || closed(stops) != 1 || closed(goesOn) != 0 {
			t.Errorf("a call waited %v; closed: %d that has stopped, %d that goes on", took,
				closed(stops), closed(goesOn))
		}
		newReader(all, roomNew/2).reads(t)
		if took := newReader(all, 0).ask(t); took < slowTime/2 || took > slowTime/2+stalledTime ||
			closed(goesOn) != 1 {
			t.Errorf("a call waited %v; closed: %d", took, closed(goesOn))
		}
	})
}

// Goal: of clients that have not read those wait least that ask for least, and one whose answer is
// made less than they. Method: while the room is full, calls ask for much, for less, and in the
// place of an answer that was in the making.
func TestSmallestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		made, err := newReader(all, 0).account.enter(t.Context(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		newReader(all, roomNew-leastExpected)
		for _, bytes := range []int64{8 * megabyte, megabyte, 8 * megabyte} {
			newReader(all, 0).account.ask(&waiter{bytes: bytes}, nil)
		}
		made.account.ask(&waiter{bytes: 16 * megabyte}, made)
		var order []int64
		queue := &all.rooms[fresh].queue
		for at := queue.Front(); at != nil; at = at.Next() {
			order = append(order, at.Value.(*account).first.bytes/megabyte)
		}
		if want := []int64{16, 1, 8, 8}; !slices.Equal(order, want) {
			t.Errorf("megabytes wait in the order %v, want %v", order, want)
		}
	})
}

// Goal: of clients that read nobody is closed, or refused, however many ask for a large answer at
// the same time, and however long they take. Method: 400 connections ask for a megabyte each, and
// read it slowly.
func TestManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		rs := newReaders(all, 400, 0)
		var wg sync.WaitGroup
		for _, r := range rs {
			wg.Go(func() {
				d, err := r.account.enter(t.Context(), megabyte, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for range 10 {
					time.Sleep(stalledTime - 1)
					r.account.written.Add(megabyte / 10)
				}
				checkAnswers(t, all)
				d.release()
			})
		}
		wg.Wait()
		if n := closed(rs...); n > 0 || all.unread.Load() != 0 {
			t.Errorf("%d were closed, %d bytes are unread", n, all.unread.Load())
		}
		for at := range all.rooms {
			if r := &all.rooms[at]; r.unread != 0 || r.queue.Len() > 0 || r.next != nil {
				t.Errorf("room %d has %d bytes, %d wait", at, r.unread, r.queue.Len())
			}
		}
	})
}

// Goal: an answer that is larger than all the room reaches its client.
func TestAnswerLargerThanTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		others := newReaders(all, 100, megabyte)
		r := newReader(all, 2*maxUnreadAll)
		if n := closed(append(others, r)...); n != 0 {
			t.Errorf("%d connections were closed", n)
		}
	})
}

// Goal: a connection that is held up by its own answers closes no other. Method: it leaves as much
// unread as it may, while slow connections use up the rest.
func TestOwnFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		slow := newReaders(all, 2, maxUnread)
		asks := newReader(all, maxUnread)
		began := time.Now()
		_, err := asks.account.enter(t.Context(), 0, nil)
		if err == nil || time.Since(began) != unreadPatience {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if closed(append(slow, asks)...) > 0 {
			t.Error("a connection was closed")
		}
	})
}

// Goal: what waits for readers whose connections are not known, and cannot be closed, leaves room
// for others. Method: calls of such enter until they find no room.
func TestUnknownReadersLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		for {
			if _, err := all.others.enter(t.Context(), maxUnread/2, nil); err != nil {
				break
			}
		}
		r := newReader(all, 0)
		if took := r.ask(t); took > 0 || closed(r) > 0 {
			t.Errorf("it waited %v; closed: %d", took, closed(r))
		}
	})
}

// Goal: nothing stays counted that is not reserved, whatever happens at the same time. Method: many
// connections reserve, release, ask for room and are closed, by themselves or because there is too
// much.
func TestNothingStaysCounted(t *testing.T) {
	all := newAnswers()
	gone, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits, but tries
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 50 {
				r := newReader(all, 0)
				var held []*reservation
				for n := range 20 {
					held = append(held, r.account.reserve(megabyte*(1+i%7)))
					checkAnswers(t, all)
					if d, err := r.account.enter(gone, n%3*megabyte, nil); err == nil {
						held = append(held, d)
					}
				}
				if i%2 == 0 {
					r.account.close()
				}
				for _, d := range held {
					wg.Go(d.release)
				}
			}
		})
	}
	wg.Wait()
	if n := all.unread.Load(); n != 0 || len(all.accounts) != 0 {
		t.Errorf("%d bytes are unread, of %d connections", n, len(all.accounts))
	}
}

// Goal: while others leave unread what they can, and come again when they are closed, a client that
// reads waits neither for its large messages nor for the small ones behind them, nor for calls;
// and nothing stays counted. Method: twelve strangers read nothing.
func TestReaderAmongStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &megabytes{messages: 50}
		l, all := s.listen(t)
		strangers := make([]*answersClient, 12)
		come := func() {
			for i := range strangers {
				if strangers[i] != nil {
					strangers[i].close()
				}
				strangers[i] = newAnswersClient(t, l.dial())
				strangers[i].ask("Call", 60)
				checkAnswers(t, all)
			}
		}
		come()
		conn := dialService(t, l.dial)
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/m/Stream")
		if err == nil {
			err = stream.SendMsg([]byte{})
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range s.messages {
			var b []byte
			if err := stream.RecvMsg(&b); err != nil || len(b) != megabyte {
				t.Fatalf("message %d: %d bytes, %v", i, len(b), err)
			}
			if err := conn.Invoke(t.Context(), "/m/Call", []byte{}, &b); err != nil {
				t.Fatal(err)
			}
			if i%20 == 0 {
				come()
			}
		}
		// Only until the client is known to read may it wait for them.
		if took := time.Since(began); took > 2*(unproven/megabyte+1)*stalledTime {
			t.Errorf("it took %v", took)
		}
		_ = conn.Close()
		for _, c := range strangers {
			c.close()
		}
		synctest.Wait()
		checkAnswers(t, all)
		if n := all.unread.Load(); n != 0 {
			t.Errorf("%d bytes are unread, and nobody is there", n)
		}
	})
}

// checkAnswers checks that what all leave unread is the sum of what each does, and not too much.
func checkAnswers(t *testing.T, all *Answers) {
	t.Helper()
	all.mu.Lock()
	defer all.mu.Unlock()
	reserved := all.others.reserved
	for a := range all.accounts {
		if a.closed || a.unread.Load() <= 0 || a.making < 0 {
			t.Errorf("%d bytes are unread, %d in the making; closed: %v", a.unread.Load(), a.making,
				a.closed)
		}
		of := int64(0)
		for at, bytes := range a.reserved {
			of += bytes
			reserved[at] += bytes
		}
		if of != a.unread.Load() {
			t.Errorf("an account has %d bytes, the sum is %d", a.unread.Load(), of)
		}
	}
	sum := int64(0)
	for at := range all.rooms {
		r := &all.rooms[at]
		if sum += r.unread; r.unread != reserved[at] || r.unread > r.most {
			t.Errorf("room %d has %d bytes, the sum is %d", at, r.unread, reserved[at])
		}
	}
	if n := all.unread.Load(); n != sum || n > maxUnreadAll {
		t.Errorf("all leave %d bytes unread, the sum is %d", n, sum)
	}
}

// Goal: a client is not closed for the time in which the member itself was stopped. Method: the
// clock goes on by more than stalledTime at once, before a call asks for room; then clients read.
func TestStoppedMemberBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		rs := newReaders(all, 3, roomNew/3)
		time.Sleep(stalledTime / 2)
		all.mu.Lock()
		all.began = all.began.Add(-2 * stalledTime)
		all.mu.Unlock()
		asks := newReader(all, 0)
		asked := asks.account.ask(&waiter{bytes: megabyte}, nil)
		time.Sleep(stalledTime / 4)
		for _, r := range rs {
			r.account.written.Add(roomNew / 3)
		}
		time.Sleep(stalledTime / 2)
		if n := closed(append(rs, asks)...); n > 0 {
			t.Errorf("%d are closed", n)
		}
		time.Sleep(stalledTime)
		<-asked.granted
		if n := closed(rs...); n != 1 || closed(asks) > 0 {
			t.Errorf("%d of those that have stopped to read are closed", n)
		}
	})
}
