// Package lease is a lease engine: a table of time-bound promises, the keys attached to them, and
// the countdowns that determine when each may end.
//
// Every member of a cluster has a [Lessor] and feeds it the same replicated commands
// ([Lessor.Grant], [Lessor.Revoke], [Lessor.Expire], [Lessor.ChangeTTL], [Lessor.Touch],
// [Lessor.HandOver], [Lessor.Resume], [Lessor.Attach], [Lessor.Detach], [Lessor.Checkpoint],
// [Lessor.Recover]); their effects depend only on the commands, so that all tables stay equal. One
// Lessor, the primary, also times the leases: between [Lessor.Promote] and [Lessor.Demote] it
// answers [Lessor.Renew], and reports the leases that are [Lessor.Due] to expire and those that
// have been [Lessor.Silent] for so long that their remaining time should be replicated. It only
// decides: a lease ends when the decision comes back as a command. A program without replication
// applies the decisions itself.
//
// Leases that are kept alive together can be in one group ([Lessor.OpenGroup], [Lessor.Join]):
// [Lessor.RenewGroup] renews them all at the cost of one.
//
// # Contract
//
// The caller owns the clock. Before any other call it sets the current instant with
// [Lessor.Advance], on primaries and followers. An [Instant] counts milliseconds, rounded down,
// on a clock that never goes back. The clock should also run while the machine is suspended, if
// promises must hold across that. A lease granted or renewed at instant t may end from t + TTL +
// 1: the 1 makes up for the rounding, so no lease ends early.
//
// The caller gives every decision exactly one outcome: it applies the Expire or Checkpoint, or it
// calls [Lessor.Reinstate] or [Lessor.Unreport] once it is certain that the command was dropped and
// will never be applied. Until then, an expiring lease cannot be renewed. A renewal whose
// [Renewal.Clear] is set is acknowledged only after a Checkpoint that clears has been applied.
//
// One goroutine owns a Lessor, which returns only copies. Any goroutine may read a [View].
//
// # Limits
//
// A Lessor reads no clock and no random numbers, starts no goroutine, takes no lock and does no
// I/O. It does not end a bound lease whose key was deleted (see [Lessor.Loose]), store keys or
// values, notify watchers, confirm that this member still leads before an answer is sent, or check
// permissions.
package lease
