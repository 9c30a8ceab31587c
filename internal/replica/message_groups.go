package replica

import (
	"encoding/binary"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// groupsFresh is the flag for Round.Fresh.
const groupsFresh byte = 1

func (f *Forward) appendGroups(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, f.Access), f.Groups.Number)
	b = append(b, encoding.Flag(f.Groups.Fresh, groupsFresh))
	b = encoding.AppendList(b, f.Groups.Leave, func(b []byte, l holder.Leaving) []byte {
		b = binary.AppendUvarint(appendID(b, l.ID), uint64(l.Group))
		return binary.AppendVarint(b, int64(l.AsOf))
	})
	return encoding.AppendList(b, f.Groups.Renew, func(b []byte, g lease.GroupID) []byte {
		return binary.AppendUvarint(b, uint64(g))
	})
}

func (f *Forward) decodeGroups(d *encoding.Decoder) {
	f.Access, f.Groups.Number = d.Uvarint(), d.Uvarint()
	if f.Groups.Number == 0 {
		d.Fail("number of a round")
	}
	f.Groups.Fresh = d.Flags("a round", groupsFresh) != 0
	f.Groups.Leave = encoding.List(d, func() holder.Leaving {
		return holder.Leaving{
			ID: lease.ID(d.Uint64()), Group: lease.GroupID(d.Uvarint()),
			AsOf: lease.Instant(d.Varint()),
		}
	})
	f.Groups.Renew = encoding.List(d, func() lease.GroupID { return lease.GroupID(d.Uvarint()) })
}

func (f *Forward) groupsSize() int {
	return 28*len(f.Groups.Leave) + 10*len(f.Groups.Renew)
}

func (r *Reply) appendGroups(b []byte) []byte {
	b = binary.AppendUvarint(b, r.GroupRound)
	return encoding.AppendList(b, r.Groups, func(b []byte, g holder.RenewedGroup) []byte {
		b = binary.AppendVarint(binary.AppendUvarint(b, uint64(g.ID)), int64(g.TTL))
		return encoding.AppendList(binary.AppendVarint(b, int64(g.At)), g.Left, appendID)
	})
}

func (r *Reply) decodeGroups(d *encoding.Decoder) {
	if r.GroupRound = d.Uvarint(); r.GroupRound == 0 {
		d.Fail("number of a round")
	}
	r.Groups = encoding.List(d, func() holder.RenewedGroup {
		g := holder.RenewedGroup{
			ID: lease.GroupID(d.Uvarint()), TTL: lease.TTL(d.Varint()), At: lease.Instant(d.Varint()),
		}
		g.Left = encoding.List(d, func() lease.ID { return lease.ID(d.Uint64()) })
		return g
	})
}

func (r *Reply) groupsSize() (size int) {
	for i := range r.Groups {
		size += 40 + 8*len(r.Groups[i].Left)
	}
	return size
}
