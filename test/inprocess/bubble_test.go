package inprocess

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
)

// TestBubble checks that three members serve both kinds of clients in virtual time and keep their
// data across a restart. It also checks that two successive bubbles do not interfere with each
// other.
func TestBubble(t *testing.T) {
	for range 2 {
		Bubble(t, func(t *testing.T) {
			members := Run(t, 3)
			c := Connect(t, client.Config{}, members[0].Line().Endpoint())
			e := Etcd(t, Endpoints(members)...)
			began := time.Now()
			l, err := c.Grant(t.Context(), client.Grant{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for key, id := range map[string]*client.Lease{"stays": nil, "expires": l} {
				put := store.Put{Key: key}
				if id != nil {
					put.Lease = id.ID()
				}
				if _, err := c.Put(t.Context(), put); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range members {
				m.End()
			}
			for _, m := range members {
				m.Start()
			}
			for _, m := range members {
				m.Await()
			}
			l.Close()
			w := e.Watch(t.Context(), "expires")
			for r, err := e.Get(t.Context(), "expires"); err != nil || r.Count > 0; {
				<-w
				r, err = e.Get(t.Context(), "expires")
			}
			if d := time.Since(began); d < time.Minute {
				t.Errorf("the lease expired after %v", d)
			}
			if r, err := e.Get(t.Context(), "stays"); err != nil || r.Count != 1 {
				t.Errorf("after the restart: %v, %v", r, err)
			}
		})
	}
}
