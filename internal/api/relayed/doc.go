// Package relayed serves the calls that relays carry to a member (leasehold/v1/relay.proto). Each
// channel of a relay is one call of a service that is registered here. It passes the same checks
// as a call on a connection: login, limits, metrics, audit log.
//
// The identity of a caller comes from its headers, or from the certificate that the relay has
// seen; it is never the relay's.
package relayed
