package store

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/lease"
)

// Compare is a condition of a transaction. The methods of [KeyRange], and [LeaseAlive] and
// [NameHeld], return one. The zero Compare is not a condition.
type Compare struct{ compare }

type compare = message.Compare

// Relation is how a condition compares the state of a key with its own value.
type Relation int32

// The relations. In a range, every key must satisfy the condition.
const (
	Equal    = Relation(pb.Compare_RELATION_EQUAL)
	Greater  = Relation(pb.Compare_RELATION_GREATER)
	Less     = Relation(pb.Compare_RELATION_LESS)
	NotEqual = Relation(pb.Compare_RELATION_NOT_EQUAL)
)

// Missing is the condition that the key does not exist, or that the range is empty.
func (r KeyRange) Missing() Compare { return r.Version(Equal, 0) }

// Value compares the value of the key. The value must not be changed any more (see [Put]).
func (r KeyRange) Value(is Relation, value []byte) Compare {
	c := &compared[pb.Compare_Value]{target: pb.Compare_Value{Value: value}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// Version compares the version of the key, which is 0 if it does not exist.
func (r KeyRange) Version(is Relation, version int64) Compare {
	c := &compared[pb.Compare_Version]{target: pb.Compare_Version{Version: version}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// CreateRevision compares the revision that created the key, which is 0 if it does not exist.
func (r KeyRange) CreateRevision(is Relation, revision int64) Compare {
	c := &compared[pb.Compare_CreateRevision]{
		target: pb.Compare_CreateRevision{CreateRevision: revision},
	}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// ModRevision compares the last revision that changed the key, which is 0 if it does not exist.
func (r KeyRange) ModRevision(is Relation, revision int64) Compare {
	c := &compared[pb.Compare_ModRevision]{target: pb.Compare_ModRevision{ModRevision: revision}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// Lease compares the lease that the key is attached to, which is 0 for none.
func (r KeyRange) Lease(is Relation, id lease.ID) Compare {
	c := &compared[pb.Compare_Lease]{target: pb.Compare_Lease{Lease: int64(id)}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// LeaseAlive is the condition that a lease is alive.
func LeaseAlive(id lease.ID) Compare {
	return Compare{compare{Message: &pb.Compare{
		Relation: pb.Compare_RELATION_EQUAL,
		Target:   &pb.Compare_LeaseAlive{LeaseAlive: int64(id)},
	}}}
}

// NameHeld is the condition that a live lease with this token has the name. Use it for a write that
// only the holder of the name may make.
func NameHeld(name string, t lease.Token) Compare {
	return Compare{compare{Message: &pb.Compare{
		Relation: pb.Compare_RELATION_EQUAL,
		Target: &pb.Compare_NameToken{
			NameToken: &pb.NameToken{Name: name, Token: uint64(t)},
		},
	}}}
}

// Not negates [LeaseAlive], [NameHeld] and [Equal] (to [NotEqual]). It does not change [Greater]
// and [Less].
func (c Compare) Not() Compare {
	m := c.Message
	if m == nil {
		return c
	}
	out := &pb.Compare{Relation: m.Relation, Key: m.Key, RangeEnd: m.RangeEnd, Target: m.Target}
	switch m.Relation {
	case pb.Compare_RELATION_UNSPECIFIED, pb.Compare_RELATION_EQUAL:
		out.Relation = pb.Compare_RELATION_NOT_EQUAL
	case pb.Compare_RELATION_NOT_EQUAL:
		out.Relation = pb.Compare_RELATION_EQUAL
	}
	return Compare{compare{Message: out}}
}

// compared is a condition and its value, in one allocation.
type compared[T any] struct {
	m      pb.Compare
	target T
}

// compare returns the condition in a message, for the range.
func (r KeyRange) compare(is Relation, m *pb.Compare) Compare {
	m.Relation = pb.Compare_Relation(is)
	m.Key, m.RangeEnd = []byte(r.Key), nil
	if r.End != "" {
		m.Key, m.RangeEnd = message.Span(r.Key, r.End)
	}
	return Compare{compare{Message: m}}
}
