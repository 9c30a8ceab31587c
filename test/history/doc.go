// Package history has what programs did and were told in a run, and checks it against the promises
// of docs/design.md that clients can see: registers are linearizable and lose nothing (S1, S2, C1),
// leases do not end early (L1), no two programs hold the same thing (L4), tokens rise (L5), and
// watches tell all (W1). It knows nothing of how the run came about: test/bubble uses it in virtual
// time, test/cluster with real processes.
package history
