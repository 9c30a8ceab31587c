package listen

import (
	"context"
	"net"
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

// newReader returns a connection that owes bytes.
func newReader(all *Answers, owes int) *reader {
	r := &reader{}
	r.account = all.conn(r).(*accounted).account
	if owes > 0 {
		r.account.owe(owes)
	}
	return r
}

// newReaders returns connections that owe bytes each.
func newReaders(all *Answers, n, owes int) (rs []*reader) {
	for range n {
		rs = append(rs, newReader(all, owes))
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
	turn, err := r.account.enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	turn.pay()
	return time.Since(began)
}

// Goal: whatever connections do that leave answers unread, no other waits for them, and those that
// have left most for longest make room. Method: connections use up the room in some way, and then
// one that owes nothing asks for room and gives a large message.
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
				if turn, err := rs[0].account.enter(ctx, 0); err == nil {
					turn.pay()
				}
			}
		}},
		{"they read small answers fast", func(_ *testing.T, rs []*reader) {
			for _, r := range rs {
				for range 100 {
					r.account.owe(60 << 10).pay()
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newAnswers()
				slow := newReaders(all, 9, maxUnread-megabyte)
				for range 10 {
					time.Sleep(1003 * time.Millisecond)
					c.then(t, slow)
				}
				fast := newReader(all, maxUnread)
				asks := newReader(all, 0)
				if took := asks.ask(t); took > 0 {
					t.Errorf("it waited %v for room", took)
				}
				began := time.Now()
				if err := asks.account.send(t, megabyte); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("a message waited %v", took)
				}
				if n := closed(slow...); n == 0 || n > 3 || closed(fast, asks) > 0 {
					t.Errorf("closed: %d of %d slow ones, and %d others", n, len(slow),
						closed(fast, asks))
				}
				if n := all.unread.Load(); n > maxUnreadAll {
					t.Errorf("%d bytes are unread", n)
				}
			})
		})
	}
}

// Goal: of two connections that owe the same the one is closed that has owed it for longer; a
// closed connection is told so if it asks. Method: the room is used up a byte at a time.
func TestLongestDebtIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		old := newReader(all, maxUnreadAll/2)
		time.Sleep(time.Millisecond)
		young := newReader(all, maxUnreadAll/2)
		if n := closed(old, young); n != 0 {
			t.Errorf("%d are closed before there is too much", n)
		}
		young.account.owe(1)
		if closed(old) != 1 || closed(young) != 0 {
			t.Errorf("closed: old %d, young %d", closed(old), closed(young))
		}
		if _, err := old.account.enter(t.Context(), 0); err == nil {
			t.Error("a call of a connection that was closed has room")
		}
		if want := int64(maxUnreadAll/2 + 1); all.unread.Load() != want {
			t.Errorf("%d bytes are unread, want %d", all.unread.Load(), want)
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

// Goal: a connection that is held up by its own answers closes no other. Method: it owes as much
// as it may, while slow connections use up the rest.
func TestOwnFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		slow := newReaders(all, 7, maxUnread)
		asks := newReader(all, maxUnread)
		began := time.Now()
		_, err := asks.account.enter(t.Context(), 0)
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
			turn, err := all.others.enter(t.Context(), 0)
			if err != nil {
				break
			}
			all.others.owe(maxUnread / 2)
			turn.pay()
		}
		r := newReader(all, 0)
		if took := r.ask(t); took > 0 || closed(r) > 0 {
			t.Errorf("it waited %v; closed: %d", took, closed(r))
		}
	})
}

// Goal: nothing stays counted that is not owed, whatever happens at the same time. Method: many
// connections owe, pay, ask for room and are closed, by themselves or because there is too much.
func TestNothingStaysCounted(t *testing.T) {
	all := newAnswers()
	gone, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits, but tries
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 50 {
				r := newReader(all, 0)
				var debts []*debt
				for n := range 20 {
					debts = append(debts, r.account.owe(megabyte*(1+i%7)))
					checkAnswers(t, all)
					if d, err := r.account.enter(gone, n%3*megabyte); err == nil {
						debts = append(debts, d)
					}
				}
				if i%2 == 0 {
					r.account.close()
				}
				for _, d := range debts {
					wg.Go(d.pay)
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
		if took := time.Since(began); took > 0 {
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
	sum := all.others.unread.Load()
	for a := range all.accounts {
		if a.closed || a.unread.Load() <= 0 || a.making < 0 {
			t.Errorf("%d bytes are unread, %d in the making; closed: %v", a.unread.Load(), a.making,
				a.closed)
		}
		sum += a.unread.Load()
	}
	if n := all.unread.Load(); n != sum || n > maxUnreadAll {
		t.Errorf("all leave %d bytes unread, the sum is %d", n, sum)
	}
}
