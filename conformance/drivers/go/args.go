package main

import (
	"fmt"
	"strconv"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// args holds the arguments of a request.
type args map[string]any

func (a args) has(key string) bool { return a[key] != nil }

func (a args) is(key string) bool { return a[key] == true }

func (a args) text(key string) string {
	switch v := a[key].(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatInt(int64(v), 10)
	default:
		return fmt.Sprint(v)
	}
}

func (a args) number(key string) int64 {
	text := a.text(key)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) ms(key string) time.Duration {
	return time.Duration(a.number(key)) * time.Millisecond
}

func (a args) list(key string) []args {
	list, _ := a[key].([]any)
	out := make([]args, len(list))
	for i, x := range list {
		out[i], _ = x.(map[string]any)
	}
	return out
}

func (a args) labels() map[string]string {
	m, _ := a["labels"].(map[string]any)
	if len(m) == 0 {
		return nil
	}
	out := map[string]string{}
	for k, v := range m {
		out[k] = fmt.Sprint(v)
	}
	return out
}

// keys returns the key range of a request.
func (a args) keys() store.KeyRange {
	if a.is("prefix") {
		return store.Prefix(a.text("key"))
	}
	return store.KeyRange{Key: a.text("key"), End: a.text("end")}
}

func (a args) put() store.Put {
	return store.Put{
		Key: a.text("key"), Value: []byte(a.text("value")), Lease: lease.ID(a.number("lease")),
		PrevKV: a.is("prev"), KeepValue: a.is("ignore_value"), KeepLease: a.is("ignore_lease"),
		TTL: a.ms("ttl_ms"),
	}
}

func (a args) delete() store.Delete {
	k := a.keys()
	return store.Delete{Key: k.Key, End: k.End, PrevKV: a.is("prev")}
}

func (a args) rangeOf() store.Range {
	k := a.keys()
	return store.Range{
		Key: k.Key, End: k.End, Limit: a.number("limit"), Revision: a.number("revision"),
		Serializable: a.is("serializable"), KeysOnly: a.is("keys_only"), CountOnly: a.is("count_only"),
	}
}

func (a args) grant() client.Grant {
	return client.Grant{
		TTL: a.ms("ttl_ms"), ID: lease.ID(a.number("id")), Name: a.text("name"),
		Owner: a.text("owner"), Labels: a.labels(), RequestID: a.text("request_id"),
		LockDelay: a.ms("lock_delay_ms"),
	}
}

func (a args) ref() leases.Ref {
	return leases.Ref{
		ID: lease.ID(a.number("lease")), Token: lease.Token(a.number("token")), Name: a.text("name"),
	}
}

// condition returns a condition of a transaction.
func (d *driver) condition(a args) store.Compare {
	is := map[string]store.Relation{
		"": store.Equal, "eq": store.Equal, "ne": store.NotEqual, "gt": store.Greater, "lt": store.Less,
	}[a.text("is")]
	key := store.Key(a.text("key"))
	switch {
	case a.has("held"):
		h, _ := d.thing(a.text("held")).(interface{ Condition() store.Compare })
		return h.Condition()
	case a.has("lease_alive"):
		c := store.LeaseAlive(lease.ID(a.number("lease_alive")))
		if is == store.NotEqual {
			return c.Not()
		}
		return c
	case a.has("name"):
		return store.NameHeld(a.text("name"), lease.Token(a.number("token")))
	case a.has("missing"):
		return args{"key": a["missing"], "prefix": a["prefix"]}.keys().Missing()
	case a.has("value"):
		return key.Value(is, []byte(a.text("value")))
	case a.has("version"):
		return key.Version(is, a.number("version"))
	case a.has("create"):
		return key.CreateRevision(is, a.number("create"))
	case a.has("mod"):
		return key.ModRevision(is, a.number("mod"))
	default:
		return key.Lease(is, lease.ID(a.number("lease")))
	}
}

// operation returns an operation of a transaction.
func (d *driver) operation(a args) store.Op {
	for kind, x := range a {
		of, _ := x.(map[string]any)
		a := args(of)
		switch kind {
		case "put":
			return a.put()
		case "delete":
			return a.delete()
		case "range":
			return a.rangeOf()
		case "grant":
			return a.grant()
		case "renew":
			return a.ref().Renew()
		case "revoke":
			return a.ref().Revoke()
		case "txn":
			return d.transaction(a)
		}
	}
	return store.DrawToken{}
}

func (d *driver) transaction(a args) store.Txn {
	var t store.Txn
	for _, c := range a.list("if") {
		t.If = append(t.If, d.condition(c))
	}
	for _, o := range a.list("then") {
		t.Then = append(t.Then, d.operation(o))
	}
	for _, o := range a.list("else") {
		t.Else = append(t.Else, d.operation(o))
	}
	return t
}
