package lock_test

import (
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/server"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestT27TokensAfterRestore checks that a session survives a restore from a backup made earlier,
// and that tokens (L5) and revisions (T34) continue to increase.
func TestT27TokensAfterRestore(t *testing.T) {
	ctx := rig.Soon(t)
	old := inprocess.Config(inprocess.Dir(t), "m")
	restored := inprocess.Config(inprocess.Dir(t), "m")
	member := inprocess.Start(t, old)
	member.Await()
	c := inprocess.Connect(t, client.Config{}, member.Endpoint(),
		"unix:"+restored.URLs.ListenClient[0].Path)
	m := lock.NewMutex(session(t, c), "restored")
	cycle := func() *lock.Held {
		t.Helper()
		held := rig.Must[*lock.Held](t)(m.Lock(ctx))
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		return held
	}
	cycle()
	backup, err := inprocess.Etcd(t, member.Endpoint()).Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Restore(backup, restored, server.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := backup.Close(); err != nil {
		t.Fatal(err)
	}
	var before *lock.Held
	for range 5 {
		before = cycle()
	}
	member.End()
	inprocess.Start(t, restored).Await()
	after := cycle()
	if after.Revision() <= before.Revision() || after.Token() <= before.Token() {
		t.Errorf("token %d, revision %d after %d, %d",
			after.Token(), after.Revision(), before.Token(), before.Revision())
	}
}

// TestT19AfterTheEnd checks that nothing counts as held once a call that ends a lease has returned,
// and that the error contains a reason.
func TestT19AfterTheEnd(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := rig.Soon(t)
		c := members.connect(t)
		for name, end := range map[string]func(*client.Lease) error{
			"revoke": func(l *client.Lease) error { return l.Revoke(ctx) },
			"close":  func(l *client.Lease) error { l.Close(); return nil },
		} {
			s := session(t, c)
			held := rig.Must[*lock.Held](t)(lock.NewMutex(s, "t19/"+name).Lock(ctx))
			lead := rig.Must[*lock.Leading](t)(
				lock.NewElection(c, "t19/"+name+"/e").Campaign(ctx, s, lock.Candidate{}))
			if err := end(s.Lease()); err != nil {
				t.Fatal(err)
			}
			if held.Err() == nil || lead.Err() == nil ||
				held.Context().Err() == nil || lead.Context().Err() == nil {
				t.Errorf("after %s: %v, %v", name, held.Err(), lead.Err())
			}
			if h, err := lock.NewMutex(s, "t19/other").TryLock(ctx); err == nil {
				t.Errorf("lock after %s: %v", name, h.Token())
			}
		}
	})
}
