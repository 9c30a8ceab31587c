// Package version says which release this is, and which etcd it answers as.
// The server and the command line both read it, so that they cannot disagree.
package version

const (
	// Version is the release of Leasehold.
	Version = "0.1.0"

	// EtcdVersion is the etcd release whose API the server speaks. Client
	// libraries read it to decide which calls they may make.
	EtcdVersion = "3.7.3"

	// EtcdAPIVersion is EtcdVersion without its patch number.
	EtcdAPIVersion = "3.7"
)
