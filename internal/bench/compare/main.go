// Compare measures leasehold, etcd and the bare gRPC ceiling side by side, in
// one run on one machine:
//
//	go run ./internal/bench/compare -etcd /path/to/etcd
//
// Without -leasehold it builds ./cmd/leasehold first. A target without a binary
// is left out; the ceiling is this program itself. Clusters are compared with
//
//	go run ./internal/bench/compare -etcd /path/to/etcd -members 3
//
// where the ceiling stays one process: it has nothing to replicate.
//
// The module in internal/bench/zookeeper is the same program with one server more.
package main

import "leasehold.dev/internal/bench/command"

func main() { command.Main() }
