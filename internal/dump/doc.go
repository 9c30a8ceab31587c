// Package dump prints the records of backups and data directories as JSON, one per line. The names
// in the output are those of docs/formats.md, of the comment of package fsm, and of the fields of
// the structs into which the records are decoded.
//
// Records are printed one at a time, so a dump needs memory only for the largest one. If a record
// cannot be read, an error is printed in its place, and the dump continues with the next one.
package dump
