// Package members manages group membership: programs join a group, and watch which members join,
// change and leave, and why.
//
// A [Group] is a set of members. A program registers in a session and gets a [Membership], which
// ends with the session. If the program dies, the others see the member as failed once the TTL has
// passed. A [Watch] delivers each change with its reason: the member left, or it failed (its lease
// expired).
//
// Guarantees:
//
//   - A watch delivers each change once and in order, even across reconnects. If changes were
//     compacted before they could be delivered, it reads the group again and delivers the
//     differences: no member joins or leaves twice, and no remaining member is reported as gone.
//     The reasons are lost. Members that both joined and left in the meantime are not reported.
//   - If a process stops at any point, its lease ends after the TTL and removes the member. No
//     repair is needed.
//   - A lost answer is harmless: a registration takes effect only once. While the outcome is
//     unknown ([client.ErrUnknownOutcome]), Register reads the state and retries until its context
//     ends.
package members
