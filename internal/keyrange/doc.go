// Package keyrange implements ranges of keys, and a tree that finds the ranges that overlap a given
// one.
//
// A Range has the form of the API and of etcd, with a short form for one key; it is stored, sent
// and compared. A Span has only a start and an end; it is split and joined.
//
// The package is pure. Its values do not change and are safe for concurrent use, except for trees.
package keyrange
