package encoding

import (
	"errors"
	"fmt"
)

// ErrNewer means that the bytes contain a version, flag or kind that this release does not know. A
// newer release wrote them, and only it may act on them: skipping the unknown part would make
// members differ.
var ErrNewer = errors.New("encoding: written by a newer release")

// ErrOlder means that this release can read the version of the bytes but cannot continue from it. A
// release between the two can.
var ErrOlder = errors.New("encoding: written by a release that is too old")

// Format is a versioned format of records, such as the entries of the log.
type Format struct {
	// Name is the name of the format in error texts.
	Name string
	// Version is the newest version that this release reads. The first is 1.
	Version byte
	// Corrupt is wrapped by errors about bytes that no version allows.
	Corrupt error
}

// Decoder returns a decoder of b in the given version. It keeps b, and does not modify it.
func (f *Format) Decoder(version byte, b []byte) Decoder {
	return Decoder{b: b, format: f, version: version}
}

// Open returns a decoder of b, which starts with its version.
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

// Fail sets the error for bytes that are invalid in every version, unless there is an error
// already.
func (d *Decoder) Fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s", d.format.Corrupt, d.format.Name, what)
	}
	d.at = len(d.b)
}

// Unknown sets the error [ErrNewer] for an unknown value, unless there is an error already. Values
// that are counted from 1 are never 0.
func (d *Decoder) Unknown(what string, value uint64) {
	if value == 0 {
		d.Fail(what + " 0")
		return
	}
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s %d is not supported (this release has version %d of the "+
			"format)", ErrNewer, d.format.Name, what, value, d.format.Version)
	}
	d.at = len(d.b)
}

// Flags reads a byte of flags. Flags that are not in known are an error, so that none is ever
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

// Bool reads a byte that is 0 or 1.
func (d *Decoder) Bool(of string) bool { return d.Flags(of, 1) != 0 }

// Choice reads a value from 0 to most.
func (d *Decoder) Choice(of string, most byte) byte {
	v := d.Byte()
	if v > most {
		d.Unknown(of, uint64(v))
		return 0
	}
	return v
}
