package fsm

import (
	"encoding/binary"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
)

// SetLimits changes the limits of a user, of a role, or of everyone. It returns the errors of
// access.State.SetLimits.
type SetLimits struct {
	Of   access.Holder
	List []access.LimitChange
}

func (*SetLimits) kind() kind { return kindSetLimits }

func appendSetLimits(b []byte, c *SetLimits) []byte {
	b = encoding.AppendBytes(append(b, byte(c.Of.Kind)), c.Of.Name)
	return encoding.AppendList(b, c.List, func(b []byte, l access.LimitChange) []byte {
		return binary.AppendVarint(append(b, byte(l.What)), l.Most)
	})
}

func (d *decoder) setLimits() *SetLimits {
	k := access.HolderKind(d.Byte())
	if !k.Known() {
		d.Unknown("a limit for holder kind", uint64(k))
	}
	return &SetLimits{
		Of: access.Holder{Kind: k, Name: d.Text()},
		List: encoding.List(&d.Decoder, func() access.LimitChange {
			return access.LimitChange{What: d.resource(), Most: d.most()}
		}),
	}
}

func (d *decoder) resource() access.Resource {
	r := access.Resource(d.Byte())
	if !r.Known() {
		d.Unknown("a limit for resource", uint64(r))
	}
	return r
}

func (d *decoder) most() int64 {
	most := d.Varint()
	if most < access.NoLimit {
		d.Fail("a limit")
	}
	return most
}
