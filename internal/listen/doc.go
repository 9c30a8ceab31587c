// Package listen creates the listeners of a member. It converts etcd-style URLs (http, https, unix,
// unixs) to listeners and TLS files to a [tls.Config], and serves three protocols on one port.
//
// A client port serves gRPC, HTTP and the protocol of package direct at the same time. [Mux]
// inspects the first bytes of a plain connection, or the protocols that a TLS client offers. It
// then passes the connection to one of three listeners: [Mux.GRPC] for a grpc.Server, [Mux.HTTP]
// for an http.Server, or [Mux.Direct] for a direct.Server. The gRPC and direct servers must use
// [Credentials], which return what the TLS handshake in this package has verified about the client.
//
// The package does not depend on the services. It limits the memory and other resources that
// clients can occupy:
//
//   - Connections ([Limit]): the maximum depends on the limit on open files. To make room for
//     others, idle connections and the oldest strangers are closed.
//   - New connections ([Mux]): 256 wait in the process for their server or for a turn in their
//     handshake. The others wait in the kernel, where they do not count as strangers, so that none
//     is closed shortly before it is served.
//   - Unread responses ([Answers]): 32 MiB per connection, and 256 MiB in total. A call with a
//     large response waits for room before it is evaluated, and a stream waits before its next
//     large message. Small messages never wait. Half of the 256 MiB is reserved for connections
//     that have already read at least as much as they have unread. No connection can take more
//     than what remains free.
//   - Open streams ([Answers.BoundOpen]): as many as fit into an eighth of the memory, and twice as
//     many streams and calls together. No connection can have more than what remains free.
//   - Slow readers: while others wait for room, a connection is closed if it reads less than 1/16
//     of its unread bytes in 5 s. Its own waiting calls are rejected after 20 s.
//   - Unfinished requests ([Requests]): 64 MiB per connection, 256 MiB in total, and one minute per
//     request. A connection that exceeds its limit is closed. If the total is exceeded, the
//     connection that has held the most bytes for the longest time is closed.
//   - Strangers ([Requests.BoundStrangers]): a connection is a stranger until a caller on it has
//     logged in. It can have only a few calls at a time and a few unfinished bytes, and its first
//     message must arrive soon. It is read more slowly if its [Site] opens hundreds of calls per
//     second. It can use gRPC, HTTP, or the protocol of package direct.
//   - Simultaneous calls and connections: new connections, and connections that open many calls,
//     wait for their turn while too many goroutines are ready to run. Messages of open streams do
//     not wait.
//   - TLS handshakes and long requests ([Turn]): fewer of them run at a time than there are
//     processors.
//   - Resets: a connection is read more slowly if its Site resets thousands of calls per second.
package listen
