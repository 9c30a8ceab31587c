// Package storage keeps what one member has on disk: the Raft log, the hard
// state, the member's identity and the newest snapshot of the state, in one
// Pebble database in the member's data directory.
package storage
