// Package relayed serves calls that come through relays (leasehold/v1/relay.proto). Each channel of
// a relay is one call of a service that is registered here. It passes the same checks as a call on
// a connection: login, limits, metrics, audit log.
//
// A caller's identity comes from its headers, or from the certificate that the relay saw; it is
// never the relay's.
package relayed
