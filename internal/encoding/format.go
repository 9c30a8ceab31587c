package encoding

import (
	"errors"
	"fmt"
)

// ErrNewer means that the bytes contain a version, flag or kind that this release does not know. A
// newer release wrote them, and only that release can act on them. If members skipped the unknown
// part, their states would diverge.
var ErrNewer = errors.New("encoding: written by a newer release")

// ErrOlder means that this release can read this version of the bytes but cannot continue from it.
// An intermediate release can.
var ErrOlder = errors.New("encoding: written by a release that is too old")

// Format is a versioned format for records, such as log entries.
type Format struct {
	// Name is the format's name in error messages.
	Name string
	// Version is the newest version that this release can read. The first version is 1.
	Version byte
	// Corrupt is wrapped by errors about bytes that are invalid in every version.
	Corrupt error
}

// Decoder returns a decoder for b in the given version. It retains b but does not modify it.
func (f *Format) Decoder(version byte, b []byte) Decoder {
	return Decoder{b: b, format: f, version: version}
}

// Open returns a decoder for b, which begins with its version.
func (f *Format) Open(b []byte) Decoder {
	d := f.Decoder(0, b)
	d.Header()
	return d
}

// Header reads the version of the bytes that follow.
func (d *Decoder) Header() {
	if d.version = d.Byte(); d.version == 0 || d.version > d.format.Version {
		d.Unknown("version", uint64(d.version))
	}
}

// Version returns the version of the bytes.
func (d *Decoder) Version() byte { return d.version }

// Fail sets the error for bytes that are invalid in every version, unless an error is already set.
func (d *Decoder) Fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s", d.format.Corrupt, d.format.Name, what)
	}
	d.at = len(d.b)
}

// Unknown sets the error [ErrNewer] for an unknown value, unless an error is already set. A value
// of 0 is invalid in every version, because such values start at 1.
func (d *Decoder) Unknown(what string, value uint64) {
	if value == 0 {
		d.Fail(what + " 0")
		return
	}
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s %d is not supported (this release supports format "+
			"version %d)", ErrNewer, d.format.Name, what, value, d.format.Version)
	}
	d.at = len(d.b)
}

// Flags reads a byte of flags. Any flag that is not in known is an error, so no flag is ever
// ignored.
func (d *Decoder) Flags(of string, known byte) byte {
	if d.at < len(d.b) && d.b[d.at]&^known == 0 {
		d.at++
		return d.b[d.at-1]
	}
	d.unknownFlags(of, known)
	return 0
}

func (d *Decoder) unknownFlags(of string, known byte) {
	d.Unknown("flags of "+of, uint64(d.Byte()&^known))
}

// Bool reads a byte that must be 0 or 1.
func (d *Decoder) Bool(of string) bool { return d.Flags(of, 1) != 0 }

// Choice reads a value between 0 and most.
func (d *Decoder) Choice(of string, most byte) byte {
	v := d.Byte()
	if v > most {
		d.Unknown(of, uint64(v))
		return 0
	}
	return v
}
