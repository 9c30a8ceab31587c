package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// BenchmarkEncode measures the size of a message with 64 parts and the time to encode it, with this
// package and with the standard implementation.
func BenchmarkEncode(b *testing.B) {
	room := make([]byte, 64<<10)
	for name, m := range samples() {
		b.Run(name+"/standard", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = proto.Size(m)
				o := proto.MarshalOptions{UseCachedSize: true}
				if _, err := o.MarshalAppend(room[:0], m); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/wire", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !write(room[:size(m)], m) {
					b.Fatal("left to the standard encoding")
				}
			}
		})
	}
}

// BenchmarkDecode measures decoding a message with 64 parts.
func BenchmarkDecode(b *testing.B) {
	for name, m := range samples() {
		data, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		for by, decode := range map[string]func([]byte, proto.Message) error{
			"standard": proto.Unmarshal,
			"wire":     func(b []byte, m proto.Message) error { return read(b, m) },
		} {
			b.Run(name+"/"+by, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := decode(data, fresh(m)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
