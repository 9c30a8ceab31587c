// Package binding maps external identities to users and roles. An external identity comes from the
// SANs of a certificate (a SPIFFE ID, or host names), or from the claims of a token issued
// elsewhere (JWT, OpenID Connect). The --auth-config file lists the issuers, and the rules that
// bind such evidence to a user or to roles.
//
//   - [Open] reads the file strictly: a single error causes it to reject the whole file.
//     [Bindings.Run] reloads the file when it changes. If the new file has an error, the old
//     content remains in effect.
//   - [OfCertificate] and [Bindings.Token] convert a verified certificate or token to [Evidence].
//     [Bindings.Identify] returns the principal for the evidence according to the current rules.
//     Long-lived streams call it repeatedly.
//   - An issuer's keys come from its discovery document, a URL or a file. They are fetched again
//     periodically, and when a token names an unknown key. A rate limit ensures that clients cannot
//     make a member overload the issuer. If the keys cannot be fetched, the last ones remain valid.
//   - [Bindings.Describe] returns the current rules.
//
// The package does not decide what a caller is allowed to do.
//
// All types are safe for concurrent use.
package binding
