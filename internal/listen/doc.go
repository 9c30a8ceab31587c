// Package listen creates the listeners of a member: it turns etcd-style URLs (http, https, unix,
// unixs) into listeners and TLS files into a [tls.Config], and serves two protocols on one port.
//
// A client port serves gRPC and HTTP at once. [Mux] looks at the first bytes of a plain connection,
// or at the protocols that a TLS client offers, and passes the connection to one of two listeners:
// [Mux.GRPC] for a grpc.Server, [Mux.HTTP] for an http.Server. The gRPC server must be built with
// [Credentials], which pass on what the TLS handshake in this package has verified about the
// client.
//
// The package is independent of the services. It bounds what clients can make a server keep:
//
//   - Connections ([Limit]): as many as there are files for. The oldest strangers make room for
//     others, and so do connections that are idle.
//   - Unread answers ([Answers]): 32 MiB for each connection, 256 MiB for all. A call with a large
//     answer waits for room before it is evaluated, and a stream before its next large message;
//     small messages never wait. Half of the 256 MiB is only for connections that have read as much
//     before. No connection may take more than it leaves free.
//   - Open streams ([Answers.BoundOpen]): as many as an eighth of the memory is enough for, and
//     twice as many together with calls. No connection may have more than it leaves free.
//   - Slow readers: while others wait for room, a connection is closed if it reads less than a 16th
//     of what is unread for it in 5 s. Its own calls that wait are refused after 20 s.
//   - Unfinished requests ([Requests]): 64 MiB for each connection, 256 MiB for all, and a minute
//     for each request. Beyond that the connection, or the one with most for longest, is closed.
//   - Strangers ([Requests.BoundStrangers]): a connection on which no caller has logged in has few
//     calls at a time and few unfinished bytes, its first message must come soon, and it is read
//     more slowly if its [Site] opens hundreds of calls a second. It may speak gRPC, HTTP, or the
//     protocol of package direct.
//   - Calls and connections that begin at the same time: new connections, and those that open many
//     calls, wait for their turn while too many goroutines are ready to run. Messages of open
//     streams do not wait.
//   - TLS handshakes and long requests ([Turn]): fewer compute at a time than there are processors.
//   - Resets: a connection is read more slowly if its Site resets thousands of calls a second.
package listen
