package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const strangerCalls = 16

type loggedIn struct{}

// withStrangers returns Requests whose callers have logged in if their contexts say so.
func withStrangers() *Requests {
	return NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(strangerCalls,
		func(ctx context.Context) bool { return ctx.Value(loggedIn{}) != nil })
}

// stranger is a connection on which nobody has logged in.
func (all *Requests) stranger(from string) *sends {
	s := new(sends)
	s.sender = all.sender(from, func(why error) { s.why = why })
	return s
}

// opens opens so many calls, and returns how many the server took.
func (s *sends) opens(ctx context.Context, calls int) (taken int) {
	for range calls {
		s.begins(s.newest + 2)
		_, err := s.open(ctx)
		if err == nil {
			taken++
		} else if status.Code(err) != codes.ResourceExhausted {
			panic(err)
		}
	}
	return taken
}

// checkStrangers checks that the calls of strangers are the sum of what each has.
func checkStrangers(t *testing.T, all *Requests, want int) {
	t.Helper()
	synctest.Wait()
	all.mu.Lock()
	defer all.mu.Unlock()
	sum, hosts := 0, map[string]int{}
	for s := range all.senders {
		sum += s.calling
		hosts[s.host] += s.calling
	}
	if all.strangers != want || sum != want {
		t.Errorf("%d calls are counted, of connections %d, want %d", all.strangers, sum, want)
	}
	for host, n := range all.hosts {
		if n <= 0 || n != hosts[host] {
			t.Errorf("%d calls are counted for %q, %d are there", n, host, hosts[host])
		}
	}
}

// A stranger has a few calls at a time, and all connections of its address some more; a client that
// has logged in has as many as it likes, whether that is known at once or found out later.
func TestStrangerCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := withStrangers()
		ctx, cancel := context.WithCancel(t.Context())
		s := all.stranger("10.0.0.1:1")
		if n := s.opens(ctx, 100); n != strangerCalls {
			t.Errorf("a stranger has %d calls", n)
		}
		for port := range 2 * hostCalls / strangerCalls {
			all.stranger(fmt.Sprintf("10.0.0.1:%d", port+2)).opens(t.Context(), strangerCalls)
		}
		checkStrangers(t, all, hostCalls)
		cancel()
		checkStrangers(t, all, hostCalls-strangerCalls)
		if n := s.opens(t.Context(), 1); n != 1 {
			t.Error("a call that has ended still counts")
		}
		Vouch(peer.NewContext(t.Context(), &peer.Peer{Addr: remote{sender: s.sender}}))
		checkStrangers(t, all, hostCalls-strangerCalls)
		known := all.stranger("10.0.0.1:9999")
		in := context.WithValue(t.Context(), loggedIn{}, true)
		if n, m := s.opens(t.Context(), 5000), known.opens(in, 5000); n != 5000 || m != 5000 {
			t.Errorf("clients that have logged in have %d and %d calls", n, m)
		}
		s.close()
		known.close()
		checkStrangers(t, all, hostCalls-strangerCalls)
	})
}

// Strangers of many addresses keep out no stranger of another one: those of the address with the
// most calls have to go.
func TestStrangersMakeRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := withStrangers()
		var crowd []*sends
		for i := range 2 * strangersMost / strangerCalls {
			s := all.stranger(fmt.Sprintf("10.0.%d.1:%d", i%8, i))
			s.opens(t.Context(), strangerCalls)
			crowd = append(crowd, s)
		}
		one := all.stranger("10.1.1.1:1")
		if n := one.opens(t.Context(), 1); n != 1 || one.why != nil {
			t.Errorf("one more has %d calls, %v", n, one.why)
		}
		gone := 0
		for _, s := range crowd {
			if s.why != nil {
				gone++
			}
		}
		if gone == 0 {
			t.Error("nobody made room")
		}
		synctest.Wait()
		all.mu.Lock()
		defer all.mu.Unlock()
		if all.strangers > strangersMost {
			t.Errorf("strangers have %d calls", all.strangers)
		}
	})
}

// The first message of a stranger must come soon. Later its stream may be silent, and so may the
// stream of a client that has logged in.
func TestSilentStrangersAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		known, speaks, late bool
	}{
		"silent":            {late: true},
		"speaks":            {speaks: true},
		"silent, logged in": {known: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := withStrangers().stranger("10.0.0.1:1")
			ctx := t.Context()
			if c.known {
				ctx = context.WithValue(ctx, loggedIn{}, true)
			}
			in := s.call(ctx, 1, nil)
			s.mu.Lock()
			in.isStream, in.isReading = true, true
			s.mu.Unlock()
			if c.speaks {
				s.send(1, make([]byte, 5))
			}
			time.Sleep((strangerBeats + 2) * unfinishedBeat)
			synctest.Wait()
			if late := errors.Is(s.why, errTooSlow); late != c.late {
				t.Errorf("%s: %v", name, s.why)
			}
		})
	}
}

// frame is a frame without a payload.
func frame(kind http2.FrameType, stream byte) []byte {
	return []byte{0, 0, 0, byte(kind), 0, 0, 0, 0, stream}
}

// A connection that opens calls and resets them is read more slowly, so that it takes little of the
// processor; one that resets as many as it may have at once is not, if it has logged in.
func TestResetsAreSlowedDown(t *testing.T) {
	for name, c := range map[string]struct {
		known       bool
		resets      int
		least, most time.Duration
	}{
		"a stranger":                 {false, 10_000, 150 * time.Second, 250 * time.Second},
		"logged in":                  {true, 16_384, 0, 0},
		"logged in, again and again": {true, 100_000, 30 * time.Second, 60 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := withStrangers()
			client, server := net.Pipe()
			ours, _, err := Credentials(all, nil).ServerHandshake(server)
			if err != nil {
				t.Fatal(err)
			}
			s := ours.(*served).addr.sender
			s.known.Store(c.known)
			go func() {
				_, _ = client.Write(make([]byte, prefaceSize))
				for range c.resets {
					_, _ = client.Write(frame(http2.FrameRSTStream, 1))
				}
				_ = client.Close()
			}()
			began := time.Now()
			var buf [frameHead]byte
			for err == nil {
				_, err = ours.Read(buf[:])
			}
			if took := time.Since(began); took < c.least || took > c.most {
				t.Errorf("%s: %d resets took %v", name, c.resets, took)
			}
			_ = ours.Close()
		})
	}
}

// A slow reader ends with its connection.
func TestSlowedDownConnectionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withStrangers().stranger("10.0.0.1:1")
		s.pace.resets = strangerBurst
		s.wait()
		s.pace.resets = strangerBurst
		time.AfterFunc(time.Millisecond, func() { s.close() })
		began := time.Now()
		s.wait()
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}
