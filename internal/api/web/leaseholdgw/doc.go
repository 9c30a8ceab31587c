// Package leaseholdgw turns JSON over HTTP into calls of leasehold.v1, as grpc-gateway generates
// it. It is apart from package leaseholdv1 so that a client need not have it.
package leaseholdgw

// protoc writes the files below a directory of the .proto files' package.
//go:generate sh -c "mv leasehold/v1/*.pb.gw.go . && rmdir leasehold/v1 leasehold"
//go:generate sh -c "sed -i 's/^package .*/package leaseholdgw/' *.pb.gw.go"
