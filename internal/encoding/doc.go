// Package encoding encodes numbers, texts and lists in log entries, snapshots and messages
// between members: unsigned varints, zig-zag varints for signed numbers, and a length or a count
// before texts and lists.
//
// Fields have no tags, so the reader takes them in the order in which they were appended. A byte
// of flags before optional fields says which are present. Checksums and frames are the caller's
// task. Numbers are appended with encoding/binary; this package has the rest.
//
// Each [Format] has versions. A [Decoder] gets the version of its bytes from their beginning or
// from the record around them, and accepts only what that version has. An unknown flag, kind or
// choice is [ErrNewer], and is never ignored. Bytes that no version allows are an error of the
// format's own.
package encoding
