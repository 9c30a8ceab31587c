// Package access stores users, roles and permissions, and decides which keys a caller may read and
// write.
//
// A user has roles, and a role has permissions on ranges of keys. The role root has all
// permissions. The rules, the errors and the order of checks are the same as in etcd's Auth
// (https://etcd.io/docs/v3.6/learning/design-auth-v3/), because clients rely on them.
//
// A [State] is immutable: each change returns a new one. So any goroutine may read it, and every
// decision is based on a well-defined revision. Package fsm keeps the latest state and applies
// changes in the same order on each member.
//
// The package does not deal with tokens, connections or requests. It stores password hashes, but
// does not interpret them.
package access
