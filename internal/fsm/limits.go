package fsm

import (
	"cmp"
	"encoding/binary"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// SetLimits changes the limits of a user, of a role or of everybody: see access.State.SetLimits,
// whose errors are its results.
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
		d.Unknown("limits of kind", uint64(k))
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

// demand is by how much a command lets what a principal has grow, at most. What it frees makes no
// room for the rest of it, but that a put with a TTL takes over the room of the lease that its key
// had.
type demand Use

// putDemand is the demand of a put: the whole pair, since the one that it replaces stays in the
// history.
func (m *Machine) putDemand(c *Put) demand {
	d, value, attached := demand{Principal: m.meta.accounts.caller.User}, c.Value, c.attaches()
	prev := m.store.Get(c.Key)
	if prev != nil && c.IgnoreValue {
		value = prev.Value
	}
	if prev != nil && c.IgnoreLease {
		attached = prev.Lease != 0
	}
	d.Bytes = mvcc.PutSize(c.Key, value)
	if attached && (prev == nil || prev.Lease == 0 || prev.Writer() != d.Principal) {
		d.LeaseKeys = 1
	}
	return d
}

// grantDemand is the demand of a grant that is no repetition.
func (m *Machine) grantDemand(c *Grant) demand {
	who := cmp.Or(c.Terms.Principal, m.meta.accounts.caller.User)
	return demand{Principal: who, Leases: 1, Bytes: c.Terms.Bytes()}
}

// handOverDemand is the demand of a hand-over that takes effect.
func (m *Machine) handOverDemand(before lease.Info, c *HandOver) demand {
	to := c.successor(before)
	d := demand{Principal: to.Principal, Bytes: handsOver(before, c)}
	on := m.lessor.Account(before.ID)
	if on != "" && to.Principal == before.Principal {
		d.Principal = on
	} else if on != to.Principal {
		d.Leases, d.Bytes = 1, before.Bytes()+d.Bytes
	}
	return d
}

// exceeds returns an *access.LimitError if a demand would exceed a limit.
func (m *Machine) exceeds(d demand) error {
	if !m.meta.access.Limited() || d.Principal == "" {
		return nil
	}
	who := m.meta.accounts.caller
	own := who.User == d.Principal
	if !own {
		who = access.Caller{User: d.Principal}
	}
	has := m.use(d.Principal)
	for _, x := range [...]struct {
		what       access.Resource
		has, wants int64
	}{
		{access.Leases, has.Leases, d.Leases},
		{access.LeaseKeys, has.LeaseKeys, d.LeaseKeys},
		{access.Bytes, has.Bytes, d.Bytes},
	} {
		if x.wants <= 0 {
			continue
		}
		if most := m.meta.access.Limit(who, x.what); most > 0 && x.has+x.wants > most {
			if !own {
				x.has = -1
			}
			return &access.LimitError{
				Principal: d.Principal, What: x.what, Limit: most, Used: x.has, Asked: x.wants,
			}
		}
	}
	return nil
}

// demands are those of the operations of a transaction.
type demands []demand

// add adds what an operation demands.
func (l *demands) add(d demand) {
	for i := range *l {
		if have := &(*l)[i]; have.Principal == d.Principal {
			have.Leases += d.Leases
			have.LeaseKeys += d.LeaseKeys
			have.Bytes += d.Bytes
			return
		}
	}
	*l = append(*l, d)
}

// exceedsAny returns the first error of exceeds.
func (m *Machine) exceedsAny(l demands) error {
	for _, d := range l {
		if err := m.exceeds(d); err != nil {
			return err
		}
	}
	return nil
}
