// Package channel carries many calls of gRPC over one stream of gRPC, each in a channel of its
// own (leasehold/v1/relay.proto): a relay opens the channels, a member serves them.
//
// A channel has room for a bounded number of bytes each way, like a stream of HTTP/2: an end that
// takes no messages stops the other end in that channel, but no other channel. The goroutine that
// receives from the stream never waits, so the memory of an end is bounded by its channels.
//
// Short messages pass long ones of other channels, so that a renewal does not wait for a large
// answer to another client. Renewals of groups of leases are about no channel, and go over channel
// 0.
package channel
