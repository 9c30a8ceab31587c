package native

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/leaseholdpb"
)

// Events implements Leases: not yet.
func (*leases) Events(*pb.EventsRequest, grpc.ServerStreamingServer[pb.EventsResponse]) error {
	return status.Error(codes.Unimplemented, "events are not told yet")
}
