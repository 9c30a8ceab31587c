// Package channel multiplexes many gRPC calls over one gRPC stream, each in its own channel
// (leasehold/v1/relay.proto). A relay opens the channels, and a member serves them.
//
// A channel has a window in each direction, like an HTTP/2 stream. If one end does not read, the
// other end blocks in that channel but not in others. The goroutine that receives from the stream
// never blocks, so memory use is limited by the number of channels.
//
// Short messages overtake long messages of other channels, so that renewals do not wait for a large
// response to another client. Renewals of groups of leases do not belong to a channel. They use
// channel 0.
package channel
