package etcd

import (
	"iter"
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/mvcc"
)

var (
	errStreamSort = status.Error(codes.Unimplemented,
		"RangeStream does not support custom sort orders")
	errStreamFilter = status.Error(codes.Unimplemented,
		"RangeStream does not support revision filters")
)

// streamChunk is the target size, in bytes, of the parts of a range stream.
const streamChunk = 512 << 10

func checkRangeStream(r *pb.RangeRequest) error {
	if err := checkRange(r); err != nil {
		return err
	}
	byKey := r.SortTarget == pb.RangeRequest_KEY && r.SortOrder == pb.RangeRequest_ASCEND
	if r.SortOrder != pb.RangeRequest_NONE && !byKey {
		return errStreamSort
	}
	if r.MinModRevision != 0 || r.MaxModRevision != 0 ||
		r.MinCreateRevision != 0 || r.MaxCreateRevision != 0 {
		return errStreamFilter
	}
	return nil
}

// RangeStream implements pb.KVServer. All parts come from one view, so they are consistent. The
// last part contains the header and the count.
func (s *kvService) RangeStream(r *pb.RangeRequest, stream pb.KV_RangeStreamServer) error {
	if err := checkRangeStream(r); err != nil {
		return err
	}
	if !r.Serializable {
		if err := s.node.Confirm(stream.Context()); err != nil {
			return api.ReadError(err)
		}
	}
	v := s.node.View()
	if err := readable(stream.Context(), v, string(r.Key), string(r.RangeEnd)); err != nil {
		return err
	}
	if err := v.KV.Check(r.Revision); err != nil {
		return api.Error(err)
	}
	last := &pb.RangeResponse{Header: s.header(v)}
	if r.CountOnly {
		res, err := v.KV.Range(string(r.Key), string(r.RangeEnd), rangeOptions(r))
		if err != nil {
			return api.Error(err)
		}
		last.Count = res.Count
	} else {
		pairs, err := streamed(r, v.KV)
		if err != nil {
			return api.Error(err)
		}
		if err := sendParts(r, stream, pairs, last); err != nil {
			return err
		}
	}
	return stream.Send(&pb.RangeStreamResponse{RangeResponse: last})
}

// streamed returns the key-value pairs to stream. Pairs can be streamed directly only in key order.
// etcd also accepts other sort targets if no sort order is given. In that case, the pairs are
// collected and sorted first.
func streamed(r *pb.RangeRequest, v *mvcc.View) (iter.Seq[*mvcc.KeyValue], error) {
	if r.SortTarget == pb.RangeRequest_KEY {
		return v.Ascend(string(r.Key), string(r.RangeEnd), r.Revision), nil
	}
	o := rangeOptions(r)
	o.Limit = 0 // sendParts counts the pairs and applies the limit
	res, err := v.Range(string(r.Key), string(r.RangeEnd), o)
	return slices.Values(res.KVs), err
}

// sendParts sends all parts except the last, which it only fills.
func sendParts(
	r *pb.RangeRequest, stream pb.KV_RangeStreamServer, kvs iter.Seq[*mvcc.KeyValue],
	last *pb.RangeResponse,
) error {
	limit := r.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	var part []*mvcc.KeyValue
	size := 0
	for kv := range kvs {
		last.Count++
		if last.Count > limit {
			last.More = true
			continue // count it only
		}
		if size >= streamChunk {
			out := &pb.RangeResponse{Kvs: pairs(part, r.KeysOnly)}
			if err := stream.Send(&pb.RangeStreamResponse{RangeResponse: out}); err != nil {
				return err
			}
			part, size = part[:0], 0
		}
		part = append(part, kv)
		size += len(kv.Key)
		if !r.KeysOnly {
			size += len(kv.Value)
		}
	}
	last.Kvs = pairs(part, r.KeysOnly)
	return nil
}
