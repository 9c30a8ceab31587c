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

// reader is a connection whose client reads some of its responses.
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

// newReader returns a connection whose client has not read much yet and leaves the given number of
// bytes unread.
func newReader(all *Answers, unread int) *reader {
	r := &reader{}
	r.account = all.account(r)
	if unread > 0 {
		all.mu.Lock()
		defer all.mu.Unlock()
		r.account.chargeLocked(int64(unread))
	}
	return r
}

// proven marks the client as having read enough.
func (r *reader) proven() *reader {
	r.account.written.Add(unproven + maxUnread)
	return r
}

// reads makes the client read a little every second until the test ends.
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

// newReaders returns n connections that each leave the given number of bytes unread.
func newReaders(all *Answers, n, unread int) (rs []*reader) {
	for range n {
		rs = append(rs, newReader(all, unread))
	}
	return rs
}

// closed returns how many of rs have been closed.
func closed(rs ...*reader) (n int) {
	synctest.Wait()
	for _, r := range rs {
		if r.closed.Load() {
			n++
		}
	}
	return n
}

// ask requests room for a response, releases it immediately, and reports how long it waited.
func (r *reader) ask(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	turn := r.account.guess(0, true)
	if err := turn.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	turn.release()
	return time.Since(began)
}

// TestStalledReadersDelayIsBounded checks that clients that do not read do not delay a client that
// has read enough before. They delay a new client only until they are detected as stalled.
func TestStalledReadersDelayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		stalled, reads := newReader(all, allUnread/2/2), newReader(all, allUnread/2/2).reads(t)
		for _, who := range []struct {
			*reader
			patience time.Duration
		}{{newReader(all, 0).proven(), 0}, {newReader(all, 0), (stalledBeats + 1) * beatInterval}} {
			began := time.Now()
			who.ask(t)
			if err := who.account.send(t, megabyte); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > who.patience {
				t.Errorf("a call and a message waited %v", took)
			}
			if closed(reads, who.reader) > 0 {
				t.Error("one that reads was closed")
			}
		}
		if closed(stalled) != 1 {
			t.Error("the one that has stopped to read is not closed")
		}
		checkAnswers(t, all)
	})
}

// TestSlowIsClosedWhenOthersWait checks that a slow connection, even one that reads too slowly, is
// closed only if others are waiting.
func TestSlowIsClosedWhenOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		slow := newReader(all, allUnread/2).reads(t) // a megabyte a second
		time.Sleep(100 * beatInterval)
		if closed(slow) > 0 {
			t.Error("one was closed for nobody")
		}
		if took := newReader(all, 0).ask(t); took > (stalledBeats+1)*beatInterval || closed(slow) != 1 {
			t.Errorf("a call waited %v; closed: %d", took, closed(slow))
		}
	})
}

// TestTooManySmallMessages checks that if there are too many small messages, the connection with
// the most unread bytes, weighted by how long they have been unread, is closed immediately. A
// closed connection gets no more room.
func TestTooManySmallMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		const most = allUnread + smallUnread
		young := newReader(all, 0)
		olds := newReaders(all, most/maxUnread-1, 0)
		for i, r := range olds {
			r.account.reserve(maxUnread - int64(i))
		}
		time.Sleep(3 * beatInterval)
		young.account.reserve(maxUnread)
		if n := closed(append(olds, young)...); n != 0 {
			t.Errorf("%d are closed before there is too much", n)
		}
		young.account.reserve(maxUnread)
		old := olds[0]
		if closed(old) != 1 || closed(olds[1:]...)+closed(young) != 0 {
			t.Errorf("closed: old %d, others %d", closed(old), closed(append(olds[1:], young)...))
		}
		if err := old.account.guess(0, true).await(t.Context()); err == nil {
			t.Error("a call of a connection that was closed has room")
		}
		checkAnswers(t, all)
	})
}

// TestNewConnectionFits checks that a new connection is granted room, and can have waiting calls,
// even if a few other connections use everything they are allowed.
func TestNewConnectionFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		for range 4 {
			greedy := newReader(all, 0)
			for range 2 * maxWaiting {
				greedy.account.ask(megabyte, true)
			}
		}
		all.mu.Lock()
		free, calls := allUnread/2-all.unread, all.calls
		all.mu.Unlock()
		if free < allUnread/40 || calls > maxWaiting {
			t.Errorf("%d bytes are free, %d calls wait", free, calls)
		}
		if took := newReader(all, 0).ask(t); took > 0 {
			t.Errorf("one more waited %v", took)
		}
		late := newReader(all, 0)
		for range 3 {
			if w := late.account.ask(maxRoom, true); w.err != nil {
				t.Error(w.err)
			}
		}
		checkAnswers(t, all)
	})
}

// TestManyReaders checks that clients that read are neither closed nor rejected, no matter how many
// request large responses at the same time and how slowly they read.
func TestManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		rs := newReaders(all, 400, 0)
		var wg sync.WaitGroup
		for _, r := range rs {
			wg.Go(func() {
				d := r.account.ask(megabyte, true)
				if err := d.await(t.Context()); err != nil {
					t.Error(err)
					return
				}
				for range 10 {
					time.Sleep(stalledBeats*beatInterval - 1)
					r.account.written.Add(megabyte / 10)
				}
				checkAnswers(t, all)
				d.release()
			})
		}
		wg.Wait()
		if n := closed(rs...); n > 0 || all.bytes() != 0 {
			t.Errorf("%d were closed, %d bytes are unread", n, all.bytes())
		}
		if n := len(all.waiting); n > 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// TestOversizeResponseDelivered checks that a response larger than the total limit reaches its
// client. A response that waits only for its own connection does not cause another connection to be
// closed.
func TestOversizeResponseDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newAnswers()
		slow := newReader(all, maxUnread)
		asks := newReader(all, 0)
		large := asks.account.ask(1<<40, true)
		if err := large.await(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := asks.account.guess(0, true).await(t.Context())
		if took := time.Since(began); err == nil || took < patientBeats*beatInterval || took > 2*patientBeats*beatInterval {
			t.Errorf("%v after %v", err, took)
		}
		if closed(slow, asks) > 0 {
			t.Error("a connection was closed")
		}
		large.release()
	})
}

// TestAccountingReturnsToZero checks that nothing is left in the counts after many connections
// concurrently reserve, release, wait and close.
func TestAccountingReturnsToZero(t *testing.T) {
	all := newAnswers()
	gone, cancel := context.WithCancel(t.Context())
	cancel() // canceled, so every wait ends immediately
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 50 {
				r := newReader(all, 0)
				var held []*room
				for n := range 20 {
					held = append(held, r.account.reserve(int64(megabyte*(1+i%7))))
					checkAnswers(t, all)
					d := r.account.ask(int64(n%3*megabyte), true)
					if d.await(gone) == nil {
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
	if n := all.bytes(); n != 0 || len(all.accounts) != 0 || len(all.waiting) != 0 {
		t.Errorf("%d bytes are unread, of %d connections", n, len(all.accounts))
	}
}

// TestReaderAmongStrangers checks that a client that reads is not delayed while others leave as
// much unread as they can and reconnect whenever they are disconnected.
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
		// The client can be delayed only until it has read enough to be trusted.
		if took := time.Since(began); took > 2*(unproven/megabyte+1)*stalledBeats*beatInterval {
			t.Errorf("it took %v", took)
		}
		_ = conn.Close()
		for _, c := range strangers {
			c.close()
		}
		synctest.Wait()
		checkAnswers(t, all)
		if n := all.bytes(); n != 0 {
			t.Errorf("%d bytes are unread, and nobody is there", n)
		}
	})
}

// checkAnswers checks that the total number of unread bytes equals the sum over all connections and
// is within the limit.
func checkAnswers(t *testing.T, all *Answers) {
	t.Helper()
	all.mu.Lock()
	defer all.mu.Unlock()
	sum, calls := all.others.unread, 0
	for a := range all.accounts {
		if a.closed || a.guessed < 0 || a.unread < a.guessed {
			t.Errorf("%d bytes are unread, %d guessed; closed: %v", a.unread, a.guessed, a.closed)
		}
		sum += a.unread
	}
	for _, a := range all.waiting {
		if len(a.waiters) == 0 {
			t.Error("an account waits without waiters")
		}
		for _, r := range a.waiters {
			if r.call {
				calls++
			}
		}
	}
	if calls != all.calls || calls > maxWaiting {
		t.Errorf("%d calls wait, %d are counted", calls, all.calls)
	}
	if all.unread != sum || sum > allUnread+smallUnread+maxUnread {
		t.Errorf("%d bytes are counted, the sum is %d", all.unread, sum)
	}
}
