// Package encoding encodes numbers, strings and lists in log entries, snapshots and messages
// between members: unsigned varints, zig-zag varints for signed numbers, and a length or count
// before strings and lists.
//
// Fields have no tags: they are read in the order in which they were appended. A byte of flags says
// which optional fields follow. Checksums and framing are up to the caller. encoding/binary appends
// numbers; this package has the rest.
//
// Each [Format] has versions. A [Decoder] gets the version from the start of its bytes or from the
// record around them, and accepts only what that version has. An unknown flag, kind or choice is
// [ErrNewer] and is never ignored. Bytes that no version allows are an error of the format's own.
package encoding
