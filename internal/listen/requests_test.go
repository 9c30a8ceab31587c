package listen

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// half returns a message without its last byte.
func half(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size+1)), make([]byte, size)...)
}

// sends is a sender that records why it was closed.
type sends struct {
	*sender
	why error
}

func newSends(all *Requests) *sends {
	s := new(sends)
	s.sender = all.sender("somewhere", func(why error) { s.why = why })
	return s
}

// call opens a stream and sends data on it.
func (s *sends) call(ctx context.Context, stream uint32, data []byte) *incoming {
	s.newest = stream
	in := s.open(ctx)
	s.send(stream, data)
	return in
}

func (s *sends) send(stream uint32, data []byte) {
	_ = s.frame(stream, len(data), nil) // an error also closes the sender
	s.data(stream, data)
}

// endless is a stream that never receives a message.
type endless struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endless) Context() context.Context { return s.ctx }

func (s endless) RecvMsg(any) error {
	<-s.ctx.Done()
	return s.ctx.Err()
}

// TestSlowRequests checks that a request must be complete within a certain time of its start. A
// stream can be silent between messages, and a complete message can wait for its call.
func TestSlowRequests(t *testing.T) {
	for name, c := range map[string]struct {
		data                []byte
		streams, reads, end bool
		late                bool
	}{
		"a call without a message":        {late: true},
		"a call with part of one":         {data: half(10), late: true},
		"a call that has ended":           {data: half(10), end: true},
		"a silent stream":                 {streams: true, reads: true},
		"a stream with part of one":       {data: half(10), streams: true, reads: true, late: true},
		"a stream held up by its answers": {data: half(10), streams: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := NewRequests(1, slog.New(slog.DiscardHandler))
				s := newSends(all)
				ctx, cancel := context.WithCancel(t.Context())
				in := s.call(ctx, 1, c.data)
				handle := func(_ any, s grpc.ServerStream) error {
					if c.reads {
						return s.RecvMsg(nil)
					}
					<-s.Context().Done()
					return nil
				}
				ended := make(chan error, 1)
				if c.streams {
					go func() {
						ended <- all.stream(nil, endless{ctx: in}, nil, handle)
					}()
				}
				if c.end {
					cancel()
				}
				time.Sleep(10 * unfinishedBeats * unfinishedBeat)
				synctest.Wait()
				if late := errors.Is(s.why, errTooSlow); late != c.late || !late && s.why != nil {
					t.Errorf("late: %v, %v", late, s.why)
				}
				cancel()
				if c.streams {
					<-ended
				}
				time.Sleep(2 * unfinishedBeat)
				synctest.Wait()
				if all.held.Load() != 0 || len(s.calls) != 0 || s.timer != nil {
					t.Errorf("%d bytes, %d calls are left", all.held.Load(), len(s.calls))
				}
			})
		})
	}
}

// TestIdleStreamHasNoTimer checks that a stream has a timer only while a message is incomplete.
func TestIdleStreamHasNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSends(NewRequests(1, slog.New(slog.DiscardHandler)))
		in := s.call(t.Context(), 1, append(half(9), 0))
		s.mu.Lock()
		in.isStream = true
		in.isReading.Store(true)
		s.mu.Unlock()
		looks := func() bool {
			time.Sleep(unfinishedBeat)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.timer != nil
		}
		if looks() {
			t.Error("a timer runs for a stream that has nothing unfinished")
		}
		f := frames{sender: s.sender}
		head := []byte{0, 0, 16, byte(http2.FrameData), 0, 0, 0, 0, 1}
		if err := f.note(head); err != nil || !looks() {
			t.Errorf("no timer runs for a frame of which the head has come: %v", err)
		}
		if err := f.note(append(half(10), 0)); err != nil || looks() {
			t.Errorf("a timer runs when all of it has come: %v", err)
		}
		if err := f.note(append(head, half(10)...)); err != nil {
			t.Error(err)
		}
		time.Sleep((unfinishedBeats + 2) * unfinishedBeat)
		synctest.Wait()
		if !errors.Is(s.why, errTooSlow) {
			t.Errorf("a stream that is slow the second time: %v", s.why)
		}
	})
}

// TestIncompleteMessageIsLate checks that an incomplete message counts as late whether its last
// frame contains part of the data, only padding, or not even the length of the padding.
func TestIncompleteMessageIsLate(t *testing.T) {
	head := func(size byte) []byte {
		return []byte{0, 0, size, byte(http2.FrameData), byte(http2.FlagDataPadded), 0, 0, 0, 1}
	}
	for name, sent := range map[string][]byte{
		"padding":             append(head(4), 3, 0, 0, 0),
		"padding of no bytes": append(head(1), 0),
		"a head alone":        head(1),
		"a part":              append([]byte{0, 0, 8, byte(http2.FrameData), 0, 0, 0, 0, 1}, half(3)...),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSends(NewRequests(1, slog.New(slog.DiscardHandler)))
			in := s.call(t.Context(), 1, append(half(9), 0))
			s.mu.Lock()
			in.isStream = true
			in.isReading.Store(true)
			s.mu.Unlock()
			time.Sleep(unfinishedBeat) // the timer fires and finds nothing
			f := frames{sender: s.sender}
			if err := f.note(sent); err != nil {
				t.Error(err)
			}
			time.Sleep((unfinishedBeats + 2) * unfinishedBeat)
			synctest.Wait()
			if !errors.Is(s.why, errTooSlow) {
				t.Errorf("%s: the connection ended with %v", name, s.why)
			}
		})
	}
}

// TestUnfinishedAccount checks that received data is counted until its call consumes it. The count
// is the memory that gRPC uses for the data.
func TestUnfinishedAccount(t *testing.T) {
	s := newSends(NewRequests(1, slog.New(slog.DiscardHandler)))
	holds := func(what string, want int64) {
		t.Helper()
		if s.held != want || s.all.held.Load() != want {
			t.Errorf("%s: %d bytes are held, want %d", what, s.held, want)
		}
	}
	in := s.call(t.Context(), 1, half(100))
	holds("a part", frameCost(105))
	s.send(1, []byte{0})
	holds("the rest", frameCost(105)+frameCost(1))
	s.send(1, append(half(2000)[:5+2000], 0))
	s.send(1, make([]byte, 3))
	in.taken()
	in.taken()
	holds("all messages are taken", frameCost(3))
	in.taken()
	holds("none was there to take", frameCost(3))
	s.send(3, half(5))
	holds("a stream that is none", frameCost(3))
	in.done()
	holds("the call has ended", 0)
	ctx, cancel := context.WithCancel(t.Context())
	for stream := uint32(5); stream < 1000; stream += 2 {
		s.call(ctx, stream, half(100))
	}
	cancel()
	s.call(t.Context(), 1001, half(leastUnfinished))
	if s.held = s.held - frameCost(leastUnfinished+5); s.held > 100*frameCost(105) {
		t.Errorf("%d bytes are held of calls that have ended", s.held)
	}
	if !errors.Is(s.why, errUnfinished) || s.all.held.Load() != 0 {
		t.Errorf("it has too much: %v, %d bytes", s.why, s.all.held.Load())
	}
}

// TestLongestUnfinishedEnded checks that if all connections together hold too much, the connection
// with the most bytes, weighted by how long it has held them, is closed.
func TestLongestUnfinishedEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		all := newRequests(most, most, slog.New(slog.DiscardHandler))
		var small [100]*sends
		for i := range small {
			small[i] = newSends(all)
			small[i].call(t.Context(), 1, half(1<<10))
		}
		large := newSends(all)
		large.call(t.Context(), 1, half(most/2))
		time.Sleep(time.Second)
		var fresh [7]*sends
		for i := range fresh {
			fresh[i] = newSends(all)
			fresh[i].call(t.Context(), 1, half(most/2))
		}
		for i, s := range append(small[:], fresh[:]...) {
			if s.why != nil {
				t.Errorf("%d: %v", i, s.why)
			}
		}
		if !errors.Is(large.why, errUnfinished) {
			t.Errorf("the one with much for long: %v", large.why)
		}
		time.Sleep(10 * unfinishedBeats * unfinishedBeat)
	})
}

// TestDirectStream checks that a message on a connection without HTTP/2 is counted until it is
// complete. The connection is closed if a message takes too long or is too large, or if a
// stranger's first message is late.
func TestDirectStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1 << 20
		all := newRequests(most, most, slog.New(slog.DiscardHandler))
		ends := 0
		begin := func(all *Requests) directAccount {
			_, a, err := all.Stream(t.Context(), "somewhere", func() { ends++ })
			if err != nil {
				t.Fatal(err)
			}
			return a.(directAccount)
		}
		a := begin(all)
		time.Sleep(time.Hour)
		first, err := a.Hold(1000)
		if err != nil || all.held.Load() != frameCost(1000) {
			t.Errorf("%v, %d bytes are held", err, all.held.Load())
		}
		second, err := a.Hold(4000) // before the first is released
		if err != nil || all.held.Load() != frameCost(1000)+frameCost(4000) {
			t.Errorf("%v, %d bytes are held", err, all.held.Load())
		}
		first()
		time.Sleep((unfinishedBeats - 1) * unfinishedBeat)
		second()
		a.Came()
		time.Sleep(10 * unfinishedBeat)
		synctest.Wait()
		if ends != 0 || all.held.Load() != 0 || a.in.sender.timer != nil {
			t.Errorf("ended %d times, %d bytes are held", ends, all.held.Load())
		}
		if _, err := a.Hold(most); status.Code(err) != codes.ResourceExhausted || ends != 1 || all.held.Load() != 0 {
			t.Errorf("one that is too much: %v, ended %d times, %d bytes", err, ends, all.held.Load())
		}
		a = begin(all)
		_, err = a.Hold(1000)
		time.Sleep((unfinishedBeats + 2) * unfinishedBeat)
		synctest.Wait()
		if err != nil || ends != 2 || all.held.Load() != 0 {
			t.Errorf("a late one: %v, ended %d times, %d bytes", err, ends, all.held.Load())
		}
		strangers := withStrangers()
		silent, speaks := begin(strangers), begin(strangers)
		speaks.Came()
		time.Sleep((strangerBeats + 2) * unfinishedBeat)
		synctest.Wait()
		if ends != 3 || strangers.senders[speaks.in.sender] != struct{}{} || len(strangers.senders) != 1 {
			t.Errorf("a silent stranger: ended %d times, %d are left", ends, len(strangers.senders))
		}
		silent.Close()
		began := time.Now()
		for range siteBurst + 2*siteRate {
			speaks.Came()
			if err := speaks.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < time.Second || took > 3*time.Second {
			t.Errorf("%d messages of a stranger took %v", siteBurst+2*siteRate, took)
		}
		speaks.Close()
		if all.held.Load() != 0 || len(all.senders) != 0 || strangers.strangers.size != 0 {
			t.Errorf("%d bytes of %d senders are held, %d calls", all.held.Load(), len(all.senders),
				strangers.strangers.size)
		}
	})
}

// TestBodyWaits checks that only slightly more of a request body is read than its call consumes,
// and that reading continues when the call does.
func TestBodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewRequests(1, slog.New(slog.DiscardHandler))
		var came atomic.Int64
		messages := io.TeeReader(zeros{}, counter{&came}) // every five bytes form a message
		b, err := all.Body(httptest.NewRecorder(), httptest.NewRequest("POST", "/", messages),
			func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		b.in.room = make(chan struct{}, 1)
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, b)
		}()
		for before := int64(0); before < 4<<20; {
			synctest.Wait()
			if all.held.Load() > 2*bodyRoom || came.Load() == before {
				t.Errorf("%d bytes are held; %d had come, and then %d", all.held.Load(), before, came.Load())
				break
			}
			before = came.Load()
			for range b.in.whole {
				b.in.taken()
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		<-read
		b.Done()
		if all.held.Load() != 0 {
			t.Errorf("%d bytes are left", all.held.Load())
		}
	})
}

// counter counts the bytes written.
type counter struct{ bytes *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
