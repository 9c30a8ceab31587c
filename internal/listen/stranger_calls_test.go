package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const strangerCalls = 16

type loggedIn struct{}

// withStrangers returns Requests whose callers count as logged in if their contexts contain
// loggedIn.
func withStrangers() *Requests {
	return NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(strangerCalls,
		func(ctx context.Context) bool { return ctx.Value(loggedIn{}) != nil })
}

// stranger returns a connection that has not logged in.
func (all *Requests) stranger(from string) *sends {
	s := new(sends)
	s.sender = all.sender(from, func(why error) { s.why = why })
	return s
}

// opens opens a number of calls and returns how many the server accepted.
func (s *sends) opens(ctx context.Context, calls int) (taken int) {
	for range calls {
		s.newest += 2
		if s.open(ctx).refused == nil {
			taken++
		}
	}
	return taken
}

// checkStrangers checks that the number of strangers' calls equals the sum over all connections.
func checkStrangers(t *testing.T, all *Requests, want int) {
	t.Helper()
	synctest.Wait()
	all.mu.Lock()
	defer all.mu.Unlock()
	sum, ofSites := 0, map[string]int{}
	for s := range all.senders {
		sum += len(s.calling)
		ofSites[s.site.name] += len(s.calling)
	}
	if all.strangers.size != want || sum != want {
		t.Errorf("%d calls are counted, of connections %d, want %d", all.strangers.size, sum, want)
	}
	for name, p := range all.strangers.sites {
		if n := p.List.Len(); n != ofSites[name] || n == 0 {
			t.Errorf("%d calls are counted for %q, %d are there", n, name, ofSites[name])
		}
	}
}

// TestStrangerCalls checks that a stranger can have only a few concurrent calls, and that there is
// also a limit for all strangers together. A client that presents a login has no such limit, even
// if the login is verified only later.
func TestStrangerCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := withStrangers()
		ctx, cancel := context.WithCancel(t.Context())
		s := all.stranger("10.0.0.1:1")
		if n := s.opens(ctx, 100); n != strangerCalls {
			t.Errorf("a stranger has %d calls", n)
		}
		for port := range 2 * maxStrangerCalls / strangerCalls {
			all.stranger(fmt.Sprintf("10.0.0.1:%d", port+2)).opens(t.Context(), strangerCalls)
		}
		checkStrangers(t, all, maxStrangerCalls)
		cancel()
		checkStrangers(t, all, maxStrangerCalls-strangerCalls)
		if n := s.opens(t.Context(), 1); n != 1 {
			t.Error("a call that has ended still counts")
		}
		MarkLoggedIn(peer.NewContext(t.Context(), &peer.Peer{Addr: remote{sender: s.sender}}))
		checkStrangers(t, all, maxStrangerCalls-strangerCalls)
		known := all.stranger("10.0.0.1:9999")
		in := context.WithValue(t.Context(), loggedIn{}, true)
		if n, m := s.opens(t.Context(), 5000), known.opens(in, 5000); n != 5000 || m != 5000 {
			t.Errorf("clients that have logged in have %d and %d calls", n, m)
		}
		s.close()
		known.close()
		checkStrangers(t, all, maxStrangerCalls-strangerCalls)
	})
}

// TestClientsOfOneAddressLogIn checks that many clients behind one address can log in at the same
// time, even if only a member can verify their tokens, as on a relay. Strangers at that address do
// not keep them out. Clients beyond the limit get an error that asks them to retry.
func TestClientsOfOneAddressLogIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(strangerCalls, NoneKnown)
		comes := func() *sends { return all.stranger("10.0.0.1:1") }
		var stay []*sends
		for range 2000 {
			s := comes()
			stay = append(stay, s)
			if s.opens(t.Context(), 1) != 1 {
				t.Fatal("a call was refused")
			}
		}
		for range 10 {
			time.Sleep(2 * loginTime)
			var clients []*sends
			for range 3000 {
				s := comes()
				clients = append(clients, s)
				if s.opens(t.Context(), 1) != 1 {
					t.Fatal("a client was refused")
				}
			}
			time.Sleep(loginTime / 2)
			for _, s := range clients {
				if s.why != nil {
					t.Fatalf("a client was closed: %v", s.why)
				}
				s.markKnown()
			}
		}
		gone := 0
		for i, s := range stay {
			if s.why != nil {
				gone++
				if i > 0 && stay[i-1].why == nil {
					t.Fatal("a younger stranger was closed before an older one")
				}
			}
		}
		if gone == 0 {
			t.Error("no stranger made room")
		}
		refused := error(nil)
		for range 2 * maxStrangerCalls {
			s := comes()
			s.newest = 1
			if in := requestOf(s.open(t.Context())); in.refused != nil {
				refused = in.refused
			}
		}
		if status.Code(refused) != codes.Unavailable {
			t.Errorf("a client beyond the bound is told %v", refused)
		}
	})
}

// TestStrangersEvictedPerSite checks that strangers from many addresses do not keep out a
// stranger from another address. The address with the most calls loses some of them.
func TestStrangersEvictedPerSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := withStrangers()
		var crowd []*sends
		for i := range 2 * maxStrangerCalls / strangerCalls {
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
		if all.strangers.size > maxStrangerCalls {
			t.Errorf("strangers have %d calls", all.strangers.size)
		}
	})
}

// TestSilentStrangersAreClosed checks that a stranger's first message must arrive soon. After that,
// its stream can be silent, and so can the stream of a logged-in client.
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
			in.isStream = true
			in.isReading.Store(true)
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

// frame returns a frame without a payload.
func frame(kind http2.FrameType, stream byte) []byte {
	return []byte{0, 0, 0, byte(kind), 0, 0, 0, 0, stream}
}

// TestResetsAreSlowedDown checks that a connection that opens and resets calls is read more slowly,
// so that it uses little CPU. Once logged in, it can reset as many calls at a time as it is allowed
// to have open.
func TestResetsAreSlowedDown(t *testing.T) {
	for name, c := range map[string]struct {
		known       bool
		resets      int
		least, most time.Duration
	}{
		"a stranger":                 {false, 10_000, 15 * time.Second, 20 * time.Second},
		"logged in":                  {true, 16_384, 0, 0},
		"logged in, again and again": {true, 100_000, 15 * time.Second, 20 * time.Second},
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

// TestMessagesAreSlowedDown checks that a stranger's messages count like its calls, because each of
// them costs CPU.
func TestMessagesAreSlowedDown(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := withStrangers().stranger("10.0.0.1:1")
			ctx := t.Context()
			if known {
				ctx = context.WithValue(ctx, loggedIn{}, true)
			}
			s.call(ctx, 1, nil)
			began := time.Now()
			for range 100 {
				s.send(1, make([]byte, 5*siteRate/10))
				if err := s.wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			least, most := 7*time.Second, 10*time.Second
			if known {
				least, most = 0, 0
			}
			if took := time.Since(began); took < least || took > most {
				t.Errorf("logged in %v: %d messages took %v", known, 10*siteRate, took)
			}
		})
	}
}

// TestManyMessagesAtOnce checks that messages beyond a burst are delayed for a limited time.
func TestManyMessagesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withStrangers().stranger("10.0.0.1:1")
		s.call(t.Context(), 1, nil)
		s.send(1, make([]byte, 5*(siteBurst+2*siteRate)))
		began := time.Now()
		if err := s.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Second || took > 3*time.Second {
			t.Errorf("%d messages took %v; want about 2 s", siteBurst+2*siteRate, took)
		}
	})
}

// TestSlowedDownConnectionCloses checks that a throttled connection stops waiting as soon as it is
// closed.
func TestSlowedDownConnectionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withStrangers().stranger("10.0.0.1:1")
		s.resets = siteBurst
		if err := s.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.resets = siteBurst
		time.AfterFunc(time.Millisecond, func() { s.close() })
		began := time.Now()
		_ = s.wait(t.Context()) // the connection closes while it waits
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestFloodDelayIsBounded checks that a flood from one site does not delay strangers from
// another site. A flood from many sites delays them only until connections are closed.
func TestFloodDelayIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		sites int
		most  time.Duration
	}{
		"one site":   {1, 0},
		"many sites": {250, maxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := withStrangers()
				ended := time.After(time.Minute)
				stop := make(chan struct{})
				var flood sync.WaitGroup
				for i := range 1000 {
					flood.Go(func() {
						s := all.stranger(fmt.Sprintf("10.0.%d.1:%d", i%c.sites, i))
						for err := error(nil); err == nil; {
							select {
							case <-stop:
								return
							default:
							}
							s.sender.opens = 40
							err = s.wait(t.Context())
						}
					})
				}
				for open := true; open; {
					select {
					case <-ended:
						open = false
					case <-time.After(time.Second):
					}
					one := all.stranger("10.1.1.1:1")
					one.sender.opens = 1
					began := time.Now()
					// the connection can be closed, but only after it has waited too long
					_ = one.wait(t.Context())
					if took := time.Since(began); took > c.most {
						t.Errorf("another stranger waited %v", took)
					}
					one.close()
				}
				close(stop)
				all.mu.Lock()
				for s := range all.senders {
					go s.close()
				}
				all.mu.Unlock()
				flood.Wait()
			})
		})
	}
}

// TestSite checks that a site is an IPv4 address or an IPv6 network, without the port.
func TestSite(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:5":                 "10.0.0.1",
		"10.0.0.1":                   "10.0.0.1",
		"[::ffff:10.0.0.1]:5":        "10.0.0.1",
		"[2001:db8:1:2:3:4:5:6]:5":   "2001:db8:1:2::/64",
		"[2001:db8:1:2:9:9:9:9]:6":   "2001:db8:1:2::/64",
		"[fe80::1%eth0]:6":           "fe80::/64",
		"2001:db8:1:3::1":            "2001:db8:1:3::/64",
		"/run/leasehold.sock":        "",
		"@":                          "",
		"":                           "",
		"member.example.com:2379":    "",
		"2001:db8:1:2:3:4:5:6:7:8:9": "",
	} {
		if got := Site(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// TestSitesAreForgotten checks that the number of tracked sites is bounded.
func TestSitesAreForgotten(t *testing.T) {
	all := withStrangers()
	for i := range 2 * mostSites {
		all.stranger(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff)).close()
	}
	if n := all.sites.Len(); n != mostSites {
		t.Errorf("%d sites are remembered, want %d", n, mostSites)
	}
}

// TestRefusedCallsLeaveNothing checks that rejected calls leave nothing behind, even with a
// deadline years away.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	for _, message := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const calls = 100
			var begun, ended atomic.Int64
			all := NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(strangerCalls,
				func(ctx context.Context) bool {
					begun.Add(1)
					context.AfterFunc(ctx, func() { ended.Add(1) })
					return false
				})
			gs := grpc.NewServer(append(all.Options(nil), grpc.Creds(Credentials(all, nil)),
				grpc.ForceServerCodecV2(rawCodec{}))...)
			gs.RegisterService(&grpc.ServiceDesc{
				ServiceName: "m", HandlerType: (*any)(nil),
				Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(
					_ any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor,
				) (any, error) {
					var b []byte
					if err := decode(&b); err != nil {
						return nil, err
					}
					return i(ctx, b, nil, func(ctx context.Context, _ any) (any, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					})
				}}},
			}, nil)
			l := newPipes()
			served := make(chan error, 1)
			go func() { served <- gs.Serve(l) }()
			client := newAnswersClient(t, l.dial())
			client.timeout, client.silent = "99999999H", !message
			client.ask("Call", calls)
			time.Sleep(2 * refusedTime)
			synctest.Wait()
			if b, n := begun.Load(), ended.Load(); b != calls || n != calls-strangerCalls {
				t.Errorf("message %v: of %d calls %d have ended", message, b, n)
			}
			_ = client.close()
			gs.Stop()
			<-served
		})
	}
}

// TestStrangersOfTheGateway checks that strangers can have only a few gateway requests. A request
// no longer counts as a stranger's once its gRPC call has logged in, or if its headers contain a
// token.
func TestStrangersOfTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(strangerCalls,
			func(ctx context.Context) bool {
				return len(metadata.ValueFromIncomingContext(ctx, "authorization")) > 0
			})
		answers := newAnswers()
		login, end := make(chan struct{}), make(chan struct{})
		var refused, begun atomic.Int64
		h := answers.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := requests.Body(w, r, func(error) {})
			if err != nil {
				refused.Add(1)
				return
			}
			defer b.Done()
			begun.Add(1)
			md, _ := metadata.FromOutgoingContext(r.Context())
			c := answers.call(metadata.NewIncomingContext(t.Context(), md)) // made by the gateway
			if ctx := context.WithValue(t.Context(), callKey{}, &c); r.URL.Path == "/logs/in" {
				<-login
				if !IsStranger(ctx) {
					t.Error("it is no stranger's before the login")
				}
				MarkLoggedIn(ctx)
			}
			<-end
		}))
		var wg sync.WaitGroup
		ask := func(n int, path, header string) {
			for range n {
				r := httptest.NewRequest("POST", path, nil)
				r.RemoteAddr = "10.0.0.1:1"
				if header != "" {
					r.Header.Set("Authorization", header)
				}
				wg.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
			}
			synctest.Wait()
		}
		expect := func(what string, n, no int64) {
			t.Helper()
			if b, r := begun.Swap(0), refused.Swap(0); b != n || r != no {
				t.Errorf("%s: %d begun, %d refused, want %d and %d", what, b, r, n, no)
			}
		}
		ask(siteBurst, "/logs/in", "")
		expect("strangers", siteBurst, 0)
		ask(10, "/", "token")
		expect("with a token", 10, 0)
		close(login)
		synctest.Wait()
		time.Sleep(time.Minute)
		ask(siteBurst+10, "/", "")
		expect("after logins", siteBurst, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		expect("later", 10, 0)
		close(end)
		wg.Wait()
		ask(1, "/", "")
		expect("after the end", 1, 0)
		wg.Wait()
		if n := requests.strangers.size; n != 0 || len(requests.senders) != 0 {
			t.Errorf("%d calls of %d senders are left", n, len(requests.senders))
		}
	})
}

// TestCallOverHTTPEnds checks that a gRPC call over an HTTP server ends when its connection must be
// closed.
func TestCallOverHTTPEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := withStrangers()
		ended := make(chan error, 1)
		gs := grpc.NewServer(append(all.Options(nil), grpc.ForceServerCodecV2(rawCodec{}))...)
		gs.RegisterService(&grpc.ServiceDesc{
			ServiceName: "m", HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{
				StreamName: "Stream", ClientStreams: true, ServerStreams: true,
				Handler: func(_ any, s grpc.ServerStream) error {
					<-s.Context().Done() // the call consumes no messages
					ended <- s.Context().Err()
					return s.Context().Err()
				},
			}},
		}, nil)
		h := &http.Server{Handler: all.GRPC(gs), Protocols: new(http.Protocols)}
		h.Protocols.SetUnencryptedHTTP2(true)
		l := newPipes()
		served := make(chan error, 1)
		go func() { served <- h.Serve(l) }()
		client := newAnswersClient(t, l.dial())
		client.ask("Stream", 1)
		all.mu.Lock()
		for s := range all.senders {
			go s.fail(errUnfinished)
		}
		all.mu.Unlock()
		select {
		case <-ended:
		case <-time.After(time.Hour):
			t.Error("the call goes on")
		}
		_ = client.close()
		_ = h.Close()
		gs.Stop()
		<-served
	})
}

// TestRequestEndsAsItsHandlerReturns checks that ending a request does not touch its connection
// once its handler has returned. With HTTP/2 the response writer is gone by then, and using it
// would crash the process. Both orders are tested.
func TestRequestEndsAsItsHandlerReturns(t *testing.T) {
	for _, first := range []string{"the handler", "the end"} {
		synctest.Test(t, func(t *testing.T) {
			all := withStrangers()
			ending, returned := make(chan struct{}), make(chan struct{})
			h := &http.Server{Protocols: new(http.Protocols)}
			h.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := all.Body(w, r, func(error) {
					close(ending)
					if first == "the handler" {
						<-returned
					}
				})
				if err != nil {
					t.Error(err)
				}
				go b.sender.fail(errTooSlow)
				<-ending
				if first == "the end" {
					if _, err := b.Read(make([]byte, 1)); err == nil {
						t.Error("the body has not ended")
					}
				}
				b.Done()
			})
			h.Protocols.SetUnencryptedHTTP2(true)
			l := newPipes()
			served := make(chan error, 1)
			go func() { served <- h.Serve(l) }()
			client := newAnswersClient(t, l.dial())
			client.silent = true
			client.ask("Call", 1) // returns once the handler has returned
			close(returned)
			synctest.Wait()
			_ = client.close()
			_ = h.Close()
			<-served
		})
	}
}

// TestRequestsOverHTTPAreSlowedDown checks that calls over net/http, gateway requests and pages are
// throttled like gRPC calls. A flood from other sites does not delay pages.
func TestRequestsOverHTTPAreSlowedDown(t *testing.T) {
	const asks = siteBurst + 5*siteRate
	serveNothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, through := range map[string]func(all *Requests) http.Handler{
		"gRPC": func(all *Requests) http.Handler {
			return all.GRPC(grpc.NewServer(all.Options(nil)...))
		},
		"gateway": func(all *Requests) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if b, err := all.Body(w, r, func(error) {}); err == nil {
					b.Done()
				}
			})
		},
		"page": func(all *Requests) http.Handler { return all.Handler(serveNothing) },
	} {
		synctest.Test(t, func(t *testing.T) {
			all := withStrangers()
			h := through(all)
			ask := func(from string) time.Duration {
				r := httptest.NewRequest("POST", "/m/Call", http.NoBody)
				r.ProtoMajor, r.RemoteAddr = 2, from
				r.Header.Set("Content-Type", "application/grpc")
				began := time.Now()
				h.ServeHTTP(httptest.NewRecorder(), r)
				return time.Since(began)
			}
			took := time.Duration(0)
			for range asks {
				took += ask("10.0.0.1:1")
			}
			if took < 4*time.Second || took > 6*time.Second {
				t.Errorf("%s: %d requests took %v, want about 5 s", name, asks, took)
			}
			var flood sync.WaitGroup
			for i := range 2 * strangersRate {
				flood.Go(func() { ask(fmt.Sprintf("10.1.%d.%d:1", i>>8, i&255)) })
			}
			synctest.Wait()
			if d := ask("10.2.0.1:1"); name == "page" && d > 0 {
				t.Errorf("a page waited %v for requests of other sites", d)
			}
			flood.Wait()
		})
	}
}

// TestRequestsAfterLogin checks that after a login over an HTTP connection, later requests on it do
// not count as a stranger's, even where only a member can verify a token.
func TestRequestsAfterLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := NewLimit(10, "", slog.New(slog.DiscardHandler))
		limit.BoundStrangers(5)
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		c := &counted{Conn: visitor{near, "10.0.0.1:1"}, limit: limit, site: "10.0.0.1"}
		limit.admit(c)
		all := NewRequests(1, slog.New(slog.DiscardHandler)).BoundStrangers(strangerCalls, NoneKnown)
		ctx := newAnswers().ConnContext(t.Context(), c)
		c.markKnown()
		began := time.Now()
		for range 5 * siteBurst {
			r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
			b, err := all.Body(httptest.NewRecorder(), r, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			b.Done()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("requests of a client that has logged in waited %v", took)
		}
	})
}
