// Package binding maps external identities to users and roles: the SANs of a certificate (a SPIFFE
// ID, or host names), and the claims of a token from another issuer (JWT, OpenID Connect). The
// --auth-config file lists the issuers, and the rules that bind such evidence to a user or to
// roles.
//
//   - [Open] reads the file strictly, and rejects all of it if anything in it is wrong.
//     [Bindings.Run] reloads it when it has changed; if the new file has an error, the old contents
//     stay in force.
//   - [OfCertificate] and [Bindings.Token] turn a verified certificate or token into [Evidence].
//     [Bindings.Identify] returns its principal by the current rules. Long-lived streams call it
//     again.
//   - An issuer's keys come from its discovery document, a URL or a file. They are fetched again
//     periodically, and when a token names an unknown key. A rate limit keeps clients from making a
//     member overload the issuer. If the keys cannot be fetched, the last ones stay valid.
//   - [Bindings.Describe] returns the current rules.
//
// The package does not decide what a caller may do.
//
// All types are safe for concurrent use.
package binding
