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

	pb "leasehold.dev/leaseholdpb"
)

// BenchmarkStream is the way of messages of so many puts over a stream of leasehold.v1, each
// sent when the one before is answered. On a file system in memory (TMPDIR) it shows what a
// cycle costs beside the sync; the client's part is small.
func BenchmarkStream(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchStream(b, n) })
	}
}

func benchStream(b *testing.B, n int) {
	c := testConfig(b.TempDir())
	run(b, c)
	conn, err := grpc.NewClient("unix://"+c.URLs.ListenClient[0].Path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(countingCodec{})))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	g, err := conn.NewStream(b.Context(), &pb.Stream_ServiceDesc.Streams[0],
		pb.Stream_Open_FullMethodName)
	if err != nil {
		b.Fatal(err)
	}
	m := new(pb.ClientMessage)
	for i := range n {
		m.Requests = append(m.Requests, putOf(fmt.Appendf(nil, "key/%d", i), make([]byte, 32), 0))
		m.Requests[i].GetPut().PrevKv = false
	}
	last := uint64(0)
	before := usage(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, q := range m.Requests {
			last++
			q.Id = last
		}
		if err := g.SendMsg(m); err != nil {
			b.Fatal(err)
		}
		for got := 0; got < n; {
			var answers int
			if err := g.RecvMsg(&answers); err != nil {
				b.Fatal(err)
			}
			got += answers
		}
	}
	after := usage(b)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/float64(b.N), "switches/op")
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
