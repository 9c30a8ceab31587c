// Package direct carries the messages of one gRPC stream over a connection of its own, without
// HTTP/2. It has both ends.
//
// HTTP/2 shares a connection between many calls, at a cost: windows, buffers, and three
// goroutines for each connection. A client of leasehold.v1 does everything on one stream, so it
// needs no sharing. The cost of such a client while it is idle decides how many clients a member
// can have.
//
// The client begins with a line:
//
//	leasehold/1 /leasehold.v1.StreamService/Open
//
// and the server answers with the first word of it. Over TLS the client offers that word by ALPN
// (RFC 7301) besides. Then both send frames, as gRPC-Web does: a byte of flags, the length in 4
// bytes, most significant first, and as many bytes. Flags of 0 mean a message, in protobuf. 0x80
// means metadata, a line "name: value" for each, ended by CR LF. The values of names that end in
// -bin are in base64.
//
//   - The client's first frame is metadata. One without a line says that no message follows.
//   - The server's metadata comes before its first message. Its last frame is metadata, too, and
//     has how the stream has ended: grpc-status and grpc-status-details-bin, as in gRPC.
//
// A connection that ends before that has failed.
//
// Goroutines: [Server.Serve] has the caller's, and one for each connection, in which the handler
// of the stream runs; that of an [intercept.Service] has none while it pauses. A client has none.
// Of each connection an end keeps 512 bytes to read into, and more only while a message is read or
// written.
//
// A handler usually has a second goroutine that receives, but does not need it while the client
// sends nothing: see [Rest]. That takes a connection with a socket, and Linux. One goroutine waits
// for all streams that rest, and none of them has a buffer.
package direct

import "time"

const (
	// Protocol is the name of the protocol, for ALPN, and how a connection begins.
	Protocol = "leasehold/1"

	greeting  = Protocol + "\n"
	maxMethod = 256      // bytes of the first line
	maxHead   = 16 << 10 // bytes of metadata, as over HTTP/2

	flagMessage  = 0x00
	flagMetadata = 0x80

	// farewellTime and farewellBytes bound for how long a client may still send when it is told how
	// its stream has ended. To close on unread bytes would reset the connection, and what it was
	// told might be lost.
	farewellTime  = time.Second
	farewellBytes = 1 << 20
)
