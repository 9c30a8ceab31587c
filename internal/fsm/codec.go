package fsm

import (
	"encoding/binary"
	"fmt"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

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
	d := &decoder{b: data}
	if v := d.byte(); d.err == nil && (v == 0 || v > logVersion) {
		return nil, fmt.Errorf("%w: log entry of version %d, this release reads up to %d",
			ErrCorrupt, v, logVersion)
	}
	var groups []Group
	for len(d.b) > 0 {
		groups = append(groups, d.group())
	}
	if d.err != nil {
		return nil, d.err
	}
	return groups, nil
}

// group decodes commands up to where the origin changes.
func (d *decoder) group() Group {
	var g Group
	if d.b[0] != originMark {
		for len(d.b) > 0 && d.b[0] != originMark {
			g.Commands = append(g.Commands, d.command())
		}
		return g
	}
	d.byte()
	g.Origin = Origin{Member: d.uint64(), Seq: d.uint64()}
	n := d.count()
	g.Commands = make([]Command, 0, n)
	for range n {
		g.Commands = append(g.Commands, d.command())
	}
	return g
}

// DecodeCommands decodes n commands, one AppendCommand after another, of which
// nothing is known yet: they came from outside. It keeps no part of data.
func DecodeCommands(data []byte, n int) ([]Command, error) {
	d := &decoder{b: data}
	var commands []Command
	for range n {
		if commands = append(commands, d.command()); d.err != nil {
			return nil, d.err
		}
	}
	if len(d.b) > 0 {
		return nil, fmt.Errorf("%w: bytes follow %d commands", ErrCorrupt, n)
	}
	return commands, nil
}

// AppendCommand appends the encoding of one command to an entry.
func AppendCommand(b []byte, c Command) []byte {
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
		if b = appendTerms(b, &c.Terms); k == kindGrantMore {
			b = appendMore(b, &c.Terms, false)
		}
		return b
	case *Revoke:
		if k == kindRevokeMore {
			return appendRevoke(b, c)
		}
		return binary.AppendVarint(b, int64(c.ID))
	case *ChangeTTL:
		return binary.AppendVarint(appendToken(b, c.ID, c.Token), int64(c.TTL))
	case *HandOver:
		b = appendString(appendToken(b, c.ID, c.Token), c.Owner)
		return append(b, c.Secret[:]...)
	case *Resume:
		return append(binary.AppendVarint(b, int64(c.ID)), c.Secret[:]...)
	case *Expire:
		return appendExpire(b, c)
	case *Checkpoint:
		return appendCheckpoint(b, c, k == kindCheckpointMore)
	case *SetAlarm:
		b = appendBools(b, c.Off)
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
	switch k := kind(d.byte()); k {
	case kindPut:
		return d.put()
	case kindDeleteRange:
		return d.deleteRange()
	case kindTxn:
		return d.txn(0)
	case kindCompact:
		return &Compact{Revision: d.varint()}
	case kindGrant:
		return &Grant{Terms: d.terms()}
	case kindRevoke:
		return &Revoke{ID: lease.ID(d.varint())}
	case kindExpire:
		return d.expire()
	case kindCheckpoint, kindCheckpointMore:
		return d.checkpoint(k == kindCheckpointMore)
	case kindSetAlarm:
		off := d.byte()&1 != 0
		return &SetAlarm{Off: off, Alarm: Alarm{Member: d.uvarint(), Kind: AlarmKind(d.byte())}}
	case kindSetMember:
		return &SetMember{Member: d.member()}
	case kindAddMember:
		return &AddMember{Member: d.member()}
	case kindRemoveMember:
		return &RemoveMember{ID: d.uvarint()}
	case kindPromoteMember:
		return &PromoteMember{ID: d.uvarint()}
	default:
		return d.later(k)
	}
}

// later decodes the commands that the first releases did not have.
func (d *decoder) later(k kind) Command {
	switch k {
	case kindGrantMore:
		return d.grant()
	case kindRevokeMore:
		return d.revoke()
	case kindChangeTTL:
		c := &ChangeTTL{}
		c.ID, c.Token = d.token()
		c.TTL = lease.TTL(d.varint())
		return c
	case kindHandOver:
		c := &HandOver{}
		c.ID, c.Token = d.token()
		c.Owner, c.Secret = d.string(), d.secret()
		return c
	case kindResume:
		return &Resume{ID: lease.ID(d.varint()), Secret: d.secret()}
	default:
		d.fail(fmt.Sprintf("command of unknown kind %d", k))
		return nil
	}
}

func appendPut(b []byte, c *Put) []byte {
	b = appendBools(b, c.PrevKV, c.IgnoreValue, c.IgnoreLease)
	b = appendString(b, c.Key)
	b = appendBytes(b, c.Value)
	return binary.AppendVarint(b, int64(c.Lease))
}

func (d *decoder) put() *Put {
	f := d.byte()
	return &Put{
		PrevKV: f&1 != 0, IgnoreValue: f&2 != 0, IgnoreLease: f&4 != 0,
		Key: d.string(), Value: d.bytes(), Lease: lease.ID(d.varint()),
	}
}

func appendDelete(b []byte, c *DeleteRange) []byte {
	b = appendBools(b, c.PrevKV)
	return appendString(appendString(b, c.Key), c.End)
}

func (d *decoder) deleteRange() *DeleteRange {
	f := d.byte()
	return &DeleteRange{PrevKV: f&1 != 0, Key: d.string(), End: d.string()}
}

func appendRange(b []byte, c *Range) []byte {
	o := &c.Options
	b = appendBools(b, o.Descend, o.CountOnly)
	b = append(b, byte(o.SortBy))
	b = appendString(appendString(b, c.Key), c.End)
	for _, v := range [...]int64{
		o.Revision, o.Limit, o.MinModRevision, o.MaxModRevision,
		o.MinCreateRevision, o.MaxCreateRevision,
	} {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (d *decoder) rangeOp() *Range {
	f := d.byte()
	r := &Range{Options: mvcc.RangeOptions{Descend: f&1 != 0, CountOnly: f&2 != 0}}
	o := &r.Options
	o.SortBy = mvcc.SortBy(d.byte())
	r.Key, r.End = d.string(), d.string()
	for _, v := range [...]*int64{
		&o.Revision, &o.Limit, &o.MinModRevision, &o.MaxModRevision,
		&o.MinCreateRevision, &o.MaxCreateRevision,
	} {
		*v = d.varint()
	}
	return r
}

func appendToken(b []byte, id lease.ID, t lease.Token) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, int64(id)), uint64(t))
}

func (d *decoder) token() (lease.ID, lease.Token) {
	return lease.ID(d.varint()), lease.Token(d.uvarint())
}

func (d *decoder) secret() (s lease.Secret) {
	if len(d.b) < len(s) {
		d.fail("secret")
		return s
	}
	n := copy(s[:], d.b)
	d.b = d.b[n:]
	return s
}

func appendRevoke(b []byte, c *Revoke) []byte {
	return appendString(appendToken(b, c.ID, c.Token), c.By)
}

func (d *decoder) revoke() *Revoke {
	c := &Revoke{}
	c.ID, c.Token = d.token()
	c.By = d.string()
	return c
}

func (d *decoder) grant() *Grant {
	g := &Grant{Terms: d.terms()}
	d.more(&g.Terms)
	return g
}

// appendMore appends what appendTerms does not know.
func appendMore(b []byte, t *lease.Terms, delayed bool) []byte {
	b = appendBools(b, t.KeepKeys, t.Secret != lease.Secret{}, delayed)
	b = binary.AppendVarint(b, int64(t.LockDelay))
	if t.Secret != (lease.Secret{}) {
		b = append(b, t.Secret[:]...)
	}
	return b
}

func (d *decoder) more(t *lease.Terms) (delayed bool) {
	f := d.byte()
	t.KeepKeys, t.LockDelay = f&1 != 0, lease.TTL(d.varint())
	if f&2 != 0 {
		t.Secret = d.secret()
	}
	return f&4 != 0
}

func appendTerms(b []byte, t *lease.Terms) []byte {
	b = binary.AppendVarint(b, int64(t.ID))
	b = binary.AppendVarint(b, int64(t.TTL))
	b = appendString(appendString(appendString(b, t.Name), t.Owner), t.RequestID)
	return appendMap(b, t.Labels)
}

func (d *decoder) terms() lease.Terms {
	return lease.Terms{
		ID: lease.ID(d.varint()), TTL: lease.TTL(d.varint()),
		Name: d.string(), Owner: d.string(), RequestID: d.string(),
		Labels: d.stringMap(),
	}
}

func appendExpire(b []byte, c *Expire) []byte {
	b = binary.AppendUvarint(b, c.Term)
	b = binary.AppendUvarint(b, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		b = binary.AppendUvarint(b, l.Stamp)
	}
	return b
}

func (d *decoder) expire() *Expire {
	c := &Expire{Term: d.uvarint()}
	c.Leases = make([]lease.Due, d.count())
	for i := range c.Leases {
		c.Leases[i] = lease.Due{
			ID: lease.ID(d.varint()), Token: lease.Token(d.uvarint()), Stamp: d.uvarint(),
		}
	}
	return c
}

func appendCheckpoint(b []byte, c *Checkpoint, stamped bool) []byte {
	b = binary.AppendUvarint(b, c.Term)
	b = binary.AppendUvarint(b, uint64(len(c.Leases)))
	for _, l := range c.Leases {
		b = binary.AppendVarint(b, int64(l.ID))
		b = binary.AppendUvarint(b, uint64(l.Token))
		b = binary.AppendVarint(b, int64(l.Remaining))
		if stamped {
			b = binary.AppendUvarint(b, l.Stamp)
		}
	}
	return b
}

func (d *decoder) checkpoint(stamped bool) *Checkpoint {
	c := &Checkpoint{Term: d.uvarint()}
	c.Leases = make([]lease.Checkpoint, d.count())
	for i := range c.Leases {
		c.Leases[i] = lease.Checkpoint{
			ID: lease.ID(d.varint()), Token: lease.Token(d.uvarint()),
			Remaining: lease.TTL(d.varint()),
		}
		if stamped {
			c.Leases[i].Stamp = d.uvarint()
		}
	}
	return c
}

func appendMember(b []byte, m Member) []byte {
	b = binary.AppendUvarint(b, m.ID)
	b = appendBools(b, m.Learner)
	b = appendString(b, m.Name)
	return appendStrings(appendStrings(b, m.PeerURLs), m.ClientURLs)
}

func (d *decoder) member() Member {
	m := Member{ID: d.uvarint(), Learner: d.byte()&1 != 0, Name: d.string()}
	m.PeerURLs, m.ClientURLs = d.strings(), d.strings()
	return m
}
