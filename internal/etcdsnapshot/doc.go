// Package etcdsnapshot reads the state of an etcd cluster from a file written by "etcdctl snapshot
// save", or from member/snap/db in the data directory of a stopped member.
//
// It reads the newest version of every key, and the leases, as etcd 3.6 and 3.7 store them. It does
// not read the history, users or roles.
package etcdsnapshot
