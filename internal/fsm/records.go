package fsm

import (
	"fmt"
	"iter"
)

// A Record is one record of a snapshot, for programs that read individual records instead of the
// whole state.
type Record struct {
	// Kind is the name of the record in the package documentation.
	Kind string
	// Value is a struct with the fields of the record.
	Value any
}

// Scanner decodes the chunks of a snapshot in order. The zero value is ready to use. It checks less
// than Restore: only that every record can be decoded and that no record is missing.
type Scanner struct {
	version byte // from the header; 0 before the header
	records uint64
	ended   bool // the trailer has been read
	names   nameTable
}

// Records yields the records of the next chunk. Values can share memory with the chunk. If a record
// cannot be decoded, Records yields an error in its place and stops. The next chunk can still be
// read, unless the error was in the header.
func (s *Scanner) Records(chunk []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		d := &decoder{
			Decoder: snapshotFormat.Decoder(s.version, chunk), names: &s.names,
		}
		for d.Len() > 0 {
			r := s.record(d)
			s.records++
			if d.Err() != nil {
				s.Lost()
			}
			if !yield(r, d.Err()) {
				return
			}
		}
	}
}

// Lost informs the Scanner that records are missing at this point. Later records refer to writers
// and long keys by number. For an unknown number, the Scanner returns "?" followed by the number.
func (s *Scanner) Lost() { s.names.lost = true }

// End returns an error if the snapshot is incomplete.
func (s *Scanner) End() error {
	if !s.ended {
		return fmt.Errorf("%w: snapshot ends early", ErrCorrupt)
	}
	return nil
}

func (s *Scanner) record(d *decoder) Record {
	switch tag := d.Byte(); {
	case s.ended:
		d.Fail("a record follows the trailer")
	case s.version != 0 && tag != tagHeader:
		return s.body(d, tag)
	case tag != tagHeader || s.records > 0:
		d.Fail("the first record must be the header")
	default:
		h := d.header()
		if d.Err() == nil {
			s.version = h.Version.Number
		}
		return Record{"header", h}
	}
	return Record{}
}

// body decodes a record other than the header.
func (s *Scanner) body(d *decoder, tag byte) Record {
	switch tag {
	case tagRestore:
		return Record{"restore", struct{ ID uint64 }{d.restoreID(0)}}
	case tagMember:
		return Record{"member", d.member()}
	case tagRemoved:
		return Record{"removed", RemoveMember{ID: d.Uint64()}}
	case tagAlarm:
		return Record{"alarm", d.alarm()}
	case tagComparison:
		var c comparison
		d.comparison(&c)
		return Record{"comparison", c.reported()}
	case tagControl, tagRole, tagUser, tagLimits:
		return accessRecord(d, tag)
	case tagLease:
		return Record{"lease", d.info()}
	case tagSession:
		x := d.session()
		return Record{"session", struct {
			Session
			Settled uint64
		}{x.Session, x.settled}}
	case tagSessionUser:
		return Record{"session user", struct{ User string }{d.Text()}}
	case tagAnswer:
		x := d.answer()
		return Record{"answer", struct {
			Number uint64
			Result
		}{x.number, x.result}}
	case tagHolds:
		return Record{"holds", d.heldBy()}
	case tagOrphan:
		return Record{"orphan", d.orphan()}
	case tagAccount:
		return Record{"account", d.account()}
	case tagRecord:
		return Record{"version", d.record()}
	case tagTrailer:
		return s.trailer(d)
	}
	d.Unknown("record kind", uint64(tag))
	return Record{}
}

// accessRecord decodes a record of users and roles.
func accessRecord(d *decoder, tag byte) Record {
	switch tag {
	case tagControl:
		return Record{"access", d.control()}
	case tagRole:
		return Record{"role", d.role()}
	case tagLimits:
		return Record{"limits", *d.setLimits()}
	default:
		return Record{"user", d.user()}
	}
}

func (s *Scanner) trailer(d *decoder) Record {
	n := d.Uvarint()
	s.ended = d.Err() == nil
	if n != s.records {
		d.Fail(fmt.Sprintf("the trailer specifies %d records, but there are %d", n, s.records))
	}
	return Record{"trailer", struct{ Records uint64 }{n}}
}
