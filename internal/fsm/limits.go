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

// checkLimits returns an *access.LimitError if the increase would exceed a limit of the principal.
func (m *Machine) checkLimits(more Use) error {
	if more.Principal == "" {
		return nil
	}
	who := m.meta.accounts.caller
	own := who.User == more.Principal
	if !own {
		who = access.Caller{User: more.Principal}
	}
	has := m.use(more.Principal)
	for _, x := range [...]struct {
		what      access.Resource
		has, more int64
	}{
		{access.Leases, has.Leases, more.Leases},
		{access.LeaseKeys, has.LeaseKeys, more.LeaseKeys},
		{access.Bytes, has.Bytes, more.Bytes},
	} {
		if x.more <= 0 {
			continue
		}
		if most := m.meta.access.Limit(who, x.what); most > 0 && x.has+x.more > most {
			if !own {
				x.has = -1
			}
			return &access.LimitError{
				Principal: more.Principal, What: x.what, Limit: most, Used: x.has, Asked: x.more,
			}
		}
	}
	return nil
}
