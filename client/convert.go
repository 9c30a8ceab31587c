package client

import (
	"maps"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/internal/message"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

func (g Grant) message() *pb.GrantRequest {
	m := &pb.GrantRequest{}
	g.write(m)
	return m
}

// write fills a new message from the grant.
func (g *Grant) write(m *pb.GrantRequest) {
	m.Id, m.TtlMs, m.Name, m.Owner = int64(g.ID), msUp(g.TTL), g.Name, g.Owner
	m.Labels, m.RequestId = maps.Clone(g.Labels), g.RequestID
	m.LockDelayMs, m.Resumable = msUp(g.LockDelay), g.Resumable
	if g.KeepKeys {
		m.AtExpiry = pb.AtExpiry_AT_EXPIRY_KEEP
	}
	for _, kv := range g.Keys {
		m.Keys = append(m.Keys, &pb.Pair{Key: []byte(kv.Key), Value: kv.Value})
	}
	m.Holds = rangeMessages(g.holds)
}

// grantedOf converts the answer to a grant. sent is a time before the grant was sent.
func grantedOf(m *pb.GrantResponse, sent moment) *Granted {
	return &Granted{
		Info: infoOf(m.GetLease()), Secret: m.GetSecret(), Existed: m.GetExisted(), sent: sent,
	}
}

func infoOf(m *pb.Lease) leases.Info {
	i := leases.Info{
		ID: lease.ID(m.GetId()), Token: lease.Token(m.GetToken()),
		TTL: duration(m.GetTtlMs()), Remaining: duration(m.GetRemainingMs()),
		Name: m.GetName(), Owner: m.GetOwner(), Labels: m.GetLabels(), Principal: m.GetPrincipal(),
		LockDelay: duration(m.GetLockDelayMs()),
		KeepKeys:  m.GetAtExpiry() == pb.AtExpiry_AT_EXPIRY_KEEP,
		Delayed:   m.GetDelayed(), Bound: m.GetBound(), KeyCount: m.GetKeyCount(),
	}
	for _, k := range m.GetKeys() {
		i.Keys = append(i.Keys, string(k))
	}
	for _, r := range heldOf(m.GetHolds()) {
		i.Holds = append(i.Holds, store.KeyRange(r))
	}
	return i
}

// ttlOf is like msUp, but returns a lease.TTL.
func ttlOf(d time.Duration) lease.TTL { return lease.TTL(msUp(d)) }

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func rangeMessages(list []keyrange.Range) []*pb.KeyRange {
	out := make([]*pb.KeyRange, len(list))
	for i, r := range list {
		out[i] = &pb.KeyRange{}
		out[i].Key, out[i].RangeEnd = message.Span(r.Key, r.End)
	}
	return out
}

// heldOf converts ranges that a cache holds or must drop.
func heldOf(list []*pb.KeyRange) []keyrange.Range {
	if len(list) == 0 {
		return nil
	}
	out := make([]keyrange.Range, len(list))
	for i, m := range list {
		out[i] = keyrange.Range{Key: string(m.GetKey()), End: string(m.GetRangeEnd())}
	}
	return out
}

// duration converts milliseconds to a Duration. The result is capped at the longest Duration, 292
// years.
func duration(ms int64) time.Duration {
	return time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}

func msUp(d time.Duration) int64 { return message.Ms(d) }
