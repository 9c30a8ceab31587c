// Package keyrange is what is known of keys and ranges of keys without knowing what they
// are for: the arithmetic of ranges, and a tree that finds those that overlap another.
//
// A range is written in two ways. A Range is written as the API and etcd write it, with
// a short form for the one key; so it is kept, sent and compared. A Span says where it
// begins and where it ends, and nothing else; so ranges are cut and joined.
//
// The package is pure, and nothing in it is safe for concurrent use but values, which
// nobody changes.
package keyrange
