// Package cluster runs Kubernetes' API server on Leasehold, with real processes. It tests two
// setups: a shard for node leases in addition to a store for everything else, and Leasehold as the
// only store. Members and the API server are killed, and the store is restored from a snapshot,
// while workers renew node leases the way kubelets do. The tests check that no acknowledged update
// is lost, that resource versions never decrease, and that an informer converges.
//
//	LEASEHOLD_CAMPAIGN=1 go -C integrations/kubernetes test -v -count 1 ./cluster
//
// apiserver.sh builds the API server; -apiserver selects another binary.
package cluster
