// # Members, nodes, queues and pools
//
// A [Group] lists who is there, and a [GroupWatch] tells who comes, changes and goes, and why
// it went: it left, it failed (its lease expired), or somebody revoked its lease.
//
// [Nodes] is the classical primary and its secondaries: one issuer of leases, the cluster, and
// nodes whose heartbeats are renewals. The issuer's side says who is alive, suspect or down and
// who is the primary, and can order a switch. A [Node] knows until when it counts as alive, and
// has a [Primacy] while it is the primary.
//
// A [Queue] has items that workers claim under leases, one lease for each claim. A [Pool] leases
// IDs or addresses.
//
// What is promised of these:
//
//   - The watch of a group tells each change once, in the order in which they happened,
//     across reconnects. If changes were compacted before they could be told, it reads the
//     group anew and tells the differences: nobody joins or goes twice, nobody who stayed
//     goes. The reason is not known then, and who came and went in between is not seen.
//   - No two nodes have a valid Primacy, no two programs a valid Loan of one ID, and no two
//     workers a valid claim of one item, as long as clocks run at about the same rate. A
//     valid one is one whose Err, or that of its lease, is nil: see package client.
//   - Tokens rise from primary to primary, from holder to holder of an ID, and from claim to
//     claim of an item.
//   - An item that was pushed is worked on at least once: it goes when it is acknowledged by
//     who has the claim, or to the dead letters after so many tries, and never otherwise.
//     Items come in the order in which they were pushed, as far as one Push returned before
//     the other was called, they are ready, and workers do not race for them (see
//     Queue.Claim).
//   - Wherever a process stops, leases end after their TTL and take with them what was
//     half done. There is nothing to repair.
//   - A lost answer does no harm: the client repeats its writes so that they take effect
//     once. Where even that cannot tell ([client.ErrUnknownOutcome]) it is looked into, and
//     what was asked for is tried again as long as the context lasts. Nothing here starts a
//     goroutine, but Node.Lead while it runs; loops wait between tries, at random.
//
// What is not promised:
//
//   - That an item is worked on only once. A worker that was stopped may go on after its
//     claim has ended. Let the resource refuse smaller tokens, or write to the store by
//     Item.AckWith.
//   - That a queue with very many claimed or delayed items at its head is fast: a claim reads
//     past their keys, 128 at a time. Some thousands are fine.
//   - That an ID comes back to the owner who had it. It is tried.
//   - That somebody who revokes the lease of a primary, a claim or a loan by hand does no harm.
//     The holder finds out at its next renewal; until then there may be two. Nothing here does
//     it.
package coord
