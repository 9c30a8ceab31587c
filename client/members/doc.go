// Package members lists who is there, and tells who comes, changes and goes, and why.
//
// A [Group] is a set of members. A program registers itself and gets a [Membership], which rests
// on a lease: when the program dies, the others see it go after the TTL. A [Watch] tells who
// joins, changes and goes, and why: it left, it failed (its lease expired), or somebody revoked its
// lease.
//
// What is promised:
//
//   - A watch tells each change once, in the order in which they happened, across reconnects. If
//     changes were compacted before they could be told, it reads the group anew and tells the
//     differences: nobody joins or goes twice, no member that stayed goes. The reason is not
//     known then, and a member that came and went in between is not seen.
//   - Wherever a process stops, its lease ends after the TTL and takes the member with it. There
//     is nothing to repair.
//   - A lost answer does no harm: a registration takes effect once. Where the client cannot tell
//     ([client.ErrUnknownOutcome]) it is looked into, and what was asked for is tried again as long
//     as the context lasts.
package members
