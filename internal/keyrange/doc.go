// Package keyrange implements ranges of keys, and a tree that finds the ranges that overlap a given
// range.
//
// A Range has the same form as in the API and in etcd, with a short form for a single key. It is
// meant for storing, sending and comparing. A Span consists only of a start and an end. It is meant
// for splitting and joining.
//
// The package is pure. All values except trees are immutable and safe for concurrent use.
package keyrange
