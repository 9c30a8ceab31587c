// Package history records what programs did and observed during a run, and checks the record
// against the promises in docs/design.md that clients can observe: registers are linearizable and
// lose nothing (S1, S2, C1), leases do not end early (L1), no two programs hold the same thing
// (L4), tokens increase (L5), and watches miss nothing (W1). It does not depend on how the run was
// produced. test/bubble uses it in virtual time, and test/cluster with real processes.
package history
