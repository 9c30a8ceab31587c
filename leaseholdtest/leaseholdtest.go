// Package leaseholdtest runs a Leasehold server inside a test. The server is a single member whose
// network and disk are in memory.
//
//	func TestFailover(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			s := leaseholdtest.Start(t)
//			c := s.Client(client.Config{})
//			...
//			s.Advance(10 * time.Second) // leases without a renewal have expired
//		})
//	}
//
// In a bubble of [testing/synctest], the server and its clients use virtual time: if the test
// sleeps for a minute, a one-minute lease expires without a real wait. Outside a bubble they use
// real time.
package leaseholdtest

import (
	"context"
	"fmt"
	"net/url"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/internal/host"
	"leasehold.dev/server"
	"leasehold.dev/test/virtual"
)

// servers is the number of servers started so far.
var servers atomic.Int64

// Server is a member that runs in the test's process until the test ends.
type Server struct {
	t       testing.TB
	path    string
	virtual bool
}

// Start starts a server and waits until it is ready.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, path: fmt.Sprintf("/leaseholdtest/%d", servers.Add(1)), virtual: inBubble()}
	if s.virtual {
		// Libraries keep channels in pools. Channels from another bubble must not be used in this
		// one, so the pools are emptied first.
		runtime.GC()
		runtime.GC() // a pool keeps its contents for one more collection
	}
	cfg := server.DefaultConfig()
	cfg.Name, cfg.DataDir = "test", s.path
	host.Use(&cfg, virtual.Host())
	socket := func(end string) []url.URL { return []url.URL{{Scheme: "unix", Path: s.path + end}} }
	cfg.URLs.ListenClient, cfg.URLs.AdvertiseClient = socket("/client"), socket("/client")
	cfg.URLs.ListenPeer, cfg.URLs.AdvertisePeer = socket("/peer"), socket("/peer")
	member, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- member.Run(ctx)
		close(done) // one of the receivers below may have received the error
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s.virtual {
			time.Sleep(time.Hour) // some goroutines exit only when a timer fires
		}
	})
	select {
	case <-member.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	return s
}

// inBubble reports whether the caller is running in a bubble of testing/synctest.
func inBubble() (is bool) {
	defer func() { is = recover() == nil }()
	synctest.Wait() // panics outside a bubble
	return
}

// Client returns a client of the server. The client is closed at the end of the test. Client sets
// Endpoints and Dial in the configuration.
func (s *Server) Client(cfg client.Config) *client.Client {
	s.t.Helper()
	cfg.Endpoints = []string{"unix:" + s.path + "/client"}
	cfg.Dial = virtual.DialEndpoint
	c, err := client.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Advance advances the time by d, and waits until the server and all other goroutines of the test
// have finished the work that is due by then. The test must run in a bubble of [testing/synctest].
func (s *Server) Advance(d time.Duration) {
	s.t.Helper()
	if !s.virtual {
		s.t.Fatal("leaseholdtest: Advance works only in a bubble: run the test in synctest.Test")
	}
	time.Sleep(d)
	synctest.Wait()
}
