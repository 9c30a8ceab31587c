// Package keyrange has the arithmetic of ranges of keys, and a tree that finds the ranges that
// overlap another.
//
// A range has two forms. A Range is in the form of the API and etcd, with a short form for one
// key; it is stored, sent and compared. A Span has only a beginning and an end; it is cut and
// joined.
//
// The package is pure. Its values do not change and are safe for concurrent use; nothing else is.
package keyrange
