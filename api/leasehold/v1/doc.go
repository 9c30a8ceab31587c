// Package leaseholdv1 contains the code that protoc generates for leasehold.v1, Leasehold's native
// API. Go programs normally use package client instead. Clients in other languages generate their
// code from the .proto files in this directory.
//
// The API is frozen: .ci/api.sh compares it with api/frozen.binpb and refuses changes that break
// clients. Its mapping to JSON is in internal/api/web rather than in the .proto files, so that
// clients depend only on gRPC and protobuf.
package leaseholdv1

// Generating requires protoc 3.21, protoc-gen-go 1.36.11 and protoc-gen-go-grpc 1.6.2 on the PATH.

//go:generate go run ../../../internal/api/etcd/protodesc ../../leasehold.protoset
//go:generate sh -c "cd ../.. && protoc @leasehold/v1/protoc.args && rm leasehold.protoset"
//go:generate sh -c "go tool -modfile=../../../tools/go.mod gofumpt -w *.pb.go"
