// Package relayed serves calls that arrive through relays (leasehold/v1/relay.proto). Each channel
// of a relay is one call to a service registered here. It passes the same checks as a call on a
// connection: login, limits, metrics, audit log.
//
// The caller's identity comes from its headers or from the certificate that the relay received. It
// is never the identity of the relay.
package relayed
