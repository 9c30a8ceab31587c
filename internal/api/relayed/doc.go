// Package relayed serves the calls that relays carry to a member (leasehold/v1/relay.proto). Each
// channel of a relay is one call of a service that is registered here, with all that a call of a
// connection passes: logins, limits, metrics, the log of who did what.
//
// A caller is whom its headers say, or the certificate that the relay has seen; never the relay.
package relayed
