// Package listen creates the listeners of a member: it turns etcd-style URLs (http, https, unix,
// unixs) into listeners and TLS files into a [tls.Config], and serves three protocols on one port.
//
// A client port serves gRPC, HTTP and the protocol of package direct at once. [Mux] inspects the
// first bytes of a plain connection, or the protocols that a TLS client offers, and passes the
// connection to one of three listeners: [Mux.GRPC] for a grpc.Server, [Mux.HTTP] for an
// http.Server, [Mux.Direct] for a direct.Server. The gRPC and direct servers must be built with
// [Credentials], which pass on what the TLS handshake in this package has verified about the
// client.
//
// The package is independent of the services. It bounds the memory and other resources that clients
// can occupy:
//
//   - Connections ([Limit]): as many as the limit of open files allows. To make room for others,
//     idle connections and the oldest strangers are closed.
//   - New connections ([Mux]): 256 wait in the process for their server or for a turn in their
//     handshake. The others wait in the kernel, where they do not count as strangers, so that none
//     is closed shortly before it is served.
//   - Unread answers ([Answers]): 32 MiB for each connection, 256 MiB for all. A call with a large
//     answer waits for room before it is evaluated, and a stream before its next large message;
//     small messages never wait. Half of the 256 MiB is only for connections that have already read
//     as much as they have unread. No connection may take more than it leaves free.
//   - Open streams ([Answers.BoundOpen]): as many as fit into an eighth of the memory, and twice as
//     many together with calls. No connection may have more than it leaves free.
//   - Slow readers: while others wait for room, a connection is closed if in 5 s it reads less than
//     a 16th of its unread bytes. Its own calls that wait are refused after 20 s.
//   - Unfinished requests ([Requests]): 64 MiB for each connection, 256 MiB for all, and a minute
//     for each request. Beyond that, the connection is closed, or the one that has had the most for
//     longest.
//   - Strangers ([Requests.BoundStrangers]): a connection on which no caller has logged in has few
//     calls at a time and few unfinished bytes, its first message must come soon, and it is read
//     more slowly if its [Site] opens hundreds of calls a second. It may speak gRPC, HTTP, or the
//     protocol of package direct.
//   - Calls and connections that begin at the same time: new connections, and those that open many
//     calls, wait for their turn while too many goroutines are ready to run. Messages of open
//     streams do not wait.
//   - TLS handshakes and long requests ([Turn]): fewer of these run at a time than there are
//     processors.
//   - Resets: a connection is read more slowly if its Site resets thousands of calls a second.
package listen
