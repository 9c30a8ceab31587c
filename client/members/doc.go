// Package members lists the members of a group, and tells which join, change and leave, and why.
//
// A [Group] is a set of members. A program registers itself in a session and gets a [Membership],
// which ends with the session: if the program dies, the others see after the TTL that it failed. A
// [Watch] tells which members join, change and go, and why: the member left, or it failed (its
// lease expired).
//
// What is promised:
//
//   - A watch tells each change once, in order, across reconnects. If changes were compacted
//     before it could tell them, it reads the group again and tells the differences: no member
//     joins or goes twice, and no member that stayed goes. The reasons are not known then, and a
//     member that joined and went in between is not seen.
//   - If a process stops at any point, its lease ends after the TTL and removes the member. There
//     is nothing to repair.
//   - A lost answer does no harm: a registration takes effect once. If the outcome stays unknown
//     ([client.ErrUnknownOutcome]), Register reads the state and tries again as long as the
//     context lasts.
package members
