// Package sim runs a whole cluster in one goroutine and in virtual time, with faults, and checks
// every promise in docs/design.md.
package sim
