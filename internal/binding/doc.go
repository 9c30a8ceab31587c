// Package binding tells who a caller is that was identified outside: by the SANs of its
// certificate (a SPIFFE ID, or names of hosts), or by the claims of a token of an issuer that is
// none of ours (JWT, OpenID Connect). The file of --auth-config holds the issuers, and the rules
// that bind what such evidence says to a user or to roles.
//
//   - [Open] reads the file. It is read strictly, and refused as a whole if anything in it is
//     wrong. [Bindings.Run] reads it again when it has changed: with a mistake in it, what was
//     read before stays.
//   - [OfCertificate] and [Bindings.Token] make [Evidence] of what a caller shows, once it is
//     verified. [Bindings.Who] says who that is by the rules of now. A stream that stays open
//     asks again.
//   - The keys of an issuer come from its discovery document, a URL or a file. They are fetched
//     again from time to time, and when a token names one that is not known, but so seldom that
//     nobody can make a member a burden to the issuer. When they cannot be had, the last ones
//     count.
//   - [Bindings.Tell] says what counts now.
//
// What the caller may do is not its matter.
//
// All types are safe for concurrent use.
package binding
