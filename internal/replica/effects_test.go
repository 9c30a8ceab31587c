package replica

import (
	"fmt"
	"reflect"
	"testing"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestEffects checks that the possible effects of a command include the effects of every branch,
// and of every lease that a repeated grant can name.
func TestEffects(t *testing.T) {
	m := lead(t)
	named := lease.Terms{ID: 5, TTL: 5000, Name: "n", RequestID: "r"}
	m.do(&fsm.Grant{Terms: named})
	info, _ := m.m.Lessor().Lookup(5)
	m.do(&fsm.Grant{Terms: lease.Terms{ID: 6, TTL: 5000, LockDelay: 1000}})
	key := func(keys ...string) (out []keyrange.Range) {
		for _, k := range keys {
			out = append(out, keyrange.Range{Key: k})
		}
		return out
	}
	ids := func(list ...lease.ID) []lease.ID { return list }
	op := func(key string, id lease.ID) fsm.Op { return fsm.Op{Put: &fsm.Put{Key: key, Lease: id}} }
	repeated := named
	repeated.ID = 7
	txn := func(ops ...fsm.Op) *fsm.Txn {
		return &fsm.Txn{Then: append([]fsm.Op{{Grant: &fsm.Grant{Terms: repeated}}}, ops...)}
	}
	granting := func(request, name string, o fsm.Op) *fsm.Txn {
		terms := lease.Terms{ID: 7, TTL: 5000, Name: name, RequestID: request}
		return &fsm.Txn{Then: []fsm.Op{{Grant: &fsm.Grant{Terms: terms}}, o}}
	}
	last := m.m.Lessor().LastToken()
	type write = directory.Write
	for _, c := range []struct {
		what string
		do   fsm.Command
		want write
	}{
		{"put", &fsm.Put{Key: "a"}, write{Touches: key("a")}},
		{"attach", &fsm.Put{Key: "a", Lease: 6}, write{Touches: key("a"), Attaches: ids(6)}},
		{"once", &fsm.Once{Command: &fsm.Put{Key: "a"}}, write{Touches: key("a")}},
		{"delete", &fsm.DeleteRange{Key: "a", End: "b"}, write{
			Touches: []keyrange.Range{{Key: "a", End: "b"}},
		}},
		{"transaction", &fsm.Txn{
			Then: []fsm.Op{op("a", 0), {Delete: &fsm.DeleteRange{Key: "b"}}},
			Else: []fsm.Op{{Txn: &fsm.Txn{Then: []fsm.Op{op("c", 0)}, Else: []fsm.Op{op("d", 6)}}}},
		}, write{Touches: key("a", "b", "c", "d"), Attaches: ids(6)}},
		{"revoke", &fsm.Revoke{ID: 5}, write{Ends: ids(5)}},
		{"revoke under the token", &fsm.Revoke{ID: 5, Token: info.Token}, write{
			Ends: ids(5),
		}},
		{"revoke in a transaction", &fsm.Txn{Else: []fsm.Op{{Revoke: &fsm.Revoke{ID: 5}}}}, write{
			Ends: ids(5),
		}},
		{"hand over", &fsm.HandOver{ID: 5, Token: info.Token}, write{}},
		{"resume", &fsm.Resume{ID: 5}, write{}},
		{"change of the TTL", &fsm.ChangeTTL{ID: 5}, write{Renews: ids(5)}},
		{"renewal", &fsm.Txn{Then: []fsm.Op{{Touch: &fsm.Touch{ID: 5}}}}, write{Renews: ids(5)}},
		{"expiry", &fsm.Expire{Leases: []lease.Due{{ID: 5}, {ID: 6}}}, write{
			Ends: ids(5), Urgent: true, // the keys of lease 6 are deleted after its lock delay
		}},
		{"put by name", &fsm.Put{Key: "a", LeaseName: "n"}, write{
			Touches: key("a"), AttachesAny: true,
		}},
		{"put by both", &fsm.Put{Key: "a", Lease: 6, LeaseName: "n"}, write{
			Touches: key("a"), Attaches: ids(6),
		}},
		{"revoke by name", &fsm.Revoke{Name: "n"}, write{
			Touches: []keyrange.Range{keyrange.All}, Ends: ids(5),
		}},
		{"revoke by name under the token", &fsm.Revoke{Name: "n", Token: info.Token}, write{
			Ends: ids(5),
		}},
		{"revoke by name under a token to come", &fsm.Revoke{Name: "n", Token: 99}, write{
			Touches: []keyrange.Range{keyrange.All}, Ends: ids(5),
		}},
		{"permission removed", &fsm.By{Command: &fsm.RoleRevoke{Role: "r", Key: "k"}}, write{
			Touches: []keyrange.Range{keyrange.All},
		}},
		{"permission granted", &fsm.By{Command: &fsm.UserGrantRole{User: "u", Role: "r"}}, write{}},
		{"revoke of nothing", &fsm.Revoke{}, write{Ends: ids(0)}},
		{"hand over by name", &fsm.HandOver{Name: "n", Token: info.Token}, write{}},
		{"resume by name", &fsm.Resume{Name: "n"}, write{}},
		{"change of the TTL by name", &fsm.ChangeTTL{Name: "n"}, write{Renews: ids(5)}},
		{"renewal by name", &fsm.Txn{Then: []fsm.Op{{Touch: &fsm.Touch{Name: "n"}}}}, write{
			Renews: ids(5),
		}},
		{"grant", &fsm.Grant{Terms: repeated}, write{}},
		{"granted before, put", txn(op("a", 7)), write{
			Touches: key("a"), Attaches: ids(7), AttachesAny: true,
		}},
		{"granted before, revoked", txn(fsm.Op{Revoke: &fsm.Revoke{ID: 7}}), write{
			Touches: []keyrange.Range{keyrange.All}, Ends: ids(7, 5),
		}},
		{"granted before, renewed", txn(fsm.Op{Touch: &fsm.Touch{ID: 7}}), write{Renews: ids(7, 5)}},
		{"revoke by both", &fsm.Revoke{ID: 6, Name: "n"}, write{Ends: ids(6)}},
		{"revoke by name under the last token", &fsm.Revoke{Name: "n", Token: last}, write{
			Ends: ids(5),
		}},
		{"read", &fsm.Txn{Then: []fsm.Op{{Range: &fsm.Range{Key: "a"}}}}, write{}},
		{"put by name, and another", &fsm.Txn{Then: []fsm.Op{
			{Put: &fsm.Put{Key: "a", LeaseName: "n"}}, op("b", 0),
		}}, write{Touches: key("a", "b"), AttachesAny: true}},
		{"granted now, put", granting("", "n", op("a", 7)), write{
			Touches: key("a"), Attaches: ids(7),
		}},
		{"granted before without a name, put", granting("r", "", op("a", 7)), write{
			Touches: key("a"), Attaches: ids(7),
		}},
		{
			"granted before under a free name, revoked",
			granting("r", "free", fsm.Op{Revoke: &fsm.Revoke{ID: 7}}),
			write{
				Touches: []keyrange.Range{keyrange.All}, Ends: ids(7),
			},
		},
		{
			"granted before under a free name, renewed",
			granting("r", "free", fsm.Op{Touch: &fsm.Touch{ID: 7}}),
			write{Renews: ids(7)},
		},
		{"one of two granted before, put", txn(fsm.Op{Grant: &fsm.Grant{
			Terms: lease.Terms{ID: 8, TTL: 5000, Name: "m", RequestID: "q"},
		}}, op("a", 7)), write{Touches: key("a"), Attaches: ids(7), AttachesAny: true}},
		{"a lease other than that", txn(op("a", 6)), write{Touches: key("a"), Attaches: ids(6)}},
	} {
		got := writeOf(m.r.lessor, c.do)
		if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, *got, c.want)
		}
	}
	m.pass(5500)
	if info, _ := m.m.Lessor().Lookup(6); !info.Delayed {
		t.Fatalf("no lock delay is running: %+v", info)
	}
	if got := taking(m.r.lessor, []lease.Due{{ID: 6}}); len(got) != 1 {
		t.Errorf("deletes the keys of %v after the lock delay", got)
	}
	if !reflect.DeepEqual(writeOf(m.r.lessor, &fsm.Compact{}), &write{}) {
		t.Error("a compaction has effects")
	}
}
