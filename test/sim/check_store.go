package sim

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// compare compares the state machine's result for one command with the model's result.
func (f *facts) compare(e *Entry, c fsm.Command, got *fsm.Result, want *modelResult) {
	switch c.(type) {
	case *fsm.AddMember, *fsm.RemoveMember, *fsm.PromoteMember, *fsm.SetMember, *fsm.SetVersion:
		return // the model does not track members or versions
	}
	if why := differs(got, want); why != "" {
		id := idOf(c)
		if denial(got.Err) || denial(want.err) {
			id = "A1"
		}
		f.violate(e.At, id, "entry %d (term %d): %s: %s", e.Index, e.Term, show(c), why)
	}
}

// idOf returns the ID of the first invariant that a wrong outcome of the command breaks.
func idOf(c fsm.Command) string {
	switch c.(type) {
	case *fsm.Expire:
		return "L6"
	case *fsm.Grant, *fsm.HandOver, *fsm.Resume:
		return "L5"
	default:
		return "S1"
	}
}

// differs describes how a result differs from the model's result.
func differs(got *fsm.Result, want *modelResult) string {
	if (got.Err == nil) != (want.err == nil) {
		return fmt.Sprintf("the result is error %v, not %v", got.Err, want.err)
	}
	if got.Revision != want.revision {
		return fmt.Sprintf("the revision is %d, not %d", got.Revision, want.revision)
	}
	if got.Repeated != want.repeated {
		return fmt.Sprintf("it is a repetition: %t, not %t", got.Repeated, want.repeated)
	}
	if want.err != nil {
		if !sameError(got.Err, want.err) {
			return fmt.Sprintf("the error is %v, not %v", got.Err, want.err)
		}
		return ""
	}
	if !want.txn.fits(got.Value) {
		return fmt.Sprintf("the result, %T, is not that of what was asked", got.Value)
	}
	switch v := got.Value.(type) {
	case *lease.Info, *fsm.Existing:
		return differsLease(v, want.lease)
	case *fsm.PutResult:
		if v.Prev != nil && !samePair(v.Prev, want.txn.prev[0]) {
			return fmt.Sprintf("the replaced pair is %v, not %v", v.Prev, want.txn.prev[0])
		}
	case *fsm.DeleteResult:
		if v.Deleted != want.txn.deleted[0] {
			return fmt.Sprintf("%d keys were deleted, not %d", v.Deleted, want.txn.deleted[0])
		}
	case *fsm.TxnResult:
		return differsTxn(v, want.txn)
	}
	return ""
}

// fits reports whether a transaction's result has as many parts of each kind as the model's result.
// It returns true for results of other commands.
func (m *modelTxn) fits(result any) bool {
	ranges, deletes, puts, leases, tokens := 0, 0, 0, 0, 0
	var count func(v any)
	count = func(v any) {
		switch v := v.(type) {
		case *mvcc.RangeResult:
			ranges++
		case *fsm.DeleteResult:
			deletes++
		case *fsm.PutResult:
			puts++
		case *lease.Info, *fsm.Existing:
			leases++
		case lease.Token:
			tokens++
		case *fsm.TxnResult:
			for _, r := range v.Responses {
				count(r)
			}
		}
	}
	switch result.(type) {
	case *fsm.PutResult, *fsm.DeleteResult, *fsm.TxnResult:
		count(result)
	default:
		return true
	}
	return m != nil && ranges == len(m.ranges) && deletes == len(m.deleted) &&
		puts == len(m.prev) && leases == len(m.leases) && tokens == len(m.tokens)
}

// differsLease compares a returned lease with the model's.
func differsLease(result any, want *modelLease) string {
	got, existed := fsm.GrantResult(result)
	if want == nil || existed != want.existed || got.Token != want.token ||
		got.Delayed != want.delayed || !sameTerms(got.Terms, want.Terms) {
		return fmt.Sprintf("the lease is %+v, existed %t, the model says %+v", *got, existed, want)
	}
	return ""
}

// sameTerms reports whether all terms of two leases are equal.
func sameTerms(a, b lease.Terms) bool {
	labels := maps.Equal(a.Labels, b.Labels)
	a.Labels, b.Labels = nil, nil // nil and an empty map are the same
	return labels && reflect.DeepEqual(a, b)
}

func sameError(a, b error) bool {
	var an, bn *lease.NameError
	var at, bt *lease.TTLError
	if errors.As(a, &an) || errors.As(b, &bn) {
		return errors.As(a, &an) && errors.As(b, &bn)
	}
	if errors.As(a, &at) || errors.As(b, &bt) {
		return errors.As(a, &at) && errors.As(b, &bt)
	}
	return errors.Is(a, b)
}

func differsTxn(got *fsm.TxnResult, want *modelTxn) string {
	if got.Succeeded != want.succeeded {
		return fmt.Sprintf("it succeeded: %t, the model says %t", got.Succeeded, want.succeeded)
	}
	ranges, deletes, puts, leases, tokens := 0, 0, 0, 0, 0
	var walk func(r *fsm.TxnResult) string
	walk = func(r *fsm.TxnResult) string {
		for _, resp := range r.Responses {
			why := ""
			switch v := resp.(type) {
			case *mvcc.RangeResult:
				why = differsRange(v.KVs, want.ranges[ranges])
				ranges++
			case *fsm.DeleteResult:
				if v.Deleted != want.deleted[deletes] {
					why = fmt.Sprintf("%d keys were deleted, not %d", v.Deleted, want.deleted[deletes])
				}
				deletes++
			case *fsm.PutResult:
				if v.Prev != nil && !samePair(v.Prev, want.prev[puts]) {
					why = fmt.Sprintf("the replaced pair is %v, not %v", v.Prev, want.prev[puts])
				}
				puts++
			case *lease.Info, *fsm.Existing:
				why = differsLease(v, want.leases[leases])
				leases++
			case lease.Token:
				if v != want.tokens[tokens] {
					why = fmt.Sprintf("token %d was drawn, not %d", v, want.tokens[tokens])
				}
				tokens++
			case *fsm.TxnResult:
				why = walk(v)
			}
			if why != "" {
				return why
			}
		}
		return ""
	}
	return walk(got)
}

func differsRange(got []*mvcc.KeyValue, want []modelKey) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d keys were read, not %d", len(got), len(want))
	}
	for i := range got {
		if !samePair(got[i], &want[i]) {
			return fmt.Sprintf("read %v, not %+v", got[i], want[i])
		}
	}
	return ""
}

func samePair(a *mvcc.KeyValue, b *modelKey) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Key == b.key && string(a.Value) == b.value && lease.ID(a.Lease) == b.lease &&
		a.ModRevision == b.mod && a.CreateRevision == b.create && a.Version == b.version
}

// compareEntry compares the events and lease ends of a whole entry with the model's (L6).
func (f *facts) compareEntry(e *Entry, results []modelResult, m *model) {
	var want []modelEvent
	var ended []*modelStep
	for i := range results {
		want = append(want, results[i].events...)
		for k := range results[i].steps {
			if s := &results[i].steps[k]; s.ends() && s.by != fsm.ByKey {
				ended = append(ended, s)
			}
		}
	}
	var got []modelEvent
	for _, c := range e.Changes {
		for _, ev := range c.Events {
			got = append(got, eventOf(&ev, c.Revision))
		}
	}
	if !slices.Equal(got, want) {
		f.violate(e.At, "L6", "entry %d (term %d): the events are %v, not %v",
			e.Index, e.Term, got, want)
	}
	if e.Revision != m.revision {
		f.violate(e.At, "S1", "entry %d: the revision is %d, not %d", e.Index, e.Revision, m.revision)
	}
	if len(e.Ended) != len(ended) {
		f.violate(e.At, "L6", "entry %d (term %d) ended %d leases, not %d: %v",
			e.Index, e.Term, len(e.Ended), len(ended), ended)
		return
	}
	for i := range ended {
		f.compareEnd(e, &e.Ended[i], ended[i])
	}
}

func (f *facts) compareEnd(e *Entry, got *Ended, want *modelStep) {
	if got.ID != want.ID || got.Token != want.token || got.Gone != want.leaves() {
		f.violate(e.At, "L6", "entry %d ended lease %d (token %d, gone %t), not %d (token %d, gone %t)",
			e.Index, got.ID, got.Token, got.Gone, want.ID, want.token, want.leaves())
		return
	}
	if got.Gone && !slices.Equal(got.Keys, want.keys) ||
		len(want.keys) > 0 && got.Revision != want.revision {
		f.violate(e.At, "L6", "entry %d: lease %d ended at revision %d with keys %q, not at %d with %q",
			e.Index, got.ID, got.Revision, got.Keys, want.revision, want.keys)
	}
}

func eventOf(ev *mvcc.Event, revision int64) modelEvent {
	out := modelEvent{revision: revision, deleted: ev.Delete, key: ev.KV.Key}
	if !ev.Delete {
		out.value, out.lease = string(ev.KV.Value), lease.ID(ev.KV.Lease)
	}
	return out
}

// checkHashes checks S3: at equal indexes, members have equal states of equal size.
func (f *facts) checkHashes() {
	first := make(map[uint64]Hash)
	for _, h := range f.h.Hashes {
		was, ok := first[h.Index]
		if !ok {
			first[h.Index] = h
			continue
		}
		if was.Sum != h.Sum {
			f.violate(h.At, "S3", "at index %d member %d has state %08x, member %d had %08x at %v",
				h.Index, h.Member, h.Sum, was.Member, was.Sum, was.At)
		}
		if was.Bytes != h.Bytes {
			f.violate(h.At, "S3", "at index %d the state takes %+v at member %d, %+v at member %d",
				h.Index, h.Bytes, h.Member, was.Bytes, was.Member)
		}
	}
}

// by formats the name that a command uses to refer to a lease, or returns "" if there is none.
func by(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" by name %q", name)
}

// show describes a command in one line.
func show(c fsm.Command) string {
	switch c := c.(type) {
	case *fsm.Once:
		return fmt.Sprintf("number %d of session %d (settled %d): %s",
			c.Number, c.Session.ID, c.Settled, show(c.Command))
	case *fsm.Put:
		return fmt.Sprintf("put %s=%s lease %d%s token %d",
			c.Key, c.Value, c.Lease, by(c.LeaseName), c.LeaseToken)
	case *fsm.DeleteRange:
		return fmt.Sprintf("delete [%s,%s)", c.Key, c.End)
	case *fsm.Txn:
		return fmt.Sprintf("txn of %d compares, then %d, else %d operations",
			len(c.Compare), len(c.Then), len(c.Else))
	case *fsm.Grant:
		return fmt.Sprintf("grant %d ttl %d name %q request %q",
			c.Terms.ID, c.Terms.TTL, c.Terms.Name, c.Terms.RequestID)
	case *fsm.Revoke:
		return fmt.Sprintf("revoke %d%s token %d", c.ID, by(c.Name), c.Token)
	case *fsm.ChangeTTL:
		return fmt.Sprintf("change ttl of %d token %d to %d", c.ID, c.Token, c.TTL)
	case *fsm.HandOver:
		return fmt.Sprintf("hand over %d%s token %d to %q", c.ID, by(c.Name), c.Token, c.Owner)
	case *fsm.Resume:
		return fmt.Sprintf("resume %d", c.ID)
	case *fsm.Expire:
		return fmt.Sprintf("expire of term %d %v", c.Term, c.Leases)
	case *fsm.Checkpoint:
		return fmt.Sprintf("checkpoint of term %d %v", c.Term, c.Leases)
	default:
		return fmt.Sprintf("%T", c)
	}
}
