package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
)

// ErrCorrupt means that data from the log or a snapshot cannot be decoded. Data written by a newer
// release causes encoding.ErrNewer instead.
var ErrCorrupt = errors.New("fsm: corrupt encoding")

// logFormat is the format of log entries, and snapshotFormat is the format of snapshots. They share
// the encoding of leases and of the parts of commands. Every entry and every snapshot header begins
// with a version: the cluster version when it was written.
var (
	logFormat = encoding.Format{
		Name: "log entry", Version: version.Newest, Corrupt: ErrCorrupt,
	}
	snapshotFormat = encoding.Format{
		Name: "snapshot", Version: version.Newest, Corrupt: ErrCorrupt,
	}
)

// decoder decodes commands and their parts.
type decoder struct {
	encoding.Decoder
	mem *slabs // nil until a command is decoded
	// If views is set, values that the store copies anyway remain in the input buffer.
	views bool
	// names holds the names in the records decoded so far, across all chunks of a snapshot.
	names *nameTable
}

func (d *decoder) putValue() []byte {
	v := d.View()
	if d.views && len(v) <= mvcc.ShortValue {
		return v
	}
	return slices.Clone(v)
}

// slabs returns the memory for decoded commands, allocating it on first use.
func (d *decoder) slabs() *slabs {
	if d.mem == nil {
		d.mem = &slabs{}
	}
	return d.mem
}

// maxTxnDepth bounds the nesting of transactions, so that a malicious entry cannot exhaust the
// stack. The API rejects deeper transactions before they are proposed.
const maxTxnDepth = 32

// A log entry is a format version followed by groups of commands that were proposed together.
// AppendEntry begins an entry, and AppendCommand adds a command. A group begins with a header: a
// byte of flags whose highest bit is set, followed by the fields selected by the flags. Commands
// from clients of the proposing member need no header: any commands before the first header form a
// group. An attribute of a whole group therefore costs one flag, and takes no space when absent.

// Origin identifies the member that received the commands. When that member applies the commands,
// the origin lets it recognize their results as its own.
type Origin struct {
	// Member is the ID of the member, or 0 for the member that proposed the entry.
	Member uint64
	// Seq is the number that the member assigned to the first command. The others are numbered
	// consecutively.
	Seq uint64
}

// Group is a run of commands in an entry that share an origin.
type Group struct {
	Origin   Origin
	Commands []Command
}

// groupHeader distinguishes the header of a group from a command. The kind of every command is
// smaller.
const groupHeader byte = 0x80

// Flags of a group header.
const (
	groupOrigin byte = 1 << iota // the origin of the commands
	groupCount                   // the number of commands; 1 without this flag
)

// AppendEntry begins the encoding of a log entry for a cluster version.
func AppendEntry(b []byte, v byte) []byte { return append(b, v) }

// AppendGroup begins a group of n commands with origin o.
func AppendGroup(b []byte, o Origin, n int) []byte {
	given := o != Origin{}
	b = append(b, groupHeader|encoding.Flag(given, groupOrigin)|encoding.Flag(n != 1, groupCount))
	if given {
		b = binary.BigEndian.AppendUint64(b, o.Member)
		b = binary.BigEndian.AppendUint64(b, o.Seq)
	}
	if n != 1 {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// DecodeEntry decodes a log entry. It does not retain data. If there is an error, it also returns
// the groups decoded so far, for tools that print entries. A member does not apply any of those
// groups.
func DecodeEntry(data []byte) ([]Group, error) {
	var r Reader
	return r.decode(data)
}

// DecodeCommands decodes an entry forwarded by another member: a single group without an origin. It
// does not retain data.
func DecodeCommands(data []byte) ([]Command, error) {
	groups, err := DecodeEntry(data)
	switch {
	case err != nil:
		return nil, err
	case len(groups) != 1 || groups[0].Origin != Origin{}:
		return nil, fmt.Errorf("%w: forwarded commands must form one group with no origin",
			ErrCorrupt)
	default:
		return groups[0].Commands, nil
	}
}

// AppendCommand appends the encoding of one command to an entry.
func AppendCommand(b []byte, c Command) []byte {
	b = append(b, byte(c.kind()))
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
		return appendGrant(b, c)
	case *Revoke:
		return appendRevoke(b, c)
	case *ChangeTTL:
		return appendChangeTTL(b, c)
	case *HandOver:
		return appendHandOver(b, c)
	case *Resume:
		return appendResume(b, c)
	case *OpenSession:
		return binary.BigEndian.AppendUint64(b, c.Nonce)
	case *Once:
		return appendOnce(b, c)
	case *Expire:
		return appendExpire(b, c)
	case *Checkpoint:
		return appendCheckpoint(b, c)
	case *DropOrphans:
		return appendDropOrphans(b, c)
	case *SetAlarm:
		b = append(b, encoding.Flag(c.Off, alarmOff))
		return appendAlarm(b, c.Alarm)
	case *SetMember:
		return appendMember(b, c.Member)
	case *AddMember:
		return appendMember(b, c.Member)
	case *RemoveMember:
		return binary.BigEndian.AppendUint64(b, c.ID)
	case *PromoteMember:
		return binary.BigEndian.AppendUint64(b, c.ID)
	case *SetVersion:
		return appendSetVersion(b, c)
	case *HashState:
		return b
	case *StateHash:
		return appendStateHash(b, c)
	case *By:
		return appendBy(b, c)
	default:
		return appendAccess(b, c)
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
	case kindOnce:
		return d.once()
	case kindGrant:
		return d.grant()
	case kindRevoke:
		return d.revoke()
	case kindChangeTTL:
		return d.changeTTL()
	case kindHandOver:
		return d.handOver()
	case kindResume:
		return d.resume()
	case kindOpenSession:
		return &OpenSession{Nonce: d.Uint64()}
	case kindBy, kindByRoles:
		return d.by(k)
	default:
		if k.changesAccess() {
			return d.accessCommand(k)
		}
		return d.internal(k)
	}
}

// internal decodes commands issued by members rather than clients.
func (d *decoder) internal(k kind) Command {
	switch k {
	case kindCompact:
		return &Compact{Revision: d.Varint()}
	case kindExpire:
		return d.expire()
	case kindCheckpoint:
		return d.checkpoint()
	case kindDropOrphans:
		return d.dropOrphans()
	case kindSetAlarm:
		off := d.Flags("an alarm's change", alarmOff)&alarmOff != 0
		a := d.alarm()
		if a.Kind.found() {
			d.Fail("an alarm that cannot be set")
		}
		return &SetAlarm{Off: off, Alarm: a}
	case kindSetMember:
		return &SetMember{Member: d.member()}
	case kindAddMember:
		return &AddMember{Member: d.member()}
	case kindRemoveMember:
		return &RemoveMember{ID: d.Uint64()}
	case kindPromoteMember:
		return &PromoteMember{ID: d.Uint64()}
	case kindSetVersion:
		return d.setVersion()
	case kindHashState:
		return &HashState{}
	case kindStateHash:
		return d.stateHash()
	default:
		d.Unknown("a command of kind", uint64(k))
		return nil
	}
}
