// Package listen opens the doors of a member: it turns etcd-style URLs (http,
// https, unix, unixs) into listeners, TLS files into a [tls.Config], and one
// port into two protocols.
//
// A client port speaks gRPC and HTTP at once. [Mux] looks at the first bytes of
// a plain connection, or at what a TLS client offered, and hands the connection
// to one of two listeners: [Mux.GRPC] for a grpc.Server, [Mux.HTTP] for an
// http.Server. The gRPC server must be built with [Credentials], which passes
// on what the TLS handshake, already made here, found out about the client.
//
// The package knows nothing of what is served.
package listen
