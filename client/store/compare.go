package store

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/lease"
)

// Compare is a condition of a transaction. Conditions are created by the methods of [KeyRange], and
// by [LeaseAlive] and [NameHeld]. The zero Compare is not a valid condition.
type Compare struct{ compare }

type compare = message.Compare

// Relation determines how a condition compares the state of a key with the given value.
type Relation int32

// The relations. If a condition covers a range, every key in the range must satisfy it.
const (
	Equal    = Relation(pb.Compare_RELATION_EQUAL)
	Greater  = Relation(pb.Compare_RELATION_GREATER)
	Less     = Relation(pb.Compare_RELATION_LESS)
	NotEqual = Relation(pb.Compare_RELATION_NOT_EQUAL)
)

// Missing requires that the key does not exist or that the range is empty.
func (r KeyRange) Missing() Compare { return r.Version(Equal, 0) }

// Value compares the value of the key. Do not modify the given value afterwards (see [Put]).
func (r KeyRange) Value(is Relation, value []byte) Compare {
	c := &compared[pb.Compare_Value]{target: pb.Compare_Value{Value: value}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// Version compares the version of the key. The version is 0 if the key does not exist.
func (r KeyRange) Version(is Relation, version int64) Compare {
	c := &compared[pb.Compare_Version]{target: pb.Compare_Version{Version: version}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// CreateRevision compares the revision that created the key. It is 0 if the key does not exist.
func (r KeyRange) CreateRevision(is Relation, revision int64) Compare {
	c := &compared[pb.Compare_CreateRevision]{
		target: pb.Compare_CreateRevision{CreateRevision: revision},
	}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// ModRevision compares the last revision that modified the key. It is 0 if the key does not exist.
func (r KeyRange) ModRevision(is Relation, revision int64) Compare {
	c := &compared[pb.Compare_ModRevision]{target: pb.Compare_ModRevision{ModRevision: revision}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// Lease compares the lease that the key is attached to. It is 0 if the key has no lease.
func (r KeyRange) Lease(is Relation, id lease.ID) Compare {
	c := &compared[pb.Compare_Lease]{target: pb.Compare_Lease{Lease: int64(id)}}
	c.m.Target = &c.target
	return r.compare(is, &c.m)
}

// LeaseAlive requires that a lease is alive.
func LeaseAlive(id lease.ID) Compare {
	return Compare{compare{Message: &pb.Compare{
		Relation: pb.Compare_RELATION_EQUAL,
		Target:   &pb.Compare_LeaseAlive{LeaseAlive: int64(id)},
	}}}
}

// NameHeld requires that a live lease with the given name has the given token. Use it for writes
// that are reserved for the holder of the name.
func NameHeld(name string, t lease.Token) Compare {
	return Compare{compare{Message: &pb.Compare{
		Relation: pb.Compare_RELATION_EQUAL,
		Target: &pb.Compare_NameToken{
			NameToken: &pb.NameToken{Name: name, Token: uint64(t)},
		},
	}}}
}

// Not negates [LeaseAlive] and [NameHeld], and turns [Equal] into [NotEqual]. It has no effect on
// [Greater] and [Less].
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

// compared holds a condition and its value in a single allocation.
type compared[T any] struct {
	m      pb.Compare
	target T
}

// compare completes a message with the relation and the range, and returns it as a condition.
func (r KeyRange) compare(is Relation, m *pb.Compare) Compare {
	m.Relation = pb.Compare_Relation(is)
	m.Key, m.RangeEnd = []byte(r.Key), nil
	if r.End != "" {
		m.Key, m.RangeEnd = message.Span(r.Key, r.End)
	}
	return Compare{compare{Message: m}}
}
