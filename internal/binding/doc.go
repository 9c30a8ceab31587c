// Package binding maps external identities to users and roles: the SANs of a certificate (a
// SPIFFE ID, or host names), and the claims of a token of another issuer (JWT, OpenID Connect).
// The file of --auth-config has the issuers, and the rules that bind such evidence to a user or
// to roles.
//
//   - [Open] reads the file strictly, and refuses all of it if anything in it is wrong.
//     [Bindings.Run] reads it again when it has changed; if the new file has a mistake, the old
//     content stays.
//   - [OfCertificate] and [Bindings.Token] make [Evidence] of a verified certificate or token.
//     [Bindings.Identify] returns its identity by the current rules. A stream that stays open asks
//     again.
//   - The keys of an issuer come from its discovery document, a URL or a file. They are fetched
//     again from time to time, and when a token names an unknown key, but so seldom that no
//     client can make a member a burden to the issuer. If they cannot be fetched, the last ones
//     count.
//   - [Bindings.Describe] describes the current rules.
//
// The package does not decide what the caller may do.
//
// All types are safe for concurrent use.
package binding
