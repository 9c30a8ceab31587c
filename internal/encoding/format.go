package encoding

import (
	"errors"
	"fmt"
)

// ErrNewer means that bytes have something in them that this release does not know: a version,
// a flag, or a kind. A newer release has written them, and it alone may act on them. To skip
// what is not known would be to do something else than the others do.
var ErrNewer = errors.New("encoding: written by a newer release")

// ErrOlder means that bytes are of a version that this release can read, and cannot go on with:
// a release between the two can.
var ErrOlder = errors.New("encoding: written by a release that is too old")

// Format is a form of records of which there are versions, such as the entries of the log.
type Format struct {
	// Name says what it is the format of, for people.
	Name string
	// Version is the newest that this release reads. The first is 1.
	Version byte
	// Corrupt is what errors wrap that are about bytes of no version.
	Corrupt error
}

// Decoder returns a decoder of b, which is of a version. It keeps b and does not change it.
func (f *Format) Decoder(version byte, b []byte) Decoder {
	return Decoder{b: b, format: f, version: version}
}

// Open returns a decoder of b, which begins with its version.
func (f *Format) Open(b []byte) Decoder {
	d := f.Decoder(0, b)
	d.Header()
	return d
}

// Header takes the version of what follows, and of what later decoders of the same record are
// given.
func (d *Decoder) Header() {
	if d.version = d.Byte(); d.version == 0 || d.version > d.format.Version {
		d.Unknown("version", uint64(d.version))
	}
}

// Version returns the version of the bytes.
func (d *Decoder) Version() byte { return d.version }

// Fail makes what was wrong the error, unless there is one already: the bytes are of no version.
func (d *Decoder) Fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s", d.format.Corrupt, d.format.Name, what)
	}
	d.at = len(d.b)
}

// Unknown makes it the error that something has a value that is not known, unless there is an
// error already. It is [ErrNewer]; but nothing that is counted from 1 ever is 0.
func (d *Decoder) Unknown(what string, value uint64) {
	if value == 0 {
		d.Fail(what + " 0")
		return
	}
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s: %s %d is not known here (this release has version %d of the "+
			"format)", ErrNewer, d.format.Name, what, value, d.format.Version)
	}
	d.at = len(d.b)
}

// Flags takes a byte of flags. One that is not among the known is an error, so that none is
// ever ignored.
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

// Bool takes a byte that is 0 or 1.
func (d *Decoder) Bool(of string) bool { return d.Flags(of, 1) != 0 }

// Choice takes one of the values from 0 to most.
func (d *Decoder) Choice(of string, most byte) byte {
	v := d.Byte()
	if v > most {
		d.Unknown(of, uint64(v))
		return 0
	}
	return v
}
