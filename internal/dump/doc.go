// Package dump prints the records of backups and data directories as JSON, one per line. The output
// uses the names from docs/formats.md, from the package comment of fsm, and from the structs that
// the records are decoded into.
//
// Records are printed one at a time, so a dump needs only enough memory for the largest record. If
// a record cannot be read, an error is printed in its place, and the dump continues with the next
// record.
package dump
