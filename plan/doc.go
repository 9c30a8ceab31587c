// Package plan computes the consequences of a lease's length: how long a name can be without a
// holder, and whether healthy holders outlive a failure of the issuer.
//
// [ChooseLength] chooses a length based on how often healthy holders lose their leases. [Chain]
// computes leases that depend on each other, [ChooseCaches] computes leases on cached data, and
// [Size] computes the cost of leases. [Questions] offers the same computations with flags as inputs
// and text as answers.
//
// The result of every function depends only on its arguments. The package reads no clock, does not
// wait, and uses no randomness; a time.Duration is only a value. All functions are safe for
// concurrent use. The error for an invalid argument suggests a correction.
//
// The letters used in the literature, and the corresponding names here:
//
//	L  Holder.TTL, the length of the lease
//	T  Holder.Renew, the time between two renewals
//	D  Issuer.Recovery, how long the issuer grants and renews nothing after a failure
//	r  Holder.RoundTrip, the longest round trip of a request
//
// The equations have numbers (O1, N1, G1, ...), which docs/planning.md lists. The tests compare the
// results with a simulation that does not use the equations.
package plan
