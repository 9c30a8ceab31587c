// Package wire encodes and decodes the stream messages of leasehold.v1, for both members and
// clients.
//
// A stream can carry a hundred thousand requests per second. With reflection, encoding took a fifth
// of a client's time. So a generator creates a reader and a writer for each message (messages.go).
// Messages that these cannot handle are left to the standard implementation. These are messages
// with maps, unknown fields, duplicate fields or deep nesting, and malformed messages. So the
// result or error is always the one that the standard implementation would return. The tests
// compare both on random and damaged messages.
//
// vtprotobuf would be the obvious generator. But its decoder makes two and a half times as many
// allocations, because parts of a message do not share memory. It also accepts strings that are not
// valid UTF-8, and nesting of any depth, both of which a server must reject.
//
// After changing the .proto files, run go generate in this directory. Until then, a test fails.
//
// Decoded messages have their own memory. Parts of one request share an allocation, but different
// requests do not, so a request that waits for a long time retains only its own memory. Values are
// allocated separately because the store keeps them.
package wire

//go:generate go run ./generate
