// Package lease is a lease engine: a table of leases, the keys attached to them, and the timers
// that determine when each lease may end.
//
// Every member of a cluster has a [Lessor] and feeds it the same replicated commands
// ([Lessor.Grant], [Lessor.Revoke], [Lessor.Expire], [Lessor.ChangeTTL], [Lessor.Touch],
// [Lessor.HandOver], [Lessor.Resume], [Lessor.Attach], [Lessor.Detach], [Lessor.Checkpoint],
// [Lessor.Recover]). Their effects depend only on the commands, so all tables stay identical. One
// Lessor, the primary, also times the leases. Between [Lessor.Promote] and [Lessor.Demote] it
// accepts [Lessor.Renew]. It also reports which leases are [Lessor.Due] to expire, and which have
// been [Lessor.Silent] for so long that their remaining time should be replicated. The Lessor only
// makes decisions: a lease ends when the decision comes back as a command. A program without
// replication applies the decisions directly.
//
// Leases that are kept alive together can be put in one group ([Lessor.OpenGroup], [Lessor.Join]).
// [Lessor.RenewGroup] renews all of them for the cost of a single renewal.
//
// # Contract
//
// The caller owns the clock. Before any other call, it sets the current instant with
// [Lessor.Advance], on primaries and followers alike. An [Instant] counts milliseconds, rounded
// down, on a clock that never goes backward. The clock should also run while the machine is
// suspended, if promises must hold across a suspension. A lease granted or renewed at instant t may
// end at t + TTL + 1 or later. The extra 1 compensates for the rounding, so no lease ends early.
//
// The caller resolves every decision exactly once. It either applies the Expire or Checkpoint, or
// calls [Lessor.Reinstate] or [Lessor.Unreport] once it is certain that the command was dropped and
// will never be applied. Until then, an expiring lease cannot be renewed. A renewal with
// [Renewal.Clear] set must not be acknowledged until a Checkpoint that clears the earlier one has
// been applied.
//
// A Lessor is owned by one goroutine. It returns only copies. Any goroutine may read a [View].
//
// # Limits
//
// A Lessor reads no clock, uses no random numbers, starts no goroutines, takes no locks and does no
// I/O. It does not end a bound lease whose key was deleted (see [Lessor.Loose]), store keys or
// values, notify watchers, confirm that this member still leads before a response is sent, or check
// permissions.
package lease
