// Package leaseholdv1 is leasehold.v1, the service's own API, as gRPC's Go code.
// Programs in Go will rather use package client; those in other languages generate
// their code from the .proto files beside this one, whose paths begin in directory api. What
// makes JSON of it is internal/api/web/transcoding, so that a client needs nothing but gRPC
// and protobuf.
package leaseholdv1

// Needed on the PATH: protoc 3.21, protoc-gen-go 1.36.11 and protoc-gen-go-grpc 1.6.2.

//go:generate go run ../../../internal/api/etcd/protodesc ../../leasehold.protoset
//go:generate sh -c "cd ../.. && protoc @leasehold/v1/protoc.args && rm leasehold.protoset"
//go:generate sh -c "go tool -modfile=../../../tools/go.mod gofumpt -w *.pb.go"
