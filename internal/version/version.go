// Package version defines the version of this release, and the etcd version that it claims to be.
// The server and the command line both use it, so that they cannot disagree.
//
// # A new version of the formats
//
// The version of entries, snapshots and messages between members is the cluster version. The
// members agree on it through the log, a leader writes nothing that this version lacks, and a
// release can read all earlier versions. The records of internal/storage have versions of their
// own, which no release has changed. To introduce a version 2:
//
//   - Put its number into Newest and its name into names. Oldest is the version of the release
//     before.
//   - Decoders accept new kinds, flags and fields only if the version of the bytes has them
//     (Decoder.Version), no matter how deep in a transaction they are. A leader proposes no command
//     that a decoder of the cluster version rejects (fsm.Has). The corpora "_unknown" fail if a
//     decoder of version 1 accepts more than it did.
//   - A new code of a refusal goes only to members of a cluster that has the version.
//   - Where SetVersion is applied, decide what happens to the new state when the version falls
//     again: the state is dropped, or the change is rejected.
//   - Add a corpus of it in testdata/v2. Those of version 1 stay as they are.
package version

const (
	// Version is the release of Leasehold.
	Version = "0.1.0"

	// EtcdVersion is the etcd release whose API the server implements. Client libraries read it to
	// decide which calls they may make.
	EtcdVersion = "3.7.3"

	// EtcdAPIVersion is EtcdVersion without its patch number.
	EtcdAPIVersion = "3.7"
)
