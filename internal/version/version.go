// Package version defines this release's own version, and the etcd version that it claims to be.
// The server and the command line both use it, so that they cannot disagree.
//
// # Introducing a new version of the formats
//
// Entries, snapshots and messages between members are versioned by the cluster version. The members
// agree on it through the log. A leader writes only what that version supports, and a release can
// read all earlier versions. The records of internal/storage have their own versions, which no
// release has changed. To introduce version 2:
//
//   - Put its number in Newest and its name in names. Oldest is the version of the previous
//     release.
//   - Decoders accept new kinds, flags and fields only if the version of the bytes includes them
//     (Decoder.Version), no matter how deep in a transaction they are. A leader proposes no command
//     that a decoder of the cluster version rejects (fsm.Has). The "_unknown" corpora fail if a
//     decoder of version 1 accepts more than it did before.
//   - Send a new error code only to members of a cluster that has the version.
//   - Where SetVersion is applied, decide what happens to the new state when the version is lowered
//     again: either drop the state or reject the change.
//   - Add a corpus for version 2 in testdata/v2. Leave the version 1 corpora unchanged.
package version

const (
	// Version is the release of Leasehold.
	Version = "0.1.0"

	// EtcdVersion is the etcd release whose API the server implements. Client libraries read it to
	// decide which calls they can make.
	EtcdVersion = "3.7.3"

	// EtcdAPIVersion is EtcdVersion without its patch number.
	EtcdAPIVersion = "3.7"
)
