package members_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

func describes(r *pb.Request) bool { return r.GetDescribe() != nil }

// TestRefused checks that a call returns an error and stops if the cluster refuses a request, and
// that Register leaves no keys behind.
func TestRefused(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		for name, x := range map[string]struct {
			match func(*pb.Request) bool
			call  func(t *testing.T, g *members.Group) error
		}{
			"register": {rig.Txns, func(_ *testing.T, g *members.Group) error {
				_, err := join(ctx, g, registration{ID: "a"})
				return err
			}},
			"register after waiting": {rig.Watches, func(t *testing.T, g *members.Group) error {
				register(t, g, registration{ID: "b", TTL: time.Minute})
				_, err := join(ctx, g, registration{ID: "b", Wait: true})
				return err
			}},
			"release": {func(r *pb.Request) bool {
				return len(r.GetTxn().GetSuccess()) > 0 && r.GetTxn().Success[0].GetDeleteRange() != nil
			}, func(t *testing.T, g *members.Group) error {
				return register(t, g, registration{ID: "c", TTL: time.Minute}).Release(ctx)
			}},
			"list": {rig.Reads, func(_ *testing.T, g *members.Group) error {
				list, revision, err := g.List(ctx)
				if list != nil || revision != 0 {
					t.Errorf("List returned %v with an error", list)
				}
				return err
			}},
			"list of a watch": {rig.Reads, func(_ *testing.T, g *members.Group) error {
				_, err := g.Watch(ctx)
				return err
			}},
			"watch": {rig.Watches, func(_ *testing.T, g *members.Group) error {
				_, err := g.Watch(ctx)
				return err
			}},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				c := rig.Through(t, r.Members[0], x.match, rig.Refused)
				err := x.call(t, members.New(c, name))
				if !errors.Is(err, client.ErrPermissionDenied) {
					t.Error(err)
				}
			})
		}
	})
}

// TestHolderUnknown checks that ErrExists is returned even if the owner of the other lease cannot
// be determined.
func TestHolderUnknown(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		lease := rig.Must[*client.Lease](t)(direct.Grant(ctx, client.Grant{TTL: time.Minute}))
		register(t, members.New(direct, "g"), registration{ID: "a", TTL: time.Minute})
		register(t, members.New(direct, "g"), registration{ID: "b", Lease: lease})
		through := rig.Through(t, r.Members[0], describes, rig.Refused)
		for id, c := range map[string]*client.Client{"a": through, "b": direct} {
			_, err := join(ctx, members.New(c, "g"), registration{ID: id})
			if !errors.Is(err, members.ErrExists) || strings.Contains(err.Error(), "owner") {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// TestRegisterPauses checks a registration that finds its ID alternately taken and free. It retries
// with pauses, and returns the context's error when the context ends.
func TestRegisterPauses(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		gone := func() *pb.Response {
			return &pb.Response{Body: &pb.Response_Txn{Txn: &pb.TxnResponse{
				Responses: []*pb.OpResponse{{
					Response: &pb.OpResponse_ReadRange{ReadRange: &pb.RangeResponse{}},
				}},
			}}}
		}
		ctx, cancel := context.WithCancel(rig.Soon(t))
		defer cancel()
		c := rig.Through(t, r.Members[0], rig.Txns, func(n int) *pb.Response {
			if n > 3 {
				return nil
			}
			return gone()
		})
		register(t, members.New(c, "g"), registration{ID: "a", TTL: time.Minute})
		var began time.Time
		c = rig.Through(t, r.Members[0], rig.Txns, func(n int) *pb.Response {
			switch n {
			case 1:
				began = time.Now()
			case 8: // by now, the pauses are at least a quarter of a second in total
				if d := time.Since(began); d < 300*time.Millisecond {
					t.Errorf("8 attempts within %v", d)
				}
				time.AfterFunc(10*time.Millisecond, cancel)
			}
			return gone()
		})
		_, err := join(ctx, members.New(c, "g"), registration{ID: "b"})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestRegisterUnsure checks that a registration with an unknown outcome is performed once, or fails
// with ErrExists. It succeeds if the first attempt was applied and fails if another member came
// first. In both cases, the cluster has dropped the client's session.
func TestRegisterUnsure(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for name, done := range map[string]bool{"done": true, "another": false} {
			var l *client.Lease
			c := rig.Through(t, r.Members[0], rig.Txns, rig.Unsure(func() {
				if !done {
					register(t, members.New(direct, name), registration{ID: "a", TTL: time.Minute})
					return
				}
				_, err := direct.Put(ctx, store.Put{
					Key: name + "/a", Value: []byte("1"), Lease: l.ID(),
				})
				if err != nil {
					t.Error(err)
				}
			}))
			l = rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
			m, err := join(ctx, members.New(c, name), registration{
				ID: "a", Metadata: []byte("1"), Lease: l,
			})
			if !done {
				if !errors.Is(err, members.ErrExists) || !errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if err == nil {
				err = m.Update(ctx, []byte("2"))
			}
			if kvs := rig.Keys(t, direct, name+"/", 1); string(kvs[0].Value) != "2" {
				t.Errorf("%s: metadata is %q, want 2", name, kvs[0].Value)
			}
			if err == nil {
				err = m.Release(ctx)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			rig.Keys(t, direct, name+"/", 0)
			// A late attempt cannot register the member again, because of the guard.
			if guard := rig.Keys(t, direct, name+"!left/", 1)[0]; guard.Lease != l.ID() {
				t.Errorf("%s: the guard is attached to lease %x", name, guard.Lease)
			}
		}
	})
}

// TestRegisterFails checks the error if a registration fails after an attempt with an unknown
// outcome. The error reports the unknown outcome, and no key is left behind while the session
// continues.
func TestRegisterFails(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		var s *client.Session
		unsure := rig.Unsure(func() {
			put := store.Put{Key: "g/a", Lease: s.Lease().ID()}
			if _, err := direct.Put(ctx, put); err != nil {
				t.Error(err)
			}
		})
		c := rig.Through(t, r.Members[0], rig.Txns, func(n int) *pb.Response {
			if n == 3 {
				return rig.Refused(n)
			}
			return unsure(n)
		})
		s = rig.Must[*client.Session](t)(c.Open(ctx, client.Grant{TTL: time.Minute}))
		_, err := members.New(c, "g").Register(ctx, s, "a", nil)
		if !errors.Is(err, client.ErrPermissionDenied) || !errors.Is(err, client.ErrUnknownOutcome) {
			t.Error(err)
		}
		rig.Keys(t, direct, "g/", 0)
		rig.Keys(t, direct, "g!left/", 1)
		if s.Err() != nil {
			t.Error(s.Err())
		}
	})
}

// TestUpdateAfterRelease checks that each update is a single request, and that no update is sent
// after Release, even if Release failed.
func TestUpdateAfterRelease(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		var sent atomic.Int32
		c := rig.Through(t, r.Members[0], rig.Txns, func(n int) *pb.Response {
			if sent.Store(int32(n)); n == 4 {
				return rig.Refused(n)
			}
			return nil
		})
		m := register(t, members.New(c, "g"), registration{ID: "a", TTL: time.Minute})
		for _, value := range []string{"1", "2"} {
			if err := m.Update(ctx, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Release(ctx); !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("release: %v", err)
		}
		if err := m.Update(ctx, []byte("3")); !errors.Is(err, client.ErrReleased) {
			t.Errorf("update after release: %v", err)
		}
		if n := sent.Load(); n != 4 {
			t.Errorf("%d requests were sent, want 4", n)
		}
	})
}

// TestReleaseDuringUpdate checks that Release ends the membership immediately, even while an update
// is in flight.
func TestReleaseDuringUpdate(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx := rig.Soon(t)
		under, answer := make(chan struct{}), make(chan struct{})
		c := rig.Through(t, r.Members[0], rig.Txns, func(n int) *pb.Response {
			if n == 2 {
				close(under)
			}
			if n >= 2 { // including retries on another connection
				<-answer
			}
			return nil
		})
		m := register(t, members.New(c, "g"), registration{ID: "a", TTL: time.Minute})
		updated := rig.Async(func() (any, error) { return nil, m.Update(ctx, nil) })
		<-under
		released := rig.Async(func() (any, error) { return nil, m.Release(ctx) })
		select {
		case <-m.Context().Done():
		case <-time.After(20 * time.Second):
			t.Error("Release waited for the update")
		}
		close(answer)
		if a := <-updated; a.Err != nil {
			t.Error(a.Err)
		}
		if a := <-released; a.Err != nil {
			t.Error(a.Err)
		}
	})
}

// TestMembershipEnds checks that a membership ends for the program with Release or with its lease.
// Its context has the cause, whether or not the context was requested before.
func TestMembershipEnds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		g := members.New(c, "g")
		shared := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
		for _, lease := range []*client.Lease{nil, shared} {
			for _, early := range []bool{false, true} {
				m := register(t, g, registration{ID: "a", Lease: lease})
				off := m.ValidUntil().Sub(m.Lease().ValidUntil()).Abs()
				if m.ID() != "a" || m.Err() != nil || off > time.Minute ||
					m.Token() != m.Lease().Token() {
					t.Errorf("%s: %v, until %v", m.ID(), m.Err(), m.ValidUntil())
				}
				if lease == nil && m.Lease().Info().TTL != 10*time.Second {
					t.Errorf("TTL is %v, want 10s", m.Lease().Info().TTL)
				}
				if early && (m.Context().Err() != nil || m.Context() != m.Context()) {
					t.Error("the context has ended, or changes between calls")
				}
				if err := m.Release(ctx); err != nil {
					t.Fatal(err)
				}
				if cause := context.Cause(m.Context()); !errors.Is(cause, client.ErrReleased) ||
					m.Context().Err() == nil {
					t.Errorf("after release, the context's cause is %v", cause)
				}
				if !errors.Is(m.Err(), client.ErrReleased) || !m.ValidUntil().IsZero() {
					t.Errorf("after release: %v, valid until %v", m.Err(), m.ValidUntil())
				}
				if err := m.Release(ctx); err != nil {
					t.Errorf("second release: %v", err)
				}
			}
		}
		rig.Keys(t, c, "g!left/", 0)
		if shared.Err() != nil {
			t.Errorf("the shared lease ended: %v", shared.Err())
		}
		m := register(t, g, registration{ID: "a", TTL: time.Minute})
		if ttl := m.Lease().Info().TTL; ttl != time.Minute {
			t.Errorf("TTL is %v, want 1m", ttl)
		}
		m.Lease().Close()
		<-m.Context().Done()
		cause := context.Cause(m.Context())
		if !errors.Is(cause, client.ErrClosed) || !errors.Is(m.Err(), client.ErrClosed) {
			t.Errorf("after close: %v, %v", cause, m.Err())
		}
	})
}

// TestKeyChanged checks that changes that other clients make to a member's key are reported and not
// undone.
func TestKeyChanged(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		put := func(t *testing.T, key, value string, m *members.Membership) {
			if _, err := c.Put(ctx, store.Put{
				Key: key, Value: []byte(value), Lease: m.Lease().ID(),
			}); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(t *testing.T, key string) {
			if _, err := c.Delete(ctx, store.Delete{Key: key}); err != nil {
				t.Fatal(err)
			}
		}
		for name, x := range map[string]struct {
			change func(t *testing.T, key string, m *members.Membership)
			fails  bool
			left   []string // values left after Update and Release
		}{
			"deleted": {func(t *testing.T, key string, _ *members.Membership) {
				remove(t, key)
			}, true, nil},
			"recreated": {func(t *testing.T, key string, m *members.Membership) {
				remove(t, key)
				put(t, key, "again", m)
			}, true, []string{"again"}},
			"taken over": {func(t *testing.T, key string, _ *members.Membership) {
				if _, err := c.Put(ctx, store.Put{Key: key, Value: []byte("mine")}); err != nil {
					t.Fatal(err)
				}
			}, true, []string{"mine"}},
			"changed": {func(t *testing.T, key string, m *members.Membership) {
				put(t, key, "other", m)
			}, false, nil},
			"already as updated": {func(t *testing.T, key string, m *members.Membership) {
				put(t, key, "new", m)
			}, false, nil},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				// Keep the lease alive, so that no key is deleted with it.
				l := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute}))
				m := register(t, members.New(c, name), registration{ID: "a", Lease: l})
				key := name + "/a"
				x.change(t, key, m)
				before := rig.Must[store.RangeResult](t)(c.Range(ctx, store.Prefix(key).Range())).KVs
				err := m.Update(ctx, []byte("new"))
				if x.fails != errors.Is(err, client.ErrLost) || !x.fails && err != nil {
					t.Errorf("update: %v", err)
				}
				after := rig.Must[store.RangeResult](t)(c.Range(ctx, store.Prefix(key).Range())).KVs
				if !x.fails && string(after[0].Value) != "new" {
					t.Errorf("metadata is %q, want new", after[0].Value)
				}
				if name == "already as updated" && after[0].ModRevision != before[0].ModRevision {
					t.Error("the same metadata was written again")
				}
				if err := m.Update(ctx, []byte("newer")); (err != nil) != x.fails {
					t.Errorf("second update: %v", err)
				}
				if err := m.Release(ctx); err != nil {
					t.Error(err)
				}
				var left []string
				for _, kv := range rig.Must[store.RangeResult](t)(
					c.Range(ctx, store.Prefix(key).Range())).KVs {
					left = append(left, string(kv.Value))
				}
				if !slices.Equal(left, x.left) {
					t.Errorf("values left: %q, want %q", left, x.left)
				}
			})
		}
	})
}
