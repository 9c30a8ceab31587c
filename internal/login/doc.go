// Package login identifies the user of a call: it checks passwords, and makes and reads the
// tokens of logins. It does not decide what a user may do.
//
// A [Provider] is one of two kinds, chosen by [Parse] from the flag --auth-token as in etcd.
// Simple tokens are signed by the member that gave them, with a key that it made at its start.
// JWTs are signed with a key that the operator made. Each member can check both without asking
// another member and without a log entry.
//
// All types are safe for concurrent use.
package login
