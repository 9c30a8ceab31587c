package client

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// queueOf makes fake members serve a wait queue. Every requested key has create revision 5 and the
// given state.
func (f *fake) queueOf(state *pb.Ticket_State) {
	f.set(func() {
		f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
			if r.GetTxn() == nil || r.GetTxn().Wait == nil {
				return f.obey(s, r)
			}
			return []*pb.Response{waitAnswer(r.Id, *state)}
		}
	})
}

// waitAnswer returns the response to a transaction with a wait.
func waitAnswer(id uint64, state pb.Ticket_State) *pb.Response {
	m := &pb.TxnResponse{
		Header: &pb.Header{Revision: 9}, Succeeded: true,
		Ticket: &pb.Ticket{State: state, CreateRevision: 5},
	}
	return &pb.Response{
		Id: id, More: state != pb.Ticket_STATE_GONE, Body: &pb.Response_Txn{Txn: m},
	}
}

// waits returns the requests with a wait, in order.
func (f *fake) waits() (list []*pb.Request) {
	for _, r := range f.requests() {
		if r.GetTxn().GetWait() != nil {
			list = append(list, r)
		}
	}
	return list
}

// enter enters the queue.
func enter(t *testing.T, c *Client) *Ticket {
	t.Helper()
	_, w, err := c.Enter(t.Context(), store.Txn{Then: []store.Op{store.Put{Key: "l/1"}}},
		store.Wait{Key: "l/1", Prefix: "l/"})
	if err != nil || w == nil {
		t.Fatalf("%v, %v", w, err)
	}
	return w
}

// answerWaits makes the fake answer transactions with a wait by calling answer. The fake obeys all
// other requests.
func (f *fake) answerWaits(answer func(r *pb.Request) *pb.Response) {
	f.set(func() {
		f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
			if r.GetTxn().GetWait() == nil {
				return f.obey(s, r)
			}
			return []*pb.Response{answer(r)}
		}
	})
}

func gone(t *testing.T, err error) *GoneError {
	t.Helper()
	var g *GoneError
	if !errors.As(err, &g) || !errors.Is(err, ErrKeyNotFound) {
		t.Fatalf("error %v", err)
	}
	return g
}

// TestTicket checks that messages notify the waiter when its turn begins and when it ends. After
// the stream breaks, the waiter resumes with a transaction that changes nothing and requires the
// same key.
func TestTicket(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_WAITING
		f.queueOf(&state)
		w := enter(t, c)
		brief, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		want(t, w.Wait(brief), context.DeadlineExceeded)
		for range 3 { // the client repeats the wait on every member it moves to
			close(f.last().cut)
			pass(5 * time.Second)
		}
		list := f.waits()
		last := list[len(list)-1]
		if len(list) != 4 || len(last.GetTxn().Success) > 0 || last.Number != 0 ||
			last.GetTxn().Compare[0].GetCreateRevision() != 5 || w.Revision() != 5 {
			t.Fatalf("asked %v", list)
		}
		r := waitAnswer(last.Id, pb.Ticket_STATE_READY)
		r.GetTxn().Ticket.PreviousKey = []byte("l/0")
		f.last().say(r, waitAnswer(last.Id, pb.Ticket_STATE_READY))
		if err := w.Wait(t.Context()); err != nil || w.After() != "l/0" {
			t.Errorf("%v, after %q", err, w.After())
		}
		r = waitAnswer(last.Id, pb.Ticket_STATE_GONE)
		r.GetTxn().Ticket.Cause, r.GetTxn().Ticket.Lease = pb.Event_CAUSE_REVOKED, 7
		f.last().say(r)
		<-w.Context().Done()
		if g := gone(t, w.Wait(t.Context())); g.Cause != store.Revoked || g.Lease != 7 || g.Key != "l/1" {
			t.Errorf("gone: %v", g)
		}
		close(f.last().cut)
		pass(time.Minute)
		if n := len(f.waits()); n != 4 {
			t.Errorf("asked %d times", n)
		}
		w.Close()
	})
}

// TestTicketAtOnce checks that the first response can end the wait.
func TestTicketAtOnce(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_READY
		f.queueOf(&state)
		w := enter(t, c)
		if <-w.Ready(); w.Err() != nil {
			t.Error(w.Err())
		}
		w.Close()
		want(t, w.Wait(t.Context()), ErrClosed)
		want(t, w.Err(), ErrClosed)
		want(t, context.Cause(w.Context()), ErrClosed) // later calls get the same error
		state = pb.Ticket_STATE_GONE
		w = enter(t, c)
		if gone(t, w.Wait(t.Context())); w.Revision() != 5 {
			t.Errorf("created %d", w.Revision())
		}
		w.Close()
		// The key had been replaced when the wait was repeated.
		state = pb.Ticket_STATE_WAITING
		w = enter(t, c)
		f.set(func() { f.answer = f.obey })
		close(f.last().cut)
		gone(t, w.Wait(t.Context()))
		w.Close()
		// The transaction's conditions do not hold.
		_, w, err := c.Enter(t.Context(), store.Txn{}, store.Wait{Key: "l/1", Prefix: "l/"})
		if w != nil || err != nil {
			t.Errorf("%v, %v", w, err)
		}
	})
}

// TestWaitRefused checks a transaction with a key that its user is not allowed to follow. The call
// returns the transaction's result and the reason. A ticket that is rejected on a retry ends with
// the reason.
func TestWaitRefused(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_WAITING
		f.queueOf(&state)
		w := enter(t, c)
		f.answerWaits(func(r *pb.Request) *pb.Response {
			answer := waitAnswer(r.Id, pb.Ticket_STATE_GONE)
			answer.GetTxn().Ticket = nil
			answer.GetTxn().WaitRefused = &pb.Error{Reason: pb.Reason_REASON_PERMISSION_DENIED}
			return answer
		})
		close(f.last().cut)
		want(t, w.Wait(t.Context()), ErrPermissionDenied)
		w.Close()
		r, w, err := c.Enter(t.Context(), store.Txn{}, store.Wait{Key: "l/1", Prefix: "l/"})
		if want(t, err, ErrPermissionDenied); w != nil || !r.Succeeded || r.Revision != 9 {
			t.Errorf("%v, %+v", w, r)
		}
	})
}

// TestTicketLeave checks that Leave sends the end of the wait and the transaction in one message
// and closes the ticket. It works through another member as well.
func TestTicketLeave(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_READY
		f.queueOf(&state)
		leave := func(w *Ticket) {
			t.Helper()
			f.set(func() { f.seen = nil })
			_, err := w.Leave(t.Context(), store.Txn{Then: []store.Op{store.Delete{Key: "l/1"}}})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want(t, context.Cause(w.Context()), ErrClosed)
		}
		w := enter(t, c)
		list := f.waits()
		leave(w)
		if n := len(f.seen); n != 1 {
			t.Fatalf("%d messages", n)
		}
		r := f.requests()
		if len(r) != 2 || r[0].GetCancel() != list[0].Id || r[1].GetTxn() == nil || r[0].Id >= r[1].Id {
			t.Errorf("requests %v", r)
		}
		w = enter(t, c)
		close(f.last().cut)
		leave(w)
		pass(time.Minute)
		for _, r := range f.waits() {
			if len(r.GetTxn().GetSuccess()) == 0 {
				t.Errorf("asked again: %v", r)
			}
		}
	})
}

// TestTicketUnanswered checks that a caller that gives up before the response leaves nothing open
// on the member. If the first response is lost, the request is sent again with the same number.
func TestTicketUnanswered(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, w, err := c.Enter(ctx, store.Txn{}, store.Wait{Key: "l/1", Prefix: "l/"})
		if w != nil {
			t.Errorf("ticket %v", w)
		}
		want(t, err, ErrUnknownOutcome, context.DeadlineExceeded)
		synctest.Wait()
		r := f.requests()
		if len(r) != 2 || r[1].GetCancel() != r[0].Id {
			t.Errorf("requests %v", r)
		}
		// no caller is waiting for this response
		f.last().say(waitAnswer(r[0].Id, pb.Ticket_STATE_READY))
		f.set(func() { f.seen = nil })
		go func() {
			pass(10 * time.Millisecond)
			state := pb.Ticket_STATE_READY
			f.queueOf(&state)
			close(f.last().cut)
		}()
		w = enter(t, c)
		<-w.Ready()
		w.Close()
		list := f.waits()
		if len(list) != 2 || list[0].Number == 0 || list[0].Number != list[1].Number {
			t.Errorf("asked %v", list)
		}
	})
}

// TestTicketLimit checks that a client polls if it already follows the maximum number of
// keys.
func TestTicketLimit(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		var list []*Watcher
		for range maxWatches {
			w, err := c.WatchFrom(store.Watch{Key: "k", From: 1})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, w)
		}
		state := pb.Ticket_STATE_WAITING
		f.queueOf(&state)
		w := enter(t, c)
		pass(10 * time.Second)
		if n := len(f.waits()); n < 10 || n > 12 {
			t.Errorf("asked %d times", n)
		}
		f.set(func() { state = pb.Ticket_STATE_READY })
		if err := w.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		close(f.last().cut)
		pass(10 * time.Second)
		f.set(func() { state = pb.Ticket_STATE_GONE })
		<-w.Context().Done()
		gone(t, w.Wait(t.Context()))
		w.Close()
		other := enter(t, c) // this ticket ends with the client
		_ = other
		for _, w := range list {
			w.Close()
		}
	})
}

// TestTicketLeaveBroken checks that a waiter that leaves while the stream breaks does not start
// waiting again.
func TestTicketLeaveBroken(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_READY
		f.queueOf(&state)
		w := enter(t, c)
		asked := len(f.waits())
		f.set(func() {
			answer := f.answer
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if len(r.GetTxn().GetSuccess()) == 1 { // the transaction of Leave
					return nil
				}
				return answer(s, r)
			}
		})
		go func() {
			pass(10 * time.Millisecond)
			close(f.last().cut)
			pass(5 * time.Second)
			f.queueOf(&state)
			close(f.last().cut)
		}()
		_, err := w.Leave(t.Context(), store.Txn{Then: []store.Op{store.Delete{Key: "l/1"}}})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(f.waits()); n != asked {
			t.Errorf("asked %d times more", n-asked)
		}
	})
}

// TestTicketsEnd checks that a ticket no longer counts toward the client's limit once it has ended
// for any reason.
func TestTicketsEnd(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_READY
		f.queueOf(&state)
		none := func(after string) {
			t.Helper()
			c.mux.mu.Lock()
			defer c.mux.mu.Unlock()
			if n := len(c.mux.followers); n != 0 {
				t.Errorf("after %s: %d are followed", after, n)
			}
		}
		enter(t, c).Close()
		none("Close")
		if _, err := enter(t, c).Leave(t.Context(), store.Txn{}); err != nil {
			t.Fatal(err)
		}
		none("Leave")
		state = pb.Ticket_STATE_GONE
		w := enter(t, c)
		gone(t, w.Wait(t.Context()))
		w.Close()
		none("its key was gone")
		f.set(func() { f.answer = f.obey })
		_, w, err := c.Enter(t.Context(), store.Txn{}, store.Wait{Key: "l/1", Prefix: "l/"})
		if w != nil || err != nil {
			t.Fatalf("%v, %v", w, err)
		}
		none("conditions that did not hold")
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _, err = c.Enter(ctx, store.Txn{}, store.Wait{Key: "l/1", Prefix: "l/"})
		want(t, err, ErrUnknownOutcome)
		none("the context ended")
	})
}

// TestTicketLeaveUnreached checks that a waiter that leaves while no member is reachable does not
// repeat its wait once a member is reachable.
func TestTicketLeaveUnreached(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		state := pb.Ticket_STATE_READY
		f.queueOf(&state)
		w := enter(t, c)
		asked := len(f.waits())
		f.set(func() { f.down["a"] = true })
		close(f.last().cut)
		pass(time.Second)
		left := make(chan error, 1)
		go func() {
			_, err := w.Leave(t.Context(), store.Txn{Then: []store.Op{store.Delete{Key: "l/1"}}})
			left <- err
		}()
		synctest.Wait()
		f.set(func() { f.down["a"] = false })
		if err := <-left; err != nil {
			t.Fatal(err)
		}
		if n := len(f.waits()); n != asked {
			t.Errorf("asked %d times more", n-asked)
		}
	})
}

// TestTicketGrants checks that a lease cannot be kept after it was revoked if it was granted by a
// transaction that enters a queue (T19).
func TestTicketGrants(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetTxn() == nil {
					return f.obey(s, r)
				}
				m := waitAnswer(r.Id, pb.Ticket_STATE_READY)
				m.GetTxn().Responses = []*pb.OpResponse{{Response: &pb.OpResponse_Grant{
					Grant: &pb.GrantResponse{Lease: &pb.Lease{
						Id: 7, Token: 1, TtlMs: fakeTTL, RemainingMs: fakeTTL,
					}},
				}}}
				return []*pb.Response{m}
			}
		})
		r, w, err := c.Enter(t.Context(), store.Txn{Then: []store.Op{Grant{ID: 7, TTL: ttl}}},
			store.Wait{Key: "l/7", Prefix: "l/"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if err := c.Revoke(t.Context(), leases.Ref{ID: 7}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Keep(r.Results[0].Grant, 0)
		want(t, err, ErrReleased)
	})
}

// TestEnterTooLong checks that entering a queue fails immediately if repeating the wait would
// require a message that is too large. Such a message would end every stream.
func TestEnterTooLong(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		state := pb.Ticket_STATE_WAITING
		f.queueOf(&state)
		prefix := strings.Repeat("l", c.most/3) + "/"
		_, w, err := c.Enter(t.Context(), store.Txn{}, store.Wait{Key: prefix + "1", Prefix: prefix})
		if !errors.Is(err, ErrInvalid) || w != nil || len(f.waits()) > 0 {
			t.Errorf("%.200v, %v, asked %d times", err, w, len(f.waits()))
		}
	})
}

// TestEnterAndClose checks that entering a queue fails while the client is closing. The race
// detector verifies that Enter does not write data that Close reads.
func TestEnterAndClose(t *testing.T) {
	for range 50 {
		c, err := New(Config{Endpoints: []string{"unix:" + filepath.Join(t.TempDir(), "none")}})
		if err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() {
			_, _, err := c.Enter(t.Context(), store.Txn{}, store.Wait{Key: "line/a", Prefix: "line/"})
			result <- err
		}()
		_ = c.Close()
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
	}
}

// TestUnseenDeletion checks that the cause of a key's deletion is unknown if the key disappeared
// while it was not followed, or if the member does not know the cause.
func TestUnseenDeletion(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		state := pb.Ticket_STATE_WAITING
		f.queueOf(&state)
		w := enter(t, c)
		f.answerWaits(func(r *pb.Request) *pb.Response {
			m := &pb.TxnResponse{Header: &pb.Header{Revision: 10}}
			return &pb.Response{Id: r.Id, Body: &pb.Response_Txn{Txn: m}}
		})
		close(f.last().cut)
		if g := gone(t, w.Wait(t.Context())); g.Cause != store.Unknown || g.Revision != 10 {
			t.Errorf("gone by %+v", g)
		}
		f.queueOf(&state)
		w = enter(t, c)
		r := waitAnswer(f.waits()[len(f.waits())-1].Id, pb.Ticket_STATE_GONE)
		r.GetTxn().Ticket.Cause = pb.Event_CAUSE_UNKNOWN
		f.last().say(r)
		if g := gone(t, w.Wait(t.Context())); g.Cause != store.Unknown {
			t.Errorf("gone by %+v", g)
		}
	})
}
