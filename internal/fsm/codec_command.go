package fsm

import (
	"encoding/binary"
	"math"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/lease"
)

// Flags that select how a command identifies a lease. The command's own flags use higher bits.
const (
	refID byte = 1 << iota
	refName
	refToken
)

// ref is how a command identifies a lease: by its ID, its name, or both, and optionally its token.
type ref struct {
	id    lease.ID
	name  string
	token lease.Token
}

// appendRef appends the flags of a command on a lease, and the reference to the lease.
func appendRef(b []byte, flags byte, r ref) []byte {
	flags |= encoding.Flag(r.id != 0, refID) | encoding.Flag(r.name != "", refName) |
		encoding.Flag(r.token != 0, refToken)
	b = append(b, flags)
	if r.id != 0 {
		b = appendID(b, r.id)
	}
	if r.name != "" {
		b = encoding.AppendBytes(b, r.name)
	}
	if r.token != 0 {
		b = binary.AppendUvarint(b, uint64(r.token))
	}
	return b
}

// ref decodes what appendRef wrote. known is the set of valid flags.
func (d *decoder) ref(of string, known byte) (flags byte, r ref) {
	flags = d.Flags(of, known)
	if flags&refID != 0 {
		r.id = d.id()
	}
	if flags&refName != 0 {
		r.name = d.Text()
	}
	if flags&refToken != 0 {
		r.token = lease.Token(d.Uvarint())
	}
	return flags, r
}

// appendID appends the ID of a lease. Most IDs are random, so a varint would be longer.
func appendID(b []byte, id lease.ID) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(id))
}

func (d *decoder) id() lease.ID { return lease.ID(d.Uint64()) }

// Flags of a put. They follow the flags that identify its lease.
const (
	putPrevKV byte = refToken << (1 + iota)
	putIgnoreValue
	putIgnoreLease
	putMaxKeys

	putFlags = refID | refName | refToken | putPrevKV | putIgnoreValue | putIgnoreLease | putMaxKeys
)

func appendPut(b []byte, c *Put) []byte {
	flags := encoding.Flag(c.PrevKV, putPrevKV) | encoding.Flag(c.IgnoreValue, putIgnoreValue) |
		encoding.Flag(c.IgnoreLease, putIgnoreLease) | encoding.Flag(c.MaxKeys != 0, putMaxKeys)
	b = appendRef(b, flags, ref{c.Lease, c.LeaseName, c.LeaseToken})
	b = encoding.AppendBytes(b, c.Key)
	b = encoding.AppendBytes(b, c.Value)
	if c.MaxKeys != 0 {
		b = binary.AppendVarint(b, int64(c.MaxKeys))
	}
	return b
}

func (d *decoder) put() *Put {
	f, r := d.ref("a put", putFlags)
	c := d.slabs().puts.one()
	c.Lease, c.LeaseName, c.LeaseToken = r.id, r.name, r.token
	c.PrevKV, c.IgnoreValue = f&putPrevKV != 0, f&putIgnoreValue != 0
	c.IgnoreLease = f&putIgnoreLease != 0
	c.Key, c.Value = d.Text(), d.putValue()
	if f&putMaxKeys != 0 {
		c.MaxKeys = d.limit()
	}
	return c
}

// limit decodes a number of keys. A limit that does not fit in an int is replaced by the largest
// int, because no result is that long anyway.
func (d *decoder) limit() int { return int(min(d.Varint(), math.MaxInt)) }

// Flags of a deletion.
const (
	deletePrevKV byte = 1 << iota
	deleteEnd
)

func appendDelete(b []byte, c *DeleteRange) []byte {
	b = append(b, encoding.Flag(c.PrevKV, deletePrevKV)|encoding.Flag(c.End != "", deleteEnd))
	b = encoding.AppendBytes(b, c.Key)
	if c.End != "" {
		b = encoding.AppendBytes(b, c.End)
	}
	return b
}

func (d *decoder) deleteRange() *DeleteRange {
	f := d.Flags("a deletion", deletePrevKV|deleteEnd)
	c := d.slabs().deletes.one()
	c.PrevKV = f&deletePrevKV != 0
	c.Key = d.Text()
	if f&deleteEnd != 0 {
		c.End = d.Text()
	}
	return c
}

// Flags of a grant.
const (
	grantRenew byte = 1 << iota
	grantHolds
)

func appendGrant(b []byte, c *Grant) []byte {
	holds := len(c.Holds) > 0
	b = append(b, encoding.Flag(c.Renew, grantRenew)|encoding.Flag(holds, grantHolds))
	b = appendTerms(b, &c.Terms)
	if holds {
		b = encoding.AppendList(b, c.Holds, appendHeld)
	}
	return b
}

func (d *decoder) grant() *Grant {
	f := d.Flags("a grant", grantRenew|grantHolds)
	c := d.slabs().grants.one()
	c.Renew = f&grantRenew != 0
	d.terms(&c.Terms)
	if f&grantHolds != 0 {
		c.Holds = d.ranges()
	}
	return c
}

// revokeBy is set in a revocation that has By.
const revokeBy = refToken << 1

func appendRevoke(b []byte, c *Revoke) []byte {
	b = appendRef(b, encoding.Flag(c.By != "", revokeBy), ref{c.ID, c.Name, c.Token})
	if c.By != "" {
		b = encoding.AppendBytes(b, c.By)
	}
	return b
}

func (d *decoder) revoke() *Revoke {
	f, r := d.ref("a revocation", refID|refName|refToken|revokeBy)
	c := d.slabs().revokes.one()
	c.ID, c.Name, c.Token = r.id, r.name, r.token
	if f&revokeBy != 0 {
		c.By = d.Text()
	}
	return c
}

// changeMost is set in a TTL change that has MaxCacheTTL.
const changeMost = refToken << 1

func appendChangeTTL(b []byte, c *ChangeTTL) []byte {
	b = appendRef(b, encoding.Flag(c.MaxCacheTTL != 0, changeMost), ref{c.ID, c.Name, c.Token})
	b = binary.AppendVarint(b, int64(c.TTL))
	if c.MaxCacheTTL != 0 {
		b = binary.AppendVarint(b, int64(c.MaxCacheTTL))
	}
	return b
}

func (d *decoder) changeTTL() *ChangeTTL {
	f, r := d.ref("a TTL change", refID|refName|refToken|changeMost)
	c := &ChangeTTL{ID: r.id, Name: r.name, Token: r.token, TTL: lease.TTL(d.Varint())}
	if f&changeMost != 0 {
		c.MaxCacheTTL = lease.TTL(d.Varint())
	}
	return c
}

// withSecret is set in a hand-over or resumption that has a secret.
const withSecret = refToken << 1

// withPrincipal is set in a hand-over that has a principal.
const withPrincipal = withSecret << 1

func appendHandOver(b []byte, c *HandOver) []byte {
	secret := c.Secret != lease.Secret{}
	f := encoding.Flag(secret, withSecret) | encoding.Flag(c.Principal != "", withPrincipal)
	b = appendRef(b, f, ref{c.ID, c.Name, c.Token})
	b = encoding.AppendBytes(b, c.Owner)
	if secret {
		b = append(b, c.Secret[:]...)
	}
	if c.Principal != "" {
		b = encoding.AppendBytes(b, c.Principal)
	}
	return b
}

func (d *decoder) handOver() *HandOver {
	f, r := d.ref("a hand-over", refID|refName|refToken|withSecret|withPrincipal)
	c := &HandOver{ID: r.id, Name: r.name, Token: r.token, Owner: d.Text()}
	if f&withSecret != 0 {
		c.Secret = d.secret()
	}
	if f&withPrincipal != 0 {
		c.Principal = d.Text()
	}
	return c
}

func appendResume(b []byte, c *Resume) []byte {
	secret := c.Secret != lease.Secret{}
	b = appendRef(b, encoding.Flag(secret, withSecret), ref{c.ID, c.Name, 0})
	if secret {
		b = append(b, c.Secret[:]...)
	}
	return b
}

func (d *decoder) resume() *Resume {
	f, r := d.ref("a resumption", refID|refName|withSecret)
	c := &Resume{ID: r.id, Name: r.name}
	if f&withSecret != 0 {
		c.Secret = d.secret()
	}
	return c
}

func appendOnce(b []byte, c *Once) []byte {
	b = binary.AppendUvarint(b, c.Session.ID)
	b = binary.BigEndian.AppendUint64(b, c.Session.Nonce)
	b = binary.AppendUvarint(b, c.Number)
	b = binary.AppendUvarint(b, c.Settled)
	return AppendCommand(b, c.Command)
}

func (d *decoder) once() Command {
	c := d.slabs().onces.one()
	c.Session = Session{ID: d.Uvarint(), Nonce: d.Uint64()}
	c.Number, c.Settled = d.Uvarint(), d.Uvarint()
	if k := kind(d.Peek()); k <= kindLast && !k.repeatable() { // another Once, for example
		d.Fail("a command that cannot have an idempotency key")
		return nil
	}
	c.Command = d.command()
	return c
}

func appendExpire(b []byte, c *Expire) []byte {
	b = binary.AppendUvarint(b, c.Term)
	return encoding.AppendList(b, c.Leases, func(b []byte, l lease.Due) []byte {
		b = binary.AppendUvarint(appendID(b, l.ID), uint64(l.Token))
		return binary.AppendUvarint(b, l.Stamp)
	})
}

func (d *decoder) expire() *Expire {
	return &Expire{Term: d.Uvarint(), Leases: encoding.List(&d.Decoder, func() lease.Due {
		return lease.Due{ID: d.id(), Token: lease.Token(d.Uvarint()), Stamp: d.Uvarint()}
	})}
}

func appendCheckpoint(b []byte, c *Checkpoint) []byte {
	b = binary.AppendUvarint(b, c.Term)
	return encoding.AppendList(b, c.Leases, func(b []byte, l lease.Checkpoint) []byte {
		b = binary.AppendUvarint(appendID(b, l.ID), uint64(l.Token))
		b = binary.AppendVarint(b, int64(l.Remaining))
		return binary.AppendUvarint(b, l.Stamp)
	})
}

func (d *decoder) checkpoint() *Checkpoint {
	return &Checkpoint{Term: d.Uvarint(), Leases: encoding.List(&d.Decoder, func() lease.Checkpoint {
		return lease.Checkpoint{
			ID: d.id(), Token: lease.Token(d.Uvarint()),
			Remaining: lease.TTL(d.Varint()), Stamp: d.Uvarint(),
		}
	})}
}

func appendDropOrphans(b []byte, c *DropOrphans) []byte {
	return encoding.AppendList(b, c.Tokens, func(b []byte, t lease.Token) []byte {
		return binary.AppendUvarint(b, uint64(t))
	})
}

func (d *decoder) dropOrphans() *DropOrphans {
	return &DropOrphans{Tokens: encoding.List(&d.Decoder, func() lease.Token {
		return lease.Token(d.Uvarint())
	})}
}
