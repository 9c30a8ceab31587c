// Package login identifies the user of a call. It checks passwords, and issues and checks login
// tokens. It does not decide what a user is allowed to do.
//
// There are two types of [Provider]. As in etcd, the --auth-token flag selects one. [Parse]
// evaluates that flag. Simple tokens are signed by the member that issues them, with a key that the
// member generated at startup. JWTs are signed with a key that the operator provides. Every member
// can check both types without asking another member and without a log entry.
//
// All types are safe for concurrent use.
package login
