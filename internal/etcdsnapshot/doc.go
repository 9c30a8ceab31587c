// Package etcdsnapshot reads the state of an etcd cluster from the file that "etcdctl snapshot
// save" writes, or from member/snap/db in the data directory of a member that has stopped.
//
// It reads the newest version of every key and the leases, as etcd 3.6 and 3.7 store them. It does
// not read the history, or users and roles.
package etcdsnapshot
