// Package lease is a lease engine: a table of time-bound promises, the keys
// that are attached to them, and the countdowns that say when each may end.
//
// A [Lessor] is one of two things at a time. Every member of a cluster holds
// one and feeds it the same replicated commands ([Lessor.Grant],
// [Lessor.Revoke], [Lessor.Expire], [Lessor.ChangeTTL], [Lessor.Touch],
// [Lessor.HandOver], [Lessor.Resume], [Lessor.Attach], [Lessor.Detach],
// [Lessor.Checkpoint], [Lessor.Recover]); what they do depends on nothing but
// the commands, so that all tables stay equal. One of them, the primary,
// moreover times the leases: between [Lessor.Promote] and [Lessor.Demote] it
// answers [Lessor.Renew] and says which leases are [Lessor.Due] to expire and
// which have been [Lessor.Silent] for so long that their remaining time should
// be replicated. It only ever decides; nothing ends before the decision comes
// back as a command. Alone, without replication, a program feeds the decisions
// straight back.
//
// # The contract
//
// The caller owns the clock. Before any other call it tells the instant with
// [Lessor.Advance], on primaries and followers alike. An [Instant] counts
// milliseconds, rounded down, on a clock that never goes back; for a promise
// that is to survive a suspended machine it should go on through suspend. A
// lease granted or renewed at instant t may end from t + TTL + 1: the one
// makes up for the rounding, so no lease ever ends early.
//
// The caller brings every decision to one outcome: it applies the Expire or
// Checkpoint, or calls [Lessor.Reinstate] or [Lessor.Unreport] once it is certain that
// the command was dropped and never will be applied. Until then an expiring lease refuses
// renewal. A renewal whose [Renewal.Clear] is set is acknowledged only after a
// Checkpoint that clears has been applied.
//
// A Lessor is owned by one goroutine. What it hands out are copies; a [View]
// may be read by any goroutine.
//
// # What it does not do
//
// It reads no clock, draws nothing, starts no goroutine, takes no lock and does no I/O. It
// does not end a bound lease whose key has gone (see [Lessor.Loose]), store keys or
// values, tell watchers, confirm that this member still leads before an
// answer is released, or check who may renew what.
package lease
