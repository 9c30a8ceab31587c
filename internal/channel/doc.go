// Package channel carries many calls of gRPC over one stream of gRPC, each in a channel of its
// own (leasehold/v1/relay.proto): a relay opens the channels, a member serves them.
//
// A channel has room for a bounded number of bytes each way, as a stream of HTTP/2 has: an end that
// takes nothing stops the other one in that channel, and none in others. What receives from
// the stream never waits, so what an end holds is bounded by its channels.
//
// Short messages pass long ones of other channels, so that a renewal does not wait for what
// somebody else reads. Renewals of all channels go together, in columns (renewals.go).
package channel
