// Package dump prints the records of backups and of data directories as they are, for people and
// as JSON. docs/formats.md and the output use the same names: those of the fields of the structs
// into which the records are decoded.
//
// It prints one record after another, so a dump takes as much memory as the largest record. For a
// record that it cannot read it prints an error in its place, and goes on with the next one.
package dump
