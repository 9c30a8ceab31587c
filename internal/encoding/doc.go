// Package encoding encodes numbers, strings and lists in log entries, snapshots and messages
// between members. It uses unsigned varints, zig-zag varints for signed numbers, and a length or
// count before strings and lists.
//
// Fields have no tags: they are read in the order in which they were appended. A byte of flags
// indicates which optional fields follow. Checksums and framing are up to the caller. Numbers are
// appended with encoding/binary; this package provides the rest.
//
// Each [Format] has versions. A [Decoder] takes the version from the start of its bytes or from the
// enclosing record, and accepts only what exists in that version. An unknown flag, kind or choice
// causes [ErrNewer] and is never ignored. Bytes that are invalid in every version cause an error
// defined by the format.
package encoding
