// Package login identifies the user of a call: it checks passwords, and issues and checks login
// tokens. It does not decide what a user may do.
//
// There are two kinds of [Provider], which [Parse] selects by the flag --auth-token, as in etcd.
// Simple tokens are signed by the member that issued them, with a key that it generated at startup.
// JWTs are signed with a key of the operator. Every member can check both without asking another
// member and without a log entry.
//
// All types are safe for concurrent use.
package login
