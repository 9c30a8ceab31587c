package cache

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/virtual"
)

// fakeLink is a link that records its acknowledgments and signals when it is closed.
type fakeLink struct {
	cachelink.Link
	acks   []cachelink.Ack
	closed chan struct{}
}

func (f *fakeLink) Ack(a cachelink.Ack) { f.acks = append(f.acks, a) }

func (f *fakeLink) CloseAfter(d time.Duration) { time.AfterFunc(d, f.Close) }

func (f *fakeLink) Close() {
	select {
	case f.closed <- struct{}{}:
	default:
	}
}

// setLinkCache replaces linkCache until the test ends. The test must not run in parallel with other
// tests.
func setLinkCache(
	t *testing.T,
	link func(*client.Lease, cachelink.Internal, cachelink.Events) (cachelink.Link, error),
) {
	old := linkCache
	t.Cleanup(func() { linkCache = old })
	linkCache = link
}

// TestFailedOpenRevokesLease checks that a cache that has a lease but cannot be opened revokes the
// lease. It logs nothing unless the revocation fails.
func TestFailedOpenRevokesLease(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		at := inprocess.Endpoints(inprocess.Run(t, 1))
		other := inprocess.Connect(t, client.Config{}, at...)
		broken := errors.New("broken")
		for _, x := range []struct {
			name   string
			end    func(c *client.Client, cancel func()) (cachelink.Link, error)
			want   error
			logged bool
		}{
			{"opening fails", func(*client.Client, func()) (cachelink.Link, error) {
				return nil, broken
			}, broken, false},
			{"context canceled", func(_ *client.Client, cancel func()) (cachelink.Link, error) {
				cancel()
				return &fakeLink{}, nil
			}, context.Canceled, false},
			{"client closed", func(c *client.Client, _ func()) (cachelink.Link, error) {
				c.Close()
				return nil, broken
			}, broken, true},
		} {
			virtual.Step(t, x.name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var held *client.Lease
				c := inprocess.Connect(t, client.Config{}, at...)
				setLinkCache(t, func(
					l *client.Lease, _ cachelink.Internal, _ cachelink.Events,
				) (cachelink.Link, error) {
					held = l
					return x.end(c, cancel)
				})
				var log bytes.Buffer
				_, err := Open(ctx, c, []store.KeyRange{store.Prefix("n/")},
					Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				if !errors.Is(err, x.want) {
					t.Errorf("Open: %v, want %v", err, x.want)
				}
				if x.logged != (log.Len() > 0) {
					t.Errorf("logged %q", log.String())
				}
				_, err = other.Describe(t.Context(), leases.Ref{ID: held.ID()})
				if x.logged != (err == nil) {
					t.Errorf("lease: %v", err)
				}
			})
		}
	})
}

// TestClientClosedInReopen checks that a cache that cannot reopen because its client was closed
// does not call Reopen again.
func TestClientClosedInReopen(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		at := inprocess.Endpoints(inprocess.Run(t, 1))
		c := inprocess.Connect(t, client.Config{}, at...)
		other := inprocess.Connect(t, client.Config{}, at...)
		asked := 0
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("m/")},
			Options{Reopen: func(error) bool {
				asked++
				c.Close()
				return asked == 1
			}})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Revoke(t.Context(), x.Lease().Ref()); err != nil {
			t.Fatal(err)
		}
		x.all.Wait()
		if asked != 1 {
			t.Errorf("Reopen was called %d times, want once", asked)
		}
		_ = x.Close(t.Context()) // fails: the lease is gone
	})
}

// TestCloseWaitsForReopen checks that none of a cache's code runs after Close has returned, not
// even the program's Reopen callback.
func TestCloseWaitsForReopen(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		at := inprocess.Endpoints(inprocess.Run(t, 1))
		c := inprocess.Connect(t, client.Config{}, at...)
		other := inprocess.Connect(t, client.Config{}, at...)
		var x *Cache
		asked, done := make(chan struct{}), false
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("w/")},
			Options{Reopen: func(error) bool {
				close(asked)
				<-x.ctx.Done()
				<-time.After(50 * time.Millisecond)
				done = true
				return false
			}})
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Revoke(t.Context(), x.Lease().Ref()); err != nil {
			t.Fatal(err)
		}
		<-asked
		_ = x.Close(t.Context()) // fails: the lease is gone
		if !done {
			t.Error("Close returned before Reopen")
		}
	})
}

// TestIncarnationReports checks that an incarnation acknowledges its opening once. It reports
// nothing while it has no link or nothing to report. After its lease has ended, it acknowledges
// only its opening, and lists no copies.
func TestIncarnationReports(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		held, err := c.Grant(t.Context(), client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		x := &Cache{client: c, o: Options{}.withDefaults(), ranges: []store.KeyRange{{Key: "a"}}}
		l, link := newIncarnation(x, held), &fakeLink{}
		l.Opened(6) // there is no link yet
		l.link = link
		l.Refused(client.ErrUnavailable)
		l.Opening()
		l.Opened(7)
		if n := len(link.acks); n != 1 || link.acks[0].Open != 7 {
			t.Errorf("opened in term 7: reports %+v", link.acks)
		}
		l.mu.Lock()
		l.reportLocked(true)
		l.mu.Unlock()
		if n := len(link.acks); n != 1 {
			t.Errorf("reported again: %+v", link.acks)
		}
		l.Opening()
		if err := l.notOpen(); !errors.Is(err, ErrNotHeld) || errors.Is(err, client.ErrUnavailable) {
			t.Errorf("not open after a refusal and a later opening: %v", err)
		}
		held.Close()
		link.acks = nil
		l.Opened(8)
		if len(link.acks) != 1 || link.acks[0].Open != 8 || l.notOpen() == nil {
			t.Errorf("opened after its end: reports %+v, open: %v", link.acks, l.notOpen())
		}
	})
}

// TestOpenedBeforeLink checks that a cache that was opened before it got its link reports the
// opening once the link exists. After a close, the link stays open for one TTL, because writes may
// be waiting for its acknowledgments.
func TestOpenedBeforeLink(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		const ttl = 3 * time.Second // longer than any delay on a busy machine
		c := inprocess.Connect(t, client.Config{}, inprocess.Endpoints(inprocess.Run(t, 1))...)
		link := &fakeLink{closed: make(chan struct{}, 1)}
		setLinkCache(t, func(
			_ *client.Lease, _ cachelink.Internal, to cachelink.Events,
		) (cachelink.Link, error) {
			to.Opened(7)
			return link, nil
		})
		began := time.Now()
		x, err := Open(t.Context(), c, []store.KeyRange{store.Prefix("n/")}, Options{
			TTL: ttl, Reopen: func(error) bool { return false },
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(link.acks) != 1 || link.acks[0].Open != 7 {
			t.Errorf("opened in term 7: reports %+v", link.acks)
		}
		_ = x.Close(t.Context()) // fails if the lease has ended
		select {
		case <-link.closed:
		case <-time.After(time.Minute):
			t.Error("the link was not closed")
		}
		if d := time.Since(began); d < ttl {
			t.Errorf("the link was closed after %v, want at least %v", d, ttl)
		}
	})
}

// TestRangeOf checks that a range that starts at the empty key is converted to start at the first
// valid key. The empty key alone is unchanged.
func TestRangeOf(t *testing.T) {
	for in, want := range map[keyrange.Range]keyrange.Range{
		{}:                   {},
		{End: "b"}:           {Key: "\x00", End: "b"},
		{Key: "a", End: "b"}: {Key: "a", End: "b"},
	} {
		if got := rangeOf(store.KeyRange(in)); got != want {
			t.Errorf("rangeOf(%q) = %q, want %q", in, got, want)
		}
	}
}
