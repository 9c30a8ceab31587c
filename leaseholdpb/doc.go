// Package leaseholdpb is leasehold.v1, the service's own API, as gRPC's Go code.
// Programs in Go will rather use package client; those in other languages generate
// their code from leasehold.proto. What makes JSON of it is internal/api/web/leaseholdgw, so
// that a client needs nothing but gRPC and protobuf.
package leaseholdpb

// Needed on the PATH: protoc 3.21, protoc-gen-go 1.36.11, protoc-gen-go-grpc 1.6.2
// and protoc-gen-grpc-gateway 2.33.0.

//go:generate go run ../internal/api/etcd/protodesc leasehold.protoset
//go:generate protoc @protoc.args
//go:generate rm leasehold.protoset
//go:generate sh -c "sed -i 's/^package .*/package leaseholdgw/' ../internal/api/web/leaseholdgw/*.pb.gw.go"
//go:generate go tool -modfile=../tools/go.mod gofumpt -w leasehold.pb.go store.pb.go stream.pb.go
