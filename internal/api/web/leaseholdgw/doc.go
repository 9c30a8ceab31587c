// Package leaseholdgw turns JSON over HTTP into calls of leasehold.v1, as grpc-gateway generates
// it. It is apart from package leaseholdpb so that a client need not have it.
package leaseholdgw
