// Package direct carries the messages of a single gRPC stream over its own connection, without
// HTTP/2. It implements both ends.
//
// HTTP/2 shares a connection between many calls, at the cost of windows, buffers, and three
// goroutines per connection. A client of leasehold.v1 does everything on one stream, so it has no
// need to share. The cost of an idle client determines how many clients a member can have.
//
// The client starts with a line:
//
//	leasehold/1 /leasehold.v1.StreamService/Open
//
// and the server answers with its first word. Over TLS, the client also offers that word with ALPN
// (RFC 7301). After that, both send frames like those of gRPC-Web: a byte of flags, the length in 4
// bytes, most significant first, and that many bytes. Flags of 0 denote a message, in protobuf.
// 0x80 denotes metadata, with a line "name: value" for each entry, terminated by CR LF. Values of
// names that end in -bin are in base64.
//
//   - The client's first frame is metadata. A later frame of metadata without lines means that no
//     message follows.
//   - The server's metadata precedes its first message. Its last frame is metadata, too, with the
//     outcome of the stream in grpc-status and grpc-status-details-bin, as in gRPC.
//
// A connection that ends before that has failed.
//
// [Server.Serve] runs in the caller's goroutine, and starts one for each connection, in which the
// handler of the stream runs; an [intercept.Service] has none while it pauses. A client has none.
// Each end keeps 512 bytes per connection to read into, and more only while a message is being read
// or written.
//
// A handler usually has a second goroutine, which receives, but does not need it while the client
// is idle: see [Rest]. This requires a connection with a socket, and Linux. One goroutine waits for
// all streams at rest, which have no buffers.
package direct

import "time"

const (
	// Protocol is the name of the protocol, for ALPN and at the start of a connection.
	Protocol = "leasehold/1"

	greeting  = Protocol + "\n"
	maxMethod = 256      // bytes of the first line
	maxHead   = 16 << 10 // bytes of metadata, as over HTTP/2

	flagMessage  = 0x00
	flagMetadata = 0x80

	// farewellTime and farewellBytes limit what a client can still send while it receives the
	// outcome of its stream. Closing with unread bytes would reset the connection, and the last
	// frame might be lost.
	farewellTime  = time.Second
	farewellBytes = 1 << 20
)
