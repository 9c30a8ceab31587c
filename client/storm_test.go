package client

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// stormClients is the number of clients in the test, and shortClients the number of them with short
// leases.
const stormClients, shortClients = 300, 12

// storm records when clients open streams to live members. Opening a stream takes a while.
type storm struct {
	*fake
	takes time.Duration

	mu     sync.Mutex
	opened []time.Time
}

// stormConn is a client's connection to a member of a storm.
type stormConn struct {
	fakeConn
	storm *storm
}

func (c stormConn) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	s := c.storm
	s.fake.mu.Lock()
	down := s.down[c.name]
	s.fake.mu.Unlock()
	if !down {
		s.mu.Lock()
		s.opened = append(s.opened, time.Now())
		s.mu.Unlock()
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return c.fakeConn.Open(ctx)
}

// connect returns a client of three members.
func (s *storm) connect(t *testing.T) *Client {
	list := []endpoint{{text: "a"}, {text: "b"}, {text: "c"}}
	c, err := start(exact, list, func(e endpoint, _ *settings) (connection, error) {
		return stormConn{fakeConn{s.fake, e.text}, s}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// isWith reports whether a client is connected to a member.
func isWith(c *Client, name string) bool {
	return c.mux.endpoints[c.mux.current().place].text == name
}

// kill makes a member fail and clears the record of opened streams.
func (s *storm) kill(name string) {
	s.set(func() {
		s.down[name] = true
		for _, x := range s.fake.opened {
			if x.name == name && !x.isCut() {
				close(x.cut)
			}
		}
	})
	s.mu.Lock()
	s.opened = nil
	s.mu.Unlock()
}

// TestStormOfClients checks that when a member dies, clients that only keep leases alive move to
// other members gradually and lose no leases. A client with a pending request, or without leases,
// moves immediately.
func TestStormOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			down: make(map[string]bool), frozen: make(map[string]bool),
			dead: make(map[string]bool), foreign: make(map[string]bool),
		}
		f.answer = f.obey
		s := &storm{fake: f}
		var clients []*Client
		var leases []*Lease
		for i := range stormClients {
			c, g := s.connect(t), Grant{TTL: 10 * time.Second}
			if i < shortClients {
				g.TTL = 2 * time.Second
			}
			clients, leases = append(clients, c), append(leases, grant(t, c, g))
		}
		without := s.connect(t)
		for !isWith(without, "a") {
			clients = append(clients, without)
			without = s.connect(t)
		}
		lost := slices.DeleteFunc(slices.Clone(clients), func(c *Client) bool {
			return !isWith(c, "a")
		})
		s.takes = 500 * time.Millisecond
		began := time.Now()
		s.kill("a")
		if _, err := lost[0].Put(t.Context(), store.Put{Key: "k"}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > s.takes+50*time.Millisecond {
			t.Errorf("a call has waited %v", took)
		}
		synctest.Wait()
		if without.mux.current() == nil {
			t.Error("a client without leases is not back at once")
		}
		time.Sleep(mostSpread + s.takes)
		synctest.Wait()
		s.mu.Lock()
		opened := slices.Clone(s.opened)
		s.mu.Unlock()
		// Clients with short leases may have tried both members.
		if n, most := len(opened), len(lost)+1; n < most || n > most+2+shortClients {
			t.Errorf("%d clients have tried to connect %d times", most, n)
		}
		half := len(lost) / 2 // many more than the clients with short leases
		for i := range opened[half:] {
			if d := opened[i+half].Sub(opened[i]); d < mostSpread/20 {
				t.Errorf("%d clients have come within %v", half, d)
				break
			}
		}
		time.Sleep(10 * time.Second)
		for i, l := range leases {
			if l.Err() != nil {
				t.Fatalf("lease %d: %v", i, l.Err())
			}
		}
		for _, c := range append(clients, without) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestWatchEndsWaiting checks that a client that is delaying its move to another member moves
// immediately when a watch starts.
func TestWatchEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			down: make(map[string]bool), frozen: make(map[string]bool),
			dead: make(map[string]bool), foreign: make(map[string]bool),
		}
		f.answer = f.obey
		s := &storm{fake: f}
		var lost []*Client
		for len(lost) < 20 {
			c := s.connect(t)
			defer c.Close()
			grant(t, c, Grant{TTL: 10 * time.Second})
			if isWith(c, "a") {
				lost = append(lost, c)
			}
		}
		s.kill("a")
		ctx, cancel := context.WithCancel(t.Context())
		for _, c := range lost {
			go c.Watch(ctx, store.Watch{Key: "k"}) //nolint:errcheck // it may have no answer
		}
		time.Sleep(longestStagger)
		synctest.Wait()
		for _, c := range lost {
			if c.mux.current() == nil {
				t.Error("a client has a watch, and waits still")
			}
		}
		cancel()
		synctest.Wait()
	})
}
