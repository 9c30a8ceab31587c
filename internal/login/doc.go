// Package login tells who makes a call: it checks passwords, and makes and reads the tokens that
// stand for a login. What a user may do is not its matter.
//
// A [Provider] is one of two kinds, chosen by [Parse] from the flag --auth-token as in etcd.
// Simple tokens are signed by the member that gave them, with a key that it made at its start.
// JWTs are signed with a key that the operator made. Both can be checked by each member without
// a word to another and without an entry in the log.
//
// All types are safe for concurrent use.
package login
