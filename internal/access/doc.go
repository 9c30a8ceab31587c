// Package access holds users, roles and permissions, and decides who may read or write which keys.
//
// A user has roles, a role has permissions on ranges of keys, and the role root may do everything.
// Rules, errors and the order of checks are those of etcd's Auth
// (https://etcd.io/docs/v3.6/learning/design-auth-v3/), since clients rely on them.
//
// A [State] never changes: each change returns another one. So it may be read from any goroutine,
// and a decision holds for exactly the revision of the state that it was made with. Package fsm
// keeps the newest state and makes the changes, one after another, on each member alike.
//
// The package does not know tokens, connections or requests. Of passwords it has only the hashes,
// which it does not examine.
package access
