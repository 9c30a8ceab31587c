// Package encoding is the simple form in which numbers, texts and lists stand in
// log entries, snapshots and messages between members: unsigned varints, zig-zag
// varints for signed numbers, and a length or a count before what has one.
//
// What is written is not marked with its kind, so the reader takes the fields in
// the order in which they were appended. Versions, checksums and frames are the
// callers'. Numbers are appended with encoding/binary; here is the rest.
package encoding
