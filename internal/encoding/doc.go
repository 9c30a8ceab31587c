// Package encoding is the simple form in which numbers, texts and lists stand in
// log entries, snapshots and messages between members: unsigned varints, zig-zag
// varints for signed numbers, and a length or a count before what has one.
//
// What is written is not marked with its kind, so the reader takes the fields in
// the order in which they were appended. Fields that may be missing are announced
// by flags, of which there is a byte before them. Checksums and frames are the
// callers'. Numbers are appended with encoding/binary; here is the rest.
//
// Each [Format] has versions. A [Decoder] is given the version of its bytes, by
// what they begin with or by the record that they are part of, and takes only
// what that version has. What is not known is [ErrNewer], and never ignored: a
// flag, a kind, a choice. Bytes that no version has are an error of the format's own.
package encoding
