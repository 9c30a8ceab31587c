package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
)

// limitsOf returns users and roles of which alice and bob have limits for one resource, and a
// function that changes alice's.
func limitsOf(t *testing.T, what access.Resource, most int64) (*Limiter, func(most int64)) {
	t.Helper()
	s := (*access.State)(nil)
	do := func(next *access.State, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	for _, name := range []string{"root", "alice", "bob"} {
		do(s.AddUser(name, nil, true))
	}
	do(s.GrantRole("root", "root"))
	do(s.Enable())
	set := func(most int64) {
		do(s.SetLimits(access.Holder{Kind: access.OfUser, Name: "alice"},
			[]access.LimitChange{{What: what, Most: most}}))
	}
	do(s.SetLimits(access.Holder{}, []access.LimitChange{{What: what, Most: most}}))
	return NewLimiter(func() *access.State { return s }, 9), set
}

func (l *Limiter) as(user string) context.Context {
	return WithCaller(WithLimiter(context.Background(), l), access.Caller{User: user, Revision: 99})
}

func noSize() int { return 0 }

// Goal: what a call has counts until it gives it back or ends, for its principal alone, and nothing
// beyond the limit is given. Method: shares of two users that take by turns.
func TestShares(t *testing.T) {
	l, set := limitsOf(t, access.Watches, 2)
	alice, bob := ShareOf(l.as("alice"), access.Watches), ShareOf(l.as("bob"), access.Watches)
	another := ShareOf(l.as("alice"), access.Watches)
	want := func(what string, err error, used int64) {
		t.Helper()
		e := new(access.LimitError)
		limited := errors.As(err, &e)
		if used < 0 && err != nil || used >= 0 && (!limited || e.Used != used) {
			t.Fatalf("%s: error %v, want used %d", what, err, used)
		}
	}
	want("the first", alice.Take(), -1)
	want("the second, of another call", another.Take(), -1)
	want("the third", alice.Take(), 2)
	want("of another user", bob.Take(), -1)
	alice.Give()
	alice.Give() // has nothing any more
	want("after one was given back", alice.Take(), -1)
	want("and no more than one", another.Take(), 2)
	another.Close()
	want("after a call ended", alice.Take(), -1)
	want("of one that has ended", another.Take(), -1)
	want("which takes nothing", another.Take(), -1)
	set(access.NoLimit)
	want("without a limit", alice.Take(), -1)
	set(1)
	want("with a lower one", alice.Take(), 3)
	alice.Close()
	want("after all were given back", ShareOf(l.as("alice"), access.Watches).Take(), -1)
	has, refused := l.of["alice"].has[access.Watches], l.Refusals(access.Watches)
	if want := map[string]uint64{"": 0, "alice": 3}; has != 1 || !maps.Equal(refused, want) {
		t.Errorf("alice has %d, refusals %v", has, refused)
	}
}

// Goal: streams that carry renewals have room for those of connections that are dead. Method: as
// many again as the limit.
func TestTakeRenewing(t *testing.T) {
	l, _ := limitsOf(t, access.Streams, 2)
	for i := range 5 {
		if err := ShareOf(l.as("alice"), access.Streams).TakeRenewing(); (err == nil) != (i < 4) {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if ShareOf(l.as("alice"), access.Streams).Take() == nil {
		t.Error("another stream is not refused")
	}
}

// Goal: nothing is anybody's without access control or without a Limiter, and root has no limits.
func TestUnlimited(t *testing.T) {
	off := NewLimiter(func() *access.State { return nil }, 9)
	on, _ := limitsOf(t, access.Watches, 1)
	rate, _ := limitsOf(t, access.Rate, 1)
	for name, ctx := range map[string]context.Context{
		"nobody": on.as(""), "root": on.as("root"), "off": off.as("alice"),
		"no limiter": context.Background(), "nobody's requests": rate.as(""),
		"root's requests": rate.as("root"),
	} {
		s := ShareOf(ctx, access.Watches)
		for range 3 {
			if err := errors.Join(s.Take(), Admit(ctx, noSize)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		s.Close()
	}
	if n := len(off.of); n != 0 {
		t.Errorf("%d principals are known", n)
	}
}

// Goal: a principal gets as many requests a second as it may, and the refusal of one more says when
// to come back; the others are asked nothing. Method: virtual time.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, set := limitsOf(t, access.Rate, 10)
		admitted := func(user string, tries int) (n int, last error) {
			for range tries {
				if err := Admit(l.as(user), noSize); err == nil {
					n++
				} else {
					last = err
				}
			}
			return n, last
		}
		n, err := admitted("alice", 50)
		often := new(RateError)
		if n != 10 || !errors.As(err, &often) || often.Retry != 100 {
			t.Fatalf("%d at once, then %v after %d ms", n, err, often.Retry)
		}
		if n, _ := admitted("bob", 5); n != 5 {
			t.Fatalf("bob got %d", n)
		}
		time.Sleep(100 * time.Millisecond)
		if n, _ := admitted("alice", 5); n != 1 {
			t.Fatalf("%d after a tenth of a second", n)
		}
		time.Sleep(time.Minute)
		if n, _ := admitted("alice", 50); n != 10 {
			t.Fatalf("%d after a minute", n)
		}
		set(20)
		admitted("alice", 1)
		time.Sleep(time.Second)
		if n, _ := admitted("alice", 50); n != 20 {
			t.Fatalf("%d with a higher limit", n)
		}
		set(access.NoLimit)
		if n, _ := admitted("alice", 500); n != 500 {
			t.Fatalf("%d without a limit", n)
		}
	})
}

// Goal: a request that is too large is refused, and one of just the size is not.
func TestRequestBytes(t *testing.T) {
	l, _ := limitsOf(t, access.RequestBytes, 100)
	for n, want := range map[int]bool{0: true, 100: true, 101: false} {
		if err := Admit(l.as("alice"), func() int { return n }); (err == nil) != want {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// Goal: names that come and go take no memory for ever. Method: many principals that give back what
// they take, and one that does not.
func TestLimiterForgets(t *testing.T) {
	l, _ := limitsOf(t, access.Watches, 1)
	stays := ShareOf(l.as("bob"), access.Watches)
	if err := stays.Take(); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * minSweep {
		s := ShareOf(l.as(fmt.Sprint("corp:", i)), access.Watches)
		if err := s.Take(); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if n := len(l.of); n > minSweep {
		t.Errorf("%d principals are known", n)
	}
	if stays.Take() == nil {
		t.Error("what bob has was forgotten")
	}
}

// Goal: who has just asked for all that it may is not forgotten, and so given as much again.
// Method: many principals that come and go, in no time, and then in a second.
func TestRateIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := limitsOf(t, access.Rate, 1)
		others := func() {
			for i := range 3 * minSweep {
				s := ShareOf(l.as(fmt.Sprint("corp:", i)), access.Watches)
				if err := s.Take(); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
		}
		if err := Admit(l.as("alice"), noSize); err != nil {
			t.Fatal(err)
		}
		others()
		if Admit(l.as("alice"), noSize) == nil {
			t.Error("a second request at once is not refused")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		others()
		if _, known := l.of["alice"]; known {
			t.Error("alice is remembered, and has nothing")
		}
	})
}

// Goal: no count is lost between goroutines.
func TestSharesTogether(t *testing.T) {
	l, _ := limitsOf(t, access.Waiters, 4)
	s := ShareOf(l.as("alice"), access.Waiters)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if s.Take() == nil {
					s.Give()
				}
			}
		})
	}
	wg.Wait()
	if n := l.of["alice"].has[access.Waiters]; n != 0 {
		t.Errorf("%d are left", n)
	}
}

// Goal: each API says of a limit what its clients understand.
func TestLimitErrors(t *testing.T) {
	often := &RateError{
		LimitError: access.LimitError{Principal: "alice", What: access.Rate, Limit: 10}, Retry: 70,
	}
	if got := Error(often); status.Code(got) != codes.ResourceExhausted ||
		rpctypes.ErrorDesc(got) != rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests) {
		t.Errorf("etcd's: %v", got)
	}
	leases := &access.LimitError{
		Principal: "alice", What: access.Leases, Limit: 2, Used: 2, Asked: 1,
	}
	for _, err := range []error{often, leases} {
		if r := Reason(err); r != pb.Reason_REASON_LIMIT_REACHED {
			t.Errorf("%v is %v", err, r)
		}
		got := NativeError(err, Reason(err))
		s, retries := status.Convert(got), false
		for _, d := range s.Details() {
			if r, ok := d.(*errdetails.RetryInfo); ok {
				retries = r.RetryDelay.AsDuration() == 70*time.Millisecond
			}
		}
		if s.Code() != codes.ResourceExhausted || retries != (err == error(often)) {
			t.Errorf("%v: code %v, retries %v", err, s.Code(), retries)
		}
	}
	const text = "limit of leases is reached: alice may have 2, has 2 and asks for 1 more"
	s := status.Convert(Error(leases))
	if s.Code() != codes.ResourceExhausted || s.Message() != text {
		t.Errorf("%v", s)
	}
	m := ErrorMessage(leases, Reason(leases)).Metadata
	if m["resource"] != "leases" || m["most"] != "2" || m["used"] != "2" {
		t.Errorf("metadata %v", m)
	}
}

// Goal: a bounded number of principals is named, whatever comes, and what each was refused is never
// counted less. Method: refusals of many, before and after the names are used up.
func TestRefusalsAreBounded(t *testing.T) {
	l := NewLimiter(func() *access.State { return nil }, 2)
	for i := range 100 {
		for range i + 1 {
			l.Refused(&access.LimitError{Principal: fmt.Sprint("u", i), What: access.Leases})
		}
	}
	l.Refused(&access.LimitError{Principal: "u1", What: access.Bytes})
	l.Refused(&access.LimitError{Principal: "u9", What: access.Bytes})
	leases, bytes := l.Refusals(access.Leases), l.Refusals(access.Bytes)
	if want := (map[string]uint64{"u0": 1, "u1": 2, "": 5047}); !maps.Equal(leases, want) {
		t.Errorf("leases %v, want %v", leases, want)
	}
	if want := (map[string]uint64{"u1": 1, "": 1}); !maps.Equal(bytes, want) {
		t.Errorf("bytes %v, want %v", bytes, want)
	}
}

// Goal: of principals that are full a bounded number is known, and one that is refused again makes
// none of the others forgotten. Method: as many as there may be, again, and one more.
func TestFullAreBounded(t *testing.T) {
	l := NewLimiter(func() *access.State { return nil }, 0)
	count := func() (n int) {
		for i := range 2 * maxFull {
			if l.IsFull(fmt.Sprint("u", i)) {
				n++
			}
		}
		return n
	}
	for range 2 {
		for i := range maxFull {
			l.Refused(&access.LimitError{Principal: fmt.Sprint("u", i), What: access.Leases})
		}
	}
	if n := count(); n != maxFull {
		t.Errorf("%d of %d are known", n, maxFull)
	}
	const more = "u2000"
	l.Refused(&access.LimitError{Principal: more, What: access.Leases})
	if n := count(); n != maxFull || !l.IsFull(more) {
		t.Errorf("%d of %d are known, and the last one: %v", n, maxFull, l.IsFull(more))
	}
	l.HasRoom(more)
	if n := count(); n != maxFull-1 || l.IsFull(more) {
		t.Errorf("%d of %d are known, and one that has room: %v", n, maxFull-1, l.IsFull(more))
	}
}
