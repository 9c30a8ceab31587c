// Package listen makes the listeners of a member: it turns etcd-style URLs (http, https, unix,
// unixs) into listeners and TLS files into a [tls.Config], and serves two protocols on one port.
//
// A client port speaks gRPC and HTTP at once. [Mux] looks at the first bytes of a plain
// connection, or at what a TLS client offered, and hands the connection to one of two listeners:
// [Mux.GRPC] for a grpc.Server, [Mux.HTTP] for an http.Server. The gRPC server must be built with
// [Credentials], which passes on what the TLS handshake, made here before, has verified about the
// client.
//
// The package does not know what is served.
//
// # Answers that clients do not read
//
// [Answers] bounds them, so that clients that read nothing cannot take the
// room of those that read: 32 MiB of a connection, 256 MiB of all. The latter
// have three parts: 32 MiB for small messages, 96 MiB for large answers to
// clients that have not read much yet, and 128 MiB for large answers to clients
// that have read over 4 MiB, and as much more as the answer is long. (The
// kernel may take 4 MiB for a client that reads nothing.) One answer counts at
// most as much as all answers of its kind may have, answers below 2 KiB count
// nothing, and an answer of the JSON gateway counts eight times until its JSON
// is made.
//
//   - What waits. When a connection has 32 MiB unread, its further calls with
//     large answers wait before they are evaluated, and its large stream
//     messages (64 KiB and more) before they are sent. Small messages do not
//     wait, such as answers to keep-alives.
//   - In which order. Connections whose large answers have no room take turns.
//     Among clients that have not read much, smaller answers come first. A call
//     is evaluated when there is room for an answer as large as the last large
//     one of its connection (2 to 8 MiB). So up to 112 answers that turn out
//     larger may wait in the memory beside these bounds.
//   - What waiting costs. A call that waits costs 16 KiB and its request. All
//     of them may cost 64 MiB, whatever their connections. Beyond that, the
//     connection whose calls cost most has its newest call refused with
//     ResourceExhausted, until the rest fits. So a client with few calls is
//     not refused for the calls of others.
//   - Which connections are closed. While a large answer waits, a connection
//     may be closed whose client has, in five seconds, read less than a 64th of
//     what it has left unread, or has left that unread for more than a minute
//     on average. The one that has left most unread for longest (bytes times
//     seconds) goes first. Time in which the member itself was stopped does not
//     count. Too many small messages close connections at once, in the same
//     order.
//   - Which calls are refused. A call whose client has left answers unread and
//     has read nothing for 20 s is refused with ResourceExhausted.
package listen
