// Package access stores users, roles and permissions, and decides which keys a caller may read and
// write.
//
// A user has roles, a role has permissions on ranges of keys, and the role root may do everything.
// The rules, the errors and the order of checks are those of etcd's Auth
// (https://etcd.io/docs/v3.6/learning/design-auth-v3/), because clients rely on them.
//
// A [State] is immutable: each change returns a new one. So any goroutine may read it, and a
// decision refers to a well-defined revision. Package fsm keeps the latest state and applies
// changes in the same order on each member.
//
// The package does not deal with tokens, connections or requests. It stores hashes of passwords,
// but does not examine them.
package access
