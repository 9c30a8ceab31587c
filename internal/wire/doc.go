// Package wire encodes and decodes the messages of leasehold.v1's stream, for member and client.
//
// A stream carries a hundred thousand requests a second, and reflection took a fifth of a client's
// time. So a generator writes a reader and a writer for each message (messages.go). Messages that
// these do not handle go to the standard implementation: those with maps, unknown fields, fields
// that occur twice or deep nesting, and malformed ones. So the result, or the error, is always that
// of the standard implementation; the tests compare them on random and damaged messages.
//
// vtprotobuf would be the obvious generator. But its decoder makes two and a half times as many
// allocations, because no parts share memory. It also accepts strings that are not UTF-8, and has
// no limit on nesting, which a server must have.
//
// After a change of the .proto files, run go generate here; a test fails until then.
//
// Decoded messages have their own memory. Parts of one request share an allocation, but requests do
// not: a request that waits for long keeps only its own memory. Values, which the store keeps, are
// allocated separately.
package wire

//go:generate go run ./generate
