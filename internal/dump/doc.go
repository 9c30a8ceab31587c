// Package dump prints the records of backups and of data directories, each record as it stands
// there, for people and as JSON. What docs/formats.md says of a record and what is printed of it
// have the same names: those of the fields of the structs that the records are decoded into.
//
// One record is printed after another, so a dump takes as much memory as the largest record. What
// cannot be read is told in its place, and what is sound after it is printed all the same.
package dump
