package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// ErrCorrupt means that bytes from the log or a snapshot do not decode.
var ErrCorrupt = errors.New("fsm: corrupt encoding")

// decoder takes commands and what is in them.
type decoder struct {
	encoding.Decoder
	mem *slabs // nil until a command is taken
	// views says that values of which the store makes a copy are left where they are.
	views bool
}

// putValue takes the value of a put.
func (d *decoder) putValue() []byte {
	v := d.View()
	if d.views && len(v) <= mvcc.ShortValue {
		return v
	}
	return slices.Clone(v)
}

func newDecoder(b []byte) *decoder {
	return &decoder{Decoder: encoding.NewDecoder(b, ErrCorrupt)}
}

// room returns where there is room for commands.
func (d *decoder) room() *slabs {
	if d.mem == nil {
		d.mem = &slabs{}
	}
	return d.mem
}

// logVersion is the version of the encoding of log entries, their first byte.
// Version 1 had no origins, and is still read.
const logVersion = 2

// maxTxnDepth bounds the nesting of transactions, so that a hostile entry
// cannot exhaust the stack. The API refuses deeper ones before they are
// proposed.
const maxTxnDepth = 32

// An entry of the log is the version byte followed by the commands that were
// proposed together. AppendEntry begins one, AppendCommand adds to it. Commands
// that came through another member than the one that proposed them stand
// behind an AppendOrigin.

// Origin says through which member commands came, so that this member knows
// the outcome as its own when it applies them.
type Origin struct {
	// Member is the member's ID, 0 for the one that proposed the entry.
	Member uint64
	// Seq is the member's number for the first of the commands; the others follow.
	Seq uint64
}

// Group is commands of one entry that have one origin.
type Group struct {
	Origin   Origin
	Commands []Command
}

// originMark stands where a command's kind would, before an origin.
const originMark = 0xff

// AppendEntry begins the encoding of a log entry.
func AppendEntry(b []byte) []byte { return append(b, logVersion) }

// AppendOrigin says that the n commands that follow in the entry came from o.
func AppendOrigin(b []byte, o Origin, n int) []byte {
	b = append(b, originMark)
	b = binary.BigEndian.AppendUint64(b, o.Member)
	b = binary.BigEndian.AppendUint64(b, o.Seq)
	return binary.AppendUvarint(b, uint64(n))
}

// DecodeEntry decodes a log entry. It keeps no part of data.
func DecodeEntry(data []byte) ([]Group, error) {
	var r Reader
	return r.decode(data)
}

// DecodeCommands decodes n commands, one AppendCommand after another, of which
// nothing is known yet: they came from outside. It keeps no part of data.
func DecodeCommands(data []byte, n int) ([]Command, error) {
	d := newDecoder(data)
	var commands []Command
	for range n {
		if commands = append(commands, d.command()); d.Err() != nil {
			break
		}
	}
	if err := d.End(); err != nil {
		return nil, err
	}
	return commands, nil
}

// AppendCommand appends the encoding of one command to an entry.
func AppendCommand(b []byte, c Command) []byte {
	name, token := nameIn(c)
	b = appendName(b, byte(kindNamed), name, token)
	k := c.kind()
	b = append(b, byte(k))
	switch c := c.(type) {
	case *Put:
		return appendPut(b, c)
	case *DeleteRange:
		return appendDelete(b, c)
	case *Txn:
		return appendTxn(b, c)
	case *Compact:
		return binary.AppendVarint(b, c.Revision)
	case *Grant:
		return appendGrant(b, c, k)
	case *Revoke:
		if k == kindRevokeMore {
			return appendRevoke(b, c)
		}
		return binary.AppendVarint(b, int64(c.ID))
	case *ChangeTTL:
		b = binary.AppendVarint(appendToken(b, c.ID, c.Token), int64(c.TTL))
		return binary.AppendVarint(b, int64(c.MaxCacheTTL))
	case *HandOver:
		b = encoding.AppendBytes(appendToken(b, c.ID, c.Token), c.Owner)
		return append(b, c.Secret[:]...)
	case *Resume:
		return append(binary.AppendVarint(b, int64(c.ID)), c.Secret[:]...)
	case *OpenSession:
		return binary.BigEndian.AppendUint64(b, c.Nonce)
	case *Once:
		return appendOnce(b, c)
	case *Expire:
		return appendExpire(b, c)
	case *Checkpoint:
		return appendCheckpoint(b, c, k == kindCheckpointMore)
	case *DropOrphans:
		return appendDropOrphans(b, c)
	case *SetAlarm:
		b = encoding.AppendBools(b, c.Off)
		b = binary.AppendUvarint(b, c.Alarm.Member)
		return append(b, byte(c.Alarm.Kind))
	case *SetMember:
		return appendMember(b, c.Member)
	case *AddMember:
		return appendMember(b, c.Member)
	case *RemoveMember:
		return binary.AppendUvarint(b, c.ID)
	case *PromoteMember:
		return binary.AppendUvarint(b, c.ID)
	default:
		panic(fmt.Sprintf("fsm: no encoding for %T", c))
	}
}

func (d *decoder) command() Command {
	switch k := kind(d.Byte()); k {
	case kindPut:
		return d.put()
	case kindDeleteRange:
		return d.deleteRange()
	case kindTxn:
		return d.txn(0)
	case kindCompact:
		return &Compact{Revision: d.Varint()}
	case kindGrant:
		g := d.room().grants.one()
		g.Terms = d.terms()
		return g
	case kindRevoke:
		c := d.room().revokes.one()
		c.ID = lease.ID(d.Varint())
		return c
	case kindExpire:
		return d.expire()
	case kindCheckpoint, kindCheckpointMore:
		return d.checkpoint(k == kindCheckpointMore)
	case kindSetAlarm:
		off := d.Byte()&1 != 0
		return &SetAlarm{Off: off, Alarm: Alarm{Member: d.Uvarint(), Kind: AlarmKind(d.Byte())}}
	case kindSetMember:
		return &SetMember{Member: d.member()}
	case kindAddMember:
		return &AddMember{Member: d.member()}
	case kindRemoveMember:
		return &RemoveMember{ID: d.Uvarint()}
	case kindPromoteMember:
		return &PromoteMember{ID: d.Uvarint()}
	default:
		return d.later(k)
	}
}

// later decodes the commands that the first releases did not have.
func (d *decoder) later(k kind) Command {
	switch k {
	case kindGrantMore:
		return d.grant()
	case kindGrantHolds:
		return d.grantHolds()
	case kindRevokeMore:
		return d.revoke()
	case kindChangeTTL:
		c := &ChangeTTL{}
		c.ID, c.Token = d.token()
		c.TTL, c.MaxCacheTTL = lease.TTL(d.Varint()), lease.TTL(d.Varint())
		return c
	case kindHandOver:
		c := &HandOver{}
		c.ID, c.Token = d.token()
		c.Owner, c.Secret = d.Text(), d.secret()
		return c
	case kindResume:
		return &Resume{ID: lease.ID(d.Varint()), Secret: d.secret()}
	case kindOpenSession:
		return &OpenSession{Nonce: d.Uint64()}
	case kindOnce:
		return d.once()
	case kindNamed:
		return d.namedCommand()
	case kindDropOrphans:
		return d.dropOrphans()
	default:
		d.Fail(fmt.Sprintf("command of unknown kind %d", k))
		return nil
	}
}

func appendPut(b []byte, c *Put) []byte {
	b = encoding.AppendBools(b, c.PrevKV, c.IgnoreValue, c.IgnoreLease, c.MaxKeys != 0)
	b = encoding.AppendBytes(b, c.Key)
	b = encoding.AppendBytes(b, c.Value)
	b = binary.AppendVarint(b, int64(c.Lease))
	if c.MaxKeys != 0 {
		b = binary.AppendVarint(b, int64(c.MaxKeys))
	}
	return b
}

func (d *decoder) put() *Put {
	f := d.Byte()
	c := d.room().puts.one()
	c.PrevKV, c.IgnoreValue, c.IgnoreLease = f&1 != 0, f&2 != 0, f&4 != 0
	c.Key, c.Value, c.Lease = d.Text(), d.putValue(), lease.ID(d.Varint())
	if f&8 != 0 {
		c.MaxKeys = int(d.Varint())
	}
	return c
}

func appendDelete(b []byte, c *DeleteRange) []byte {
	b = encoding.AppendBools(b, c.PrevKV)
	return encoding.AppendBytes(encoding.AppendBytes(b, c.Key), c.End)
}

func (d *decoder) deleteRange() *DeleteRange {
	c := d.room().deletes.one()
	c.PrevKV = d.Byte()&1 != 0
	c.Key, c.End = d.Text(), d.Text()
	return c
}

func appendRange(b []byte, c *Range) []byte {
	o := &c.Options
	b = encoding.AppendBools(b, o.Descend, o.CountOnly)
	b = append(b, byte(o.SortBy))
	b = encoding.AppendBytes(encoding.AppendBytes(b, c.Key), c.End)
	for _, v := range [...]int64{
		o.Revision, o.Limit, o.MinModRevision, o.MaxModRevision,
		o.MinCreateRevision, o.MaxCreateRevision,
	} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (d *decoder) rangeOp() *Range {
	f := d.Byte()
	r := d.room().ranges.one()
	o := &r.Options
	o.Descend, o.CountOnly = f&1 != 0, f&2 != 0
	o.SortBy = mvcc.SortBy(d.Byte())
	r.Key, r.End = d.Text(), d.Text()
	for _, v := range [...]*int64{
		&o.Revision, &o.Limit, &o.MinModRevision, &o.MaxModRevision,
		&o.MinCreateRevision, &o.MaxCreateRevision,
	} {
		*v = d.Varint()
	}
	return r
}

func appendToken(b []byte, id lease.ID, t lease.Token) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, int64(id)), uint64(t))
}

func (d *decoder) token() (lease.ID, lease.Token) {
	return lease.ID(d.Varint()), lease.Token(d.Uvarint())
}

func (d *decoder) secret() (s lease.Secret) {
	for i := 0; i < len(s); i += 8 {
		binary.BigEndian.PutUint64(s[i:], d.Uint64())
	}
	return s
}

func appendRevoke(b []byte, c *Revoke) []byte {
	return encoding.AppendBytes(appendToken(b, c.ID, c.Token), c.By)
}

func (d *decoder) revoke() *Revoke {
	c := d.room().revokes.one()
	c.ID, c.Token = d.token()
	c.By = d.Text()
	return c
}

func (d *decoder) grant() *Grant {
	g := d.room().grants.one()
	g.Terms = d.terms()
	g.Renew = d.more(&g.Terms)
	return g
}

// appendMore appends what appendTerms does not know. That a lease is delayed, and that a
// grant renews, are flags of one place.
func appendMore(b []byte, t *lease.Terms, flag bool) []byte {
	b = encoding.AppendBools(b, t.KeepKeys, t.Secret != lease.Secret{}, flag, t.Bound)
	b = binary.AppendVarint(b, int64(t.LockDelay))
	if t.Secret != (lease.Secret{}) {
		b = append(b, t.Secret[:]...)
	}
	return b
}

func (d *decoder) more(t *lease.Terms) (flag bool) {
	f := d.Byte()
	t.KeepKeys, t.Bound, t.LockDelay = f&1 != 0, f&8 != 0, lease.TTL(d.Varint())
	if f&2 != 0 {
		t.Secret = d.secret()
	}
	return f&4 != 0
}

func appendTerms(b []byte, t *lease.Terms) []byte {
	b = binary.AppendVarint(b, int64(t.ID))
	b = binary.AppendVarint(b, int64(t.TTL))
	for _, s := range [...]string{t.Name, t.Owner, t.RequestID} {
		b = encoding.AppendBytes(b, s)
	}
	return encoding.AppendMap(b, t.Labels)
}

func (d *decoder) terms() lease.Terms {
	return lease.Terms{
		ID: lease.ID(d.Varint()), TTL: lease.TTL(d.Varint()),
		Name: d.Text(), Owner: d.Text(), RequestID: d.Text(),
		Labels: d.Map(),
	}
}

func appendExpire(b []byte, c *Expire) []byte {
	b = binary.AppendUvarint(b, c.Term)
	return encoding.AppendList(b, c.Leases, func(b []byte, l lease.Due) []byte {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		return binary.AppendUvarint(b, l.Stamp)
	})
}

func (d *decoder) expire() *Expire {
	one := func() lease.Due {
		return lease.Due{
			ID: lease.ID(d.Varint()), Token: lease.Token(d.Uvarint()), Stamp: d.Uvarint(),
		}
	}
	return &Expire{Term: d.Uvarint(), Leases: encoding.List(&d.Decoder, one)}
}

func appendCheckpoint(b []byte, c *Checkpoint, stamped bool) []byte {
	b = binary.AppendUvarint(b, c.Term)
	return encoding.AppendList(b, c.Leases, func(b []byte, l lease.Checkpoint) []byte {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		b = binary.AppendVarint(b, int64(l.Remaining))
		if stamped {
			b = binary.AppendUvarint(b, l.Stamp)
		}
		return b
	})
}

func (d *decoder) checkpoint(stamped bool) *Checkpoint {
	one := func() lease.Checkpoint {
		c := lease.Checkpoint{
			ID: lease.ID(d.Varint()), Token: lease.Token(d.Uvarint()),
			Remaining: lease.TTL(d.Varint()),
		}
		if stamped {
			c.Stamp = d.Uvarint()
		}
		return c
	}
	return &Checkpoint{Term: d.Uvarint(), Leases: encoding.List(&d.Decoder, one)}
}

func appendMember(b []byte, m Member) []byte {
	b = binary.AppendUvarint(b, m.ID)
	b = encoding.AppendBools(b, m.Learner, m.Incarnation != 0)
	if m.Incarnation != 0 {
		b = binary.AppendUvarint(b, m.Incarnation)
	}
	b = encoding.AppendBytes(b, m.Name)
	b = encoding.AppendList(b, m.PeerURLs, encoding.AppendBytes[string])
	return encoding.AppendList(b, m.ClientURLs, encoding.AppendBytes[string])
}

func (d *decoder) member() Member {
	m := Member{ID: d.Uvarint()}
	flags := d.Byte()
	m.Learner = flags&1 != 0
	if flags&2 != 0 {
		m.Incarnation = d.Uvarint()
	}
	m.Name = d.Text()
	m.PeerURLs = encoding.List(&d.Decoder, d.Text)
	m.ClientURLs = encoding.List(&d.Decoder, d.Text)
	return m
}
