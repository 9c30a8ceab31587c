package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"leasehold.dev/internal/encoding"
)

// A piece of a copied log consists of the magic line, a record, and the SHA-256 of both. Its
// version is in the magic line.
const pieceMagic = "leasehold log 1\n"

var pieceFormat = encoding.Format{Name: "a piece of a log", Version: 1, Corrupt: ErrNotWhole}

// Place is a position in a log, just after one of its entries. If two logs have a place in common,
// they are the same up to it.
type Place struct{ Index, Term uint64 }

// before reports whether p precedes q in the history of a cluster, in which terms never decrease.
func (p Place) before(q Place) bool {
	return p.Term < q.Term || p.Term == q.Term && p.Index < q.Index
}

// History identifies the history of one cluster. A restore begins a new history. The restored
// cluster keeps the ID of the cluster that made the backup, and that cluster may still be running.
type History struct {
	Cluster uint64
	Restore uint64 // ID of the restore that began the history; 0 if there was none
}

// String returns the history in readable form.
func (h History) String() string {
	if h.Restore == 0 {
		return fmt.Sprintf("cluster %016x", h.Cluster)
	}
	return fmt.Sprintf("cluster %016x since restore %016x", h.Cluster, h.Restore)
}

// Entry is a log entry. Its index is implied by its position in a [Piece].
type Entry struct {
	Term uint64
	Type byte // as in Raft: 0 for commands, 2 for a membership change
	Data []byte
}

// Mark records when the entries up to an index were committed. The time is in milliseconds since
// 1970, by the clock of the member that copied them.
type Mark struct {
	Index uint64
	Milli int64
}

// Piece is a part of a cluster's log.
//
// Invariant: the indexes of Marks increase, and the last one is the index of Last.
type Piece struct {
	History
	Previous Place // place before the first entry
	Marks    []Mark
	Entries  []Entry
}

// Last returns the place of the last entry in the piece.
func (p *Piece) Last() Place {
	n := len(p.Entries)
	if n == 0 {
		return p.Previous
	}
	return Place{p.Previous.Index + uint64(n), p.Entries[n-1].Term}
}

// TermAt returns the term of the entry at an index. The index may also be that of the entry just
// before the piece.
func (p *Piece) TermAt(index uint64) (term uint64, ok bool) {
	switch at := index - p.Previous.Index; {
	case index < p.Previous.Index || at > uint64(len(p.Entries)):
		return 0, false
	case at == 0:
		return p.Previous.Term, true
	default:
		return p.Entries[at-1].Term, true
	}
}

// Encode returns the piece in encoded form.
func (p *Piece) Encode() []byte {
	size := len(pieceMagic) + 64 + 16*len(p.Marks) + sha256.Size
	for i := range p.Entries {
		size += len(p.Entries[i].Data) + 16
	}
	b := append(make([]byte, 0, size), pieceMagic...)
	b = binary.BigEndian.AppendUint64(b, p.Cluster)
	b = binary.BigEndian.AppendUint64(b, p.Restore)
	b = binary.AppendUvarint(binary.AppendUvarint(b, p.Previous.Index), p.Previous.Term)
	b = encoding.AppendList(b, p.Marks, func(b []byte, m Mark) []byte {
		return binary.AppendVarint(binary.AppendUvarint(b, m.Index), m.Milli)
	})
	b = encoding.AppendList(b, p.Entries, func(b []byte, e Entry) []byte {
		return encoding.AppendBytes(binary.AppendUvarint(append(b, e.Type), e.Term), e.Data)
	})
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// DecodePiece decodes a piece encoded by Encode. The entries share memory with b.
func DecodePiece(b []byte) (Piece, error) {
	if line, _, _ := bytes.Cut(b, []byte("\n")); string(line)+"\n" != pieceMagic {
		line = line[:min(len(line), len(pieceMagic)+8)]
		if v, ok := strings.CutPrefix(string(line), "leasehold log "); ok && isNumber(v) {
			return Piece{}, fmt.Errorf("%w: it begins with %q", encoding.ErrNewer, line)
		}
		return Piece{}, fmt.Errorf("%w: it does not begin with %q", ErrNotWhole, pieceMagic)
	}
	at := len(b) - sha256.Size
	if at < len(pieceMagic) {
		return Piece{}, fmt.Errorf("%w: it ends early, after %d bytes", ErrNotWhole, len(b))
	}
	if sum := sha256.Sum256(b[:at]); !bytes.Equal(sum[:], b[at:]) {
		return Piece{}, fmt.Errorf("%w: the SHA-256 at its end does not match", ErrNotWhole)
	}
	d := pieceFormat.Decoder(1, b[len(pieceMagic):at])
	p := Piece{History: History{d.Uint64(), d.Uint64()}, Previous: Place{d.Uvarint(), d.Uvarint()}}
	p.Marks = encoding.List(&d, func() Mark { return Mark{d.Uvarint(), d.Varint()} })
	p.Entries = encoding.List(&d, func() Entry {
		return Entry{Type: d.Byte(), Term: d.Uvarint(), Data: d.View()}
	})
	if err := d.End(); err != nil {
		return Piece{}, err
	}
	return p, p.check()
}

// check returns an error for a piece that Encode would never write.
func (p *Piece) check() error {
	before := p.Previous.Index
	for _, m := range p.Marks {
		if m.Index <= before {
			return fmt.Errorf("%w: the times of its entries are out of order", ErrNotWhole)
		}
		before = m.Index
	}
	if len(p.Entries) == 0 || before != p.Last().Index {
		return fmt.Errorf("%w: the commit time of its last entry is missing", ErrNotWhole)
	}
	return nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
