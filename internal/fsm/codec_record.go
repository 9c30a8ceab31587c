package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// These records occur in commands, results and snapshots.

// Flags for the terms of a lease. The last one means that a byte of rare flags follows.
const (
	termsName byte = 1 << iota
	termsOwner
	termsRequest
	termsLabels
	termsMore

	termsFlags = termsName | termsOwner | termsRequest | termsLabels | termsMore
)

const (
	moreKeepKeys byte = 1 << iota
	moreBound
	moreLockDelay
	moreSecret
	morePrincipal

	moreFlags = moreKeepKeys | moreBound | moreLockDelay | moreSecret | morePrincipal
)

func appendTerms(b []byte, t *lease.Terms) []byte {
	more := encoding.Flag(t.KeepKeys, moreKeepKeys) | encoding.Flag(t.Bound, moreBound) |
		encoding.Flag(t.LockDelay != 0, moreLockDelay) |
		encoding.Flag(t.Secret != lease.Secret{}, moreSecret) |
		encoding.Flag(t.Principal != "", morePrincipal)
	b = append(b, encoding.Flag(t.Name != "", termsName)|encoding.Flag(t.Owner != "", termsOwner)|
		encoding.Flag(t.RequestID != "", termsRequest)|
		encoding.Flag(len(t.Labels) > 0, termsLabels)|encoding.Flag(more != 0, termsMore))
	b = binary.AppendVarint(appendID(b, t.ID), int64(t.TTL))
	for _, s := range [...]string{t.Name, t.Owner, t.RequestID} {
		if s != "" {
			b = encoding.AppendBytes(b, s)
		}
	}
	if len(t.Labels) > 0 {
		b = encoding.AppendMap(b, t.Labels)
	}
	if more != 0 {
		b = appendMore(b, t, more)
	}
	return b
}

func appendMore(b []byte, t *lease.Terms, more byte) []byte {
	b = append(b, more)
	if more&moreLockDelay != 0 {
		b = binary.AppendVarint(b, int64(t.LockDelay))
	}
	if more&moreSecret != 0 {
		b = append(b, t.Secret[:]...)
	}
	if more&morePrincipal != 0 {
		b = encoding.AppendBytes(b, t.Principal)
	}
	return b
}

func (d *decoder) terms(t *lease.Terms) {
	f := d.Flags("a lease's terms", termsFlags)
	t.ID, t.TTL = d.id(), lease.TTL(d.Varint())
	if f&termsName != 0 {
		t.Name = d.Text()
	}
	if f&termsOwner != 0 {
		t.Owner = d.Text()
	}
	if f&termsRequest != 0 {
		t.RequestID = d.Text()
	}
	if f&termsLabels != 0 {
		t.Labels = d.Map()
	}
	if f&termsMore != 0 {
		d.more(t)
	}
}

func (d *decoder) more(t *lease.Terms) {
	f := d.Flags("a lease's optional terms", moreFlags)
	t.KeepKeys, t.Bound = f&moreKeepKeys != 0, f&moreBound != 0
	if f&moreLockDelay != 0 {
		t.LockDelay = lease.TTL(d.Varint())
	}
	if f&moreSecret != 0 {
		t.Secret = d.secret()
	}
	if f&morePrincipal != 0 {
		t.Principal = d.Text()
	}
}

func (d *decoder) secret() (s lease.Secret) {
	for i := 0; i < len(s); i += 8 {
		binary.BigEndian.PutUint64(s[i:], d.Uint64())
	}
	return s
}

// Flags of a lease.
const (
	infoDelayed byte = 1 << iota
	infoRemaining
)

func appendInfo(b []byte, l *lease.Info) []byte {
	b = append(b, encoding.Flag(l.Delayed, infoDelayed)|
		encoding.Flag(l.Remaining != 0, infoRemaining))
	b = appendTerms(b, &l.Terms)
	b = binary.AppendUvarint(b, uint64(l.Token))
	b = binary.AppendUvarint(b, l.Stamp)
	if l.Remaining != 0 {
		b = binary.AppendVarint(b, int64(l.Remaining))
	}
	return b
}

func (d *decoder) info() (i lease.Info) {
	f := d.Flags("a lease", infoDelayed|infoRemaining)
	i.Delayed = f&infoDelayed != 0
	d.terms(&i.Terms)
	i.Token, i.Stamp = lease.Token(d.Uvarint()), d.Uvarint()
	if f&infoRemaining != 0 {
		i.Remaining = lease.TTL(d.Varint())
	}
	return i
}

func appendHeld(b []byte, r keyrange.Range) []byte {
	return encoding.AppendBytes(encoding.AppendBytes(b, r.Key), r.End)
}

func (d *decoder) ranges() []keyrange.Range {
	return encoding.List(&d.Decoder, func() keyrange.Range {
		return keyrange.Range{Key: d.Text(), End: d.Text()}
	})
}

// alarmOff is set in a SetAlarm that clears the alarm.
const alarmOff byte = 1

func appendAlarm(b []byte, a Alarm) []byte {
	return append(binary.BigEndian.AppendUint64(b, a.Member), byte(a.Kind))
}

func (d *decoder) alarm() Alarm {
	a := Alarm{Member: d.Uint64(), Kind: AlarmKind(d.Byte())}
	if !a.Kind.known() {
		d.Unknown("an alarm of kind", uint64(a.Kind))
	}
	return a
}

// Flags of a member.
const (
	memberLearner byte = 1 << iota
	memberIncarnation
	memberVersions
	memberQuota
	memberTokenKey

	memberFlags = memberLearner | memberIncarnation | memberVersions | memberQuota | memberTokenKey
)

func appendMember(b []byte, m Member) []byte {
	b = append(b, encoding.Flag(m.Learner, memberLearner)|
		encoding.Flag(m.Incarnation != 0, memberIncarnation)|
		encoding.Flag(m.Versions.Known(), memberVersions)|
		encoding.Flag(m.Quota != 0, memberQuota)|
		encoding.Flag(m.TokenKey != "", memberTokenKey))
	b = binary.BigEndian.AppendUint64(b, m.ID)
	if m.Incarnation != 0 {
		b = binary.BigEndian.AppendUint64(b, m.Incarnation)
	}
	if m.Versions.Known() {
		b = append(b, m.Versions.Oldest, m.Versions.Newest)
	}
	if m.Quota != 0 {
		b = binary.AppendVarint(b, m.Quota)
	}
	if m.TokenKey != "" {
		b = encoding.AppendBytes(b, m.TokenKey)
	}
	b = encoding.AppendBytes(b, m.Name)
	b = encoding.AppendList(b, m.PeerURLs, encoding.AppendBytes[string])
	return encoding.AppendList(b, m.ClientURLs, encoding.AppendBytes[string])
}

func (d *decoder) member() Member {
	f := d.Flags("a member", memberFlags)
	m := Member{ID: d.Uint64(), Learner: f&memberLearner != 0}
	if f&memberIncarnation != 0 {
		m.Incarnation = d.Uint64()
	}
	if f&memberVersions != 0 {
		m.Versions = version.Range{Oldest: d.Byte(), Newest: d.Byte()}
		if !m.Versions.Known() {
			d.Fail("a member's versions")
		}
	}
	if f&memberQuota != 0 {
		if m.Quota = d.Varint(); m.Quota == 0 {
			d.Fail("a member's quota")
		}
	}
	if f&memberTokenKey != 0 {
		if m.TokenKey = d.Text(); m.TokenKey == "" {
			d.Fail("a member's token key")
		}
	}
	m.Name = d.Text()
	m.PeerURLs = encoding.List(&d.Decoder, d.Text)
	m.ClientURLs = encoding.List(&d.Decoder, d.Text)
	return m
}

// kvLease is set in a key-value pair that is attached to a lease.
const kvLease byte = 1

func appendKV(b []byte, kv *mvcc.KeyValue) []byte {
	b = append(b, encoding.Flag(kv.Lease != 0, kvLease))
	b = encoding.AppendBytes(encoding.AppendBytes(b, kv.Key), kv.Value)
	for _, v := range [...]int64{kv.CreateRevision, kv.ModRevision, kv.Version} {
		b = binary.AppendVarint(b, v)
	}
	if kv.Lease != 0 {
		b = appendID(b, lease.ID(kv.Lease))
	}
	return b
}

func (d *decoder) kv() *mvcc.KeyValue {
	f := d.Flags("a pair", kvLease)
	kv := &mvcc.KeyValue{
		Key: d.Text(), Value: d.Bytes(),
		CreateRevision: d.Varint(), ModRevision: d.Varint(), Version: d.Varint(),
	}
	if f&kvLease != 0 {
		kv.Lease = int64(d.id())
	}
	return kv
}

// Flags for a record in the store's history. A tombstone's lease is the one whose end deleted the
// key.
const (
	recordTombstone byte = 1 << iota
	recordLease
	recordWriter
	recordLongKey
)

// nameTable holds text that several versions in a snapshot share: writers and long keys. The
// entries are numbered in order of first use. Each is written in full at its first use, and by
// number after that.
type nameTable struct {
	numbers map[string]uint64 // used by an encoder
	texts   []string          // used by a decoder
	lost    bool              // some records are missing, so new entries get no number
}

// longKey is the minimum length of a key in the table. For shorter keys, the table would use more
// memory than it saves.
const longKey = 64

func (n *nameTable) append(b []byte, name string) []byte {
	if at := n.numbers[name]; at != 0 {
		return binary.AppendUvarint(b, at)
	}
	if n.numbers == nil {
		n.numbers = make(map[string]uint64)
	}
	n.numbers[name] = uint64(len(n.numbers)) + 1
	return encoding.AppendBytes(binary.AppendUvarint(b, 0), name)
}

// named decodes a name, looking it up in the table or adding it.
func (d *decoder) named(what string) (text string) {
	n, t := d.Uvarint(), d.names
	switch {
	case n > uint64(len(t.texts)):
		if t.lost {
			return fmt.Sprintf("?%d", n)
		}
		d.Fail(what)
	case n > 0:
		return t.texts[n-1]
	default:
		if text = d.Text(); text == "" {
			d.Fail(what)
		}
		if !t.lost {
			t.texts = append(t.texts, text)
		}
	}
	return text
}

func appendRecord(b []byte, r *mvcc.Record, names *nameTable) []byte {
	long := len(r.Key) >= longKey
	b = append(b, encoding.Flag(r.Tombstone, recordTombstone)|
		encoding.Flag(r.Lease != 0, recordLease)|encoding.Flag(r.WrittenFor != "", recordWriter)|
		encoding.Flag(long, recordLongKey))
	b = binary.AppendVarint(binary.AppendVarint(b, r.ModRevision), r.Sub)
	if long {
		b = names.append(b, r.Key)
	} else {
		b = encoding.AppendBytes(b, r.Key)
	}
	if r.Lease != 0 {
		b = appendID(b, lease.ID(r.Lease))
	}
	if r.WrittenFor != "" {
		b = names.append(b, r.WrittenFor)
	}
	if r.Tombstone {
		return b
	}
	b = encoding.AppendBytes(b, r.Value)
	return binary.AppendVarint(binary.AppendVarint(b, r.CreateRevision), r.Version)
}

func (d *decoder) record() mvcc.Record {
	f := d.Flags("a record", recordTombstone|recordLease|recordWriter|recordLongKey)
	r := mvcc.Record{Tombstone: f&recordTombstone != 0}
	r.ModRevision, r.Sub = d.Varint(), d.Varint()
	if f&recordLongKey != 0 {
		r.Key = d.named("a long key")
	} else {
		r.Key = d.Text()
	}
	if f&recordLease != 0 {
		r.Lease = int64(d.id())
	}
	if f&recordWriter != 0 {
		r.WrittenFor = d.named("a record's writer")
	}
	if !r.Tombstone {
		if r.Value = d.View(); len(r.Value) > mvcc.ShortValue {
			r.Value = slices.Clone(r.Value) // the store copies short values
		}
		r.CreateRevision, r.Version = d.Varint(), d.Varint()
	}
	return r
}
