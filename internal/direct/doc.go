// Package direct transports the messages of a single gRPC stream over a dedicated connection,
// without HTTP/2. It implements both client and server.
//
// HTTP/2 lets many calls share a connection, at the cost of windows, buffers, and three goroutines
// per connection. A leasehold.v1 client does everything on one stream, so it does not need to share
// a connection. The number of clients that a member can have depends on how little each idle client
// costs.
//
// The client starts by sending a line:
//
//	leasehold/1 /leasehold.v1.StreamService/Open
//
// The server responds with a line that contains only the first word of the client's line. Over TLS,
// the client also offers that word with ALPN (RFC 7301). After that, both sides send frames similar
// to gRPC-Web's: one byte of flags, the length as 4 bytes in big-endian order, and the data. Flags
// of 0 denote a protobuf message. Flags of 0x80 denote metadata, with a line "name: value" for each
// entry, terminated by CR LF. If a name ends in -bin, its values are encoded as base64.
//
//   - The client's first frame is metadata. A later metadata frame without lines means that there
//     are no more messages.
//   - The server sends metadata before its first message. Its last frame is also metadata and
//     contains the outcome of the stream in grpc-status and grpc-status-details-bin, as in gRPC.
//
// If the connection ends before that last frame, the stream has failed.
//
// [Server.Serve] runs in the caller's goroutine. It starts one goroutine per connection, which runs
// the handler of the stream. An [intercept.Service] has no goroutine while it is paused. A client
// needs none. Each side keeps a 512-byte read buffer per connection. It uses more memory only while
// a message is being read or written.
//
// A handler usually has a second goroutine for receiving, but does not need it while the client is
// idle; see [Rest]. This works only on Linux and for connections with a socket. A single goroutine
// waits on behalf of all resting streams, which do not have buffers.
package direct

import "time"

const (
	// Protocol is the name of the protocol. It is used for ALPN and at the start of a connection.
	Protocol = "leasehold/1"

	greeting  = Protocol + "\n"
	maxMethod = 256      // maximum bytes of the first line
	maxHead   = 16 << 10 // maximum bytes of metadata, as over HTTP/2

	flagMessage  = 0x00
	flagMetadata = 0x80

	// farewellTime and farewellBytes limit what a client can still send while it receives the
	// outcome of its stream. Closing the connection with unread bytes would reset it, and the last
	// frame might be lost.
	farewellTime  = time.Second
	farewellBytes = 1 << 20
)
