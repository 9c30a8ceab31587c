package server

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// BenchmarkHandOver is so many locks that go at once from one of two holders to the other, each
// of which gets in line again with the message by which it leaves.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchHandOver(b, n) })
	}
}

func benchHandOver(b *testing.B, n int) {
	s := benchOpen(b)
	const holders = 2
	var enter, next [holders]*pb.ClientMessage
	for h := range holders {
		id := int64(h + 1)
		s.cycle(&pb.ClientMessage{Requests: []*pb.Request{{Body: &pb.Request_Grant{
			Grant: &pb.GrantRequest{Id: id, TtlMs: 3_600_000},
		}}}}, 1)
		enter[h], next[h] = new(pb.ClientMessage), new(pb.ClientMessage)
		for i := range n {
			prefix := fmt.Appendf(nil, "lock/%d/", i)
			key := fmt.Appendf(prefix[:len(prefix):len(prefix)], "%x", id)
			in := txnOf(enterOf(prefix, key, id))
			enter[h].Requests = append(enter[h].Requests, in)
			next[h].Requests = append(next[h].Requests, txnOf(&pb.TxnRequest{
				Compare: []*pb.Compare{{Key: key, Target: &pb.Compare_Lease{Lease: id}}},
				Success: []*pb.Op{{Op: &pb.Op_DeleteRange{DeleteRange: &pb.DeleteRequest{Key: key}}}},
			}), in)
		}
		s.cycle(enter[h], n)
	}
	// It is told that it has left, and got in line, and that its key is gone; the other that
	// it is its turn.
	holder := 0
	s.measure(func() { s.cycle(next[holder], 4*n); holder = 1 - holder })
}

func enterOf(prefix, key []byte, id int64) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: &pb.Compare_CreateRevision{}}},
		Success: []*pb.Op{
			{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key, Lease: id}}},
			{Op: &pb.Op_DrawToken{DrawToken: &pb.DrawTokenRequest{}}},
		},
		Wait: &pb.Wait{Prefix: prefix, Key: key},
	}
}

// streamBench is an open stream to a member in this process.
type streamBench struct {
	b    *testing.B
	grpc grpc.ClientStream
	last uint64 // ID of a request
}

func benchOpen(b *testing.B) *streamBench {
	c := testConfig(b.TempDir())
	run(b, c)
	conn, err := grpc.NewClient("unix://"+c.URLs.ListenClient[0].Path, virtual.GRPC(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(countingCodec{})))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	g, err := conn.NewStream(b.Context(), &pb.StreamService_ServiceDesc.Streams[0],
		pb.StreamService_Open_FullMethodName)
	if err != nil {
		b.Fatal(err)
	}
	return &streamBench{b: b, grpc: g}
}

// cycle sends a message and waits for as many answers.
func (s *streamBench) cycle(m *pb.ClientMessage, answers int) {
	for _, q := range m.Requests {
		s.last++
		q.Id = s.last
	}
	if err := s.grpc.SendMsg(m); err != nil {
		s.b.Fatal(err)
	}
	for got := 0; got < answers; {
		var n int
		if err := s.grpc.RecvMsg(&n); err != nil {
			s.b.Fatal(err)
		}
		got += n
	}
}

// measure measures cycles, and what they take of this process's CPU.
func (s *streamBench) measure(cycle func()) {
	before := usage(s.b)
	s.b.ReportAllocs()
	for s.b.Loop() {
		cycle()
	}
	after := usage(s.b)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	s.b.ReportMetric(float64(cpu)/float64(s.b.N), "cpu-ns/op")
	s.b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/float64(s.b.N), "switches/op")
}

// usage is what this process has used. Its CPU time says more than the time of the clock where
// others work.
func usage(b *testing.B) (u unix.Rusage) {
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}

// countingCodec decodes of a ServerMessage only how many answers are in it.
type countingCodec struct{}

func (countingCodec) Name() string { return "proto" }

func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

func (countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	n := 0
	for rest := buf.ReadOnlyData(); len(rest) > 0; {
		num, typ, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(num, typ, rest[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		rest = rest[tag+size:]
		if num == 1 {
			n++
		}
	}
	*v.(*int) = n
	return nil
}
