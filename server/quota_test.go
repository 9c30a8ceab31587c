package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// fillers returns the ways in which a client can use up the quota. Each function returns the i-th
// command, which uses a separate key or lease unless the name says otherwise.
func fillers(s fsm.Session) map[string]func(i int) fsm.Command {
	text := func(n int) string { return strings.Repeat("t", n) }
	grant := func(i int, t lease.Terms) *fsm.Grant {
		t.ID, t.TTL = lease.ID(i+10), 600_000
		return &fsm.Grant{Terms: t}
	}
	put := func(i int, value string) *fsm.Put {
		return &fsm.Put{Key: fmt.Sprintf("key/%d", i), Value: []byte(value)}
	}
	once := func(i int, c fsm.Command) fsm.Command {
		return &fsm.Once{Session: s, Number: uint64(i + 1), Command: c}
	}
	return map[string]func(i int) fsm.Command{
		"small keys":        func(i int) fsm.Command { return put(i, "") },
		"large values":      func(i int) fsm.Command { return put(i, text(100_000)) },
		"versions of a key": func(int) fsm.Command { return put(0, text(500)) },
		"long keys": func(i int) fsm.Command {
			return &fsm.Put{Key: put(i, "").Key + text(50_000)}
		},
		"keys on a lease": func(i int) fsm.Command {
			c := put(i, "")
			c.Lease = 1
			return c
		},
		"transactions": func(i int) fsm.Command {
			return &fsm.Txn{Then: []fsm.Op{
				{Txn: &fsm.Txn{Then: []fsm.Op{{Put: put(2*i, text(300))}}}},
				{Put: put(2*i+1, "")},
			}}
		},
		"keys with leases of their own": func(i int) fsm.Command {
			g, c := grant(i, lease.Terms{Bound: true}), put(i, "")
			c.Lease = g.Terms.ID
			return &fsm.Txn{Then: []fsm.Op{{Grant: g}, {Put: c}}}
		},
		"keys that stay": func(i int) fsm.Command {
			g, c := grant(i, lease.Terms{KeepKeys: true}), put(i, text(100+i%100))
			c.Lease = g.Terms.ID
			return &fsm.Txn{Then: []fsm.Op{{Grant: g}, {Put: c}}}
		},
		"leases": func(i int) fsm.Command { return grant(i, lease.Terms{}) },
		"names": func(i int) fsm.Command {
			return grant(i, lease.Terms{Name: fmt.Sprint(text(500), i), Owner: text(500)})
		},
		"labels": func(i int) fsm.Command {
			return grant(i, lease.Terms{Labels: map[string]string{"l": text(16_000), "m": ""}})
		},
		"holds of caches": func(i int) fsm.Command {
			g := grant(i, lease.Terms{Owner: fmt.Sprint(i)})
			g.Terms.TTL = 30_000 // the first lease must not expire before the last is granted
			for k := range 60 {
				g.Holds = append(g.Holds, keyrange.Range{Key: fmt.Sprint(text(100), i, k)})
			}
			return g
		},
		"made and deleted": func(i int) fsm.Command {
			if i%2 == 0 {
				return put(i/2, "")
			}
			return &fsm.DeleteRange{Key: put(i/2, "").Key}
		},
		"granted and revoked": func(i int) fsm.Command {
			g := grant(i/3, lease.Terms{Name: fmt.Sprint(i / 3)})
			switch i % 3 {
			case 0:
				return g
			case 1:
				return &fsm.Put{Key: fmt.Sprint(i), Value: []byte(text(1000)), Lease: g.Terms.ID}
			default:
				return &fsm.Revoke{ID: g.Terms.ID}
			}
		},
		"answers of sessions": func(i int) fsm.Command {
			c := put(0, text(4000))
			c.PrevKV = true
			return once(i, c)
		},
		"answers that are deletions": func(i int) fsm.Command {
			if i%8 == 0 {
				return once(i, put(i/8, text(1000)))
			}
			return once(i, &fsm.DeleteRange{Key: put(i/8, "").Key, PrevKV: true})
		},
	}
}

// TestQuotaInEveryWay checks that the state stays within the quota however a client fills it,
// except for the last tombstones and recorded responses. Growth is then rejected, but renewals and
// commands that free space still work. Once there is space, all commands work again.
func TestQuotaInEveryWay(t *testing.T) {
	for name := range fillers(fsm.Session{}) {
		t.Run(name, func(t *testing.T) {
			virtual.Test(t, func(t *testing.T) { testQuotaInAWay(t, name) })
		})
	}
}

func testQuotaInAWay(t *testing.T, name string) {
	const quota = 1 << 20
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = quota
	c.Compaction = Compaction{Mode: "periodic"} // never compacts; the test frees space itself
	r := run(t, c)
	do := func(c fsm.Command) (any, error) {
		res, err := r.node.Propose(t.Context(), c)
		return res.Value, errors.Join(err, res.Err)
	}
	must := func(c fsm.Command) any {
		t.Helper()
		v, err := do(c)
		if err != nil {
			t.Fatalf("%#v: %v", c, err)
		}
		return v
	}
	must(&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 600_000}})
	must(&fsm.Grant{Terms: lease.Terms{ID: 2, TTL: 600_000, Name: "n"}})
	must(&fsm.Put{Key: "mine", Lease: 2})
	session := must(&fsm.OpenSession{Nonce: 7}).(fsm.Session)
	fill := fillers(session)[name]
	n := 0
	var err error
	for ; err == nil && n < 40_000; n++ {
		_, err = do(fill(n))
	}
	if !errors.Is(err, fsm.ErrNoSpace) {
		t.Fatalf("after %d commands: %v", n, err)
	}
	size := r.node.View().Bytes
	if sum := size.Sum(); sum < quota-quota/8 || sum > quota+quota/64 {
		t.Errorf("the state takes %+v with a quota of %d", size, quota)
	}
	if st := r.node.Status(); st.DBSizeInUse != size.Sum() || st.Quota != quota {
		t.Errorf("the status says %d of %d, the state takes %d", st.DBSizeInUse, st.Quota, size.Sum())
	}
	if a, err := r.client.AlarmList(t.Context()); err != nil || len(a.Alarms) != 1 {
		t.Errorf("alarms %v, %v", a, err)
	}
	if _, err := r.client.Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a put: %v", err)
	}
	if _, err := r.client.KeepAliveOnce(t.Context(), 1); err != nil {
		t.Error(err)
	}
	must(&fsm.ChangeTTL{ID: 1, Token: 1, TTL: 500_000})
	second := must(&fsm.OpenSession{Nonce: 8}).(fsm.Session)
	must(&fsm.Once{Session: second, Number: 1, Command: &fsm.Txn{
		Compare: []fsm.Compare{{Key: "mine", Target: fsm.TargetVersion, Number: 1}},
		Then:    []fsm.Op{{Delete: &fsm.DeleteRange{Key: "mine"}}},
	}})
	must(&fsm.Once{Session: second, Number: 2, Command: &fsm.Revoke{Name: "n"}})

	must(&fsm.Once{
		Session: second, Number: 3, Command: &fsm.DeleteRange{Key: "\x00", End: "\x00"},
	})
	var ids []lease.ID
	if err := r.node.Inspect(t.Context(), func(l *lease.Lessor) {
		for info := range l.Leases() {
			ids = append(ids, info.ID)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		must(&fsm.Revoke{ID: id})
	}
	if _, err := r.client.Compact(t.Context(), r.node.View().KV.Revision()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a put goes through", func() bool {
		_, err := r.client.Put(t.Context(), "k", "v", clientv3.WithPrevKV())
		return err == nil
	})
	if a, err := r.client.AlarmList(t.Context()); err != nil || len(a.Alarms) != 0 {
		t.Errorf("alarms %v, %v", a, err)
	}
	if _, err := r.client.Compact(t.Context(), r.node.View().KV.Revision()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what caches held is let go", func() bool {
		return r.node.View().Bytes.Sum() < quota/8
	})
}

// answered receives the outcome of a submission.
type answered chan error

// Answered implements native.Answered.
func (a answered) Answered(r fsm.Result, err error) { a <- errors.Join(err, r.Err) }

// TestQuotaOverStreams checks that requests over streams are also rejected at the quota, and raise
// the alarm.
func TestQuotaOverStreams(t *testing.T) { virtual.Test(t, testQuotaOverStreams) }

func testQuotaOverStreams(t *testing.T) {
	const quota, puts = 1 << 20, 300
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = quota
	c.Compaction = Compaction{Mode: "periodic"} // never compacts
	r := run(t, c)
	to := make(answered, puts)
	var list []native.Submission
	for i := range puts {
		put := &fsm.Put{Key: fmt.Sprint(i), Value: make([]byte, 5000)}
		list = append(list, native.Submission{Command: put, To: to})
	}
	r.node.Submit(list)
	refused := 0
	for range puts {
		if err := <-to; errors.Is(err, fsm.ErrNoSpace) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if sum := r.node.View().Bytes.Sum(); refused < 50 || sum > quota {
		t.Errorf("%d of %d puts were refused; the state takes %d bytes", refused, puts, sum)
	}
	eventually(t, "the alarm is raised", r.node.full)
	r.node.Submit(list[:1])
	if err := <-to; !errors.Is(err, fsm.ErrNoSpace) {
		t.Errorf("with the alarm: %v", err)
	}
}

// TestSmallestQuotaCounts checks that the smallest quota of all members applies, and that a member
// can restart with a different quota.
func TestSmallestQuotaCounts(t *testing.T) { virtual.Test(t, testSmallestQuotaCounts) }

func testSmallestQuotaCounts(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = 1 << 20
	r := run(t, c)
	set := func(m fsm.Command) {
		t.Helper()
		if res, err := r.node.Propose(t.Context(), m); errors.Join(err, res.Err) != nil {
			t.Fatal(err, res.Err)
		}
	}
	other := fsm.Member{ID: 7, PeerURLs: []string{"http://other"}, Learner: true, Quota: 300_000}
	set(&fsm.AddMember{Member: other})
	if q := r.node.Status().Quota; q != 300_000 {
		t.Errorf("the quota is %d", q)
	}
	if _, err := r.client.Put(t.Context(), "k", string(make([]byte, 300_000))); err == nil {
		t.Error("a put beyond the smaller quota was done")
	}
	set(&fsm.RemoveMember{ID: 7})
	r.put(t, "k", string(make([]byte, 300_000)))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c.Limits.QuotaBackendBytes = -1
	r = run(t, c)
	if q := r.node.Status().Quota; q != 0 {
		t.Errorf("without a quota it is %d", q)
	}
}

// TestRoomAfterDelete checks that, with the alarm raised, writes work again within a second of a
// delete that frees space, even if an earlier compaction freed little.
func TestRoomAfterDelete(t *testing.T) { virtual.Test(t, testRoomAfterDelete) }

func testRoomAfterDelete(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = 1 << 20
	r := run(t, c)
	value := string(make([]byte, 5000))
	for i := 0; ; i++ {
		if _, err := r.client.Put(t.Context(), fmt.Sprintf("k%03d", i), value); err != nil {
			break
		}
	}
	eventually(t, "the alarm is raised", r.node.full)
	backoff.Sleep(t.Context(), time.Minute)
	if _, err := r.client.Delete(t.Context(), "k0", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	backoff.Sleep(t.Context(), time.Second)
	r.put(t, "k", value)
}

// TestOneAlarmIsEnough checks that while another member's alarm prevents growth, this member does
// not raise its own alarm. A second alarm would have to be cleared as well.
func TestOneAlarmIsEnough(t *testing.T) { virtual.Test(t, testOneAlarmIsEnough) }

func testOneAlarmIsEnough(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = 1 << 20
	r := run(t, c)
	r.put(t, "k", string(make([]byte, 1<<20-64<<10))) // leave little space
	other := fsm.Member{ID: 7, PeerURLs: []string{"http://other"}, Learner: true}
	alarm := fsm.Alarm{Member: other.ID, Kind: fsm.NoSpace}
	for _, m := range []fsm.Command{&fsm.AddMember{Member: other}, &fsm.SetAlarm{Alarm: alarm}} {
		if res, err := r.node.Propose(t.Context(), m); errors.Join(err, res.Err) != nil {
			t.Fatal(err, res.Err)
		}
	}
	txn := clientv3.OpPut("l", string(make([]byte, 128<<10)))
	if _, err := r.client.Txn(t.Context()).Then(txn).Commit(); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a put in a transaction: %v", err)
	}
	if got := r.node.View().Alarms; !slices.Equal(got, []fsm.Alarm{alarm}) {
		t.Errorf("alarms %v, want %v", got, alarm)
	}
}
