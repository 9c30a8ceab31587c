package wire

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// agree checks that decoding gives the same message or the same error as the standard
// implementation.
func agree(t *testing.T, b []byte, of proto.Message) {
	t.Helper()
	want, got := fresh(of), fresh(of)
	wantErr, err := proto.Unmarshal(b, want), read(b, got)
	switch {
	case (err == nil) != (wantErr == nil):
		t.Fatalf("%x: error %v, want %v", b, err, wantErr)
	case err != nil && err.Error() != wantErr.Error():
		t.Fatalf("%x: error %q, want %q", b, err, wantErr)
	case err == nil && !proto.Equal(got, want):
		t.Fatalf("%x: got %v, want %v", b, got, want)
	}
}

// encode returns the output of Marshal as a single slice.
func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := Codec().Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	return b.Materialize()
}

// TestSamples checks that this package, and not the fallback, reads and writes the common messages,
// and that the result matches the standard implementation.
func TestSamples(t *testing.T) {
	for name, m := range samples() {
		want, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size(m))
		if !write(b, m) || len(b) != len(want) {
			t.Errorf("%s: it is not written here, or has %d bytes instead of %d",
				name, len(b), len(want))
		}
		agree(t, b, m)
		for _, r := range parts(m) {
			p := reader{b: r, end: len(r)}
			if _, ok := m.(*pb.ClientMessage); ok {
				p.readRequest(p.end)
			} else {
				p.readResponse(p.end)
			}
			if p.odd {
				t.Fatalf("%s: it is not read here", name)
			}
		}
	}
}

// parts returns the encoded requests or responses of a message.
func parts(m proto.Message) (out [][]byte) {
	b, _ := proto.Marshal(m)
	for len(b) > 0 {
		n, _, l := protowire.ConsumeTag(b)
		v, k := protowire.ConsumeBytes(b[l:])
		if n != 1 {
			return out
		}
		out = append(out, v)
		b = b[l+k:]
	}
	return out
}

// TestRandom checks that this package reads and writes messages with any combination of known and
// unknown fields as the standard implementation does. The messages are filled by reflection, so a
// field that is missing from this package cannot be overlooked.
func TestRandom(t *testing.T) {
	d := &dice{Rand: rand.New(rand.NewPCG(1, 2))}
	for i := range 6000 {
		d.dense, d.unknown = d.Float64(), float64(i%3)/40
		for _, of := range []proto.Message{&pb.ClientMessage{}, &pb.ServerMessage{}} {
			m := d.message(of)
			standard, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			agree(t, standard, of)
			b := encode(t, m)
			got := fresh(of)
			if err := proto.Unmarshal(b, got); err != nil || !proto.Equal(got, m) {
				t.Fatalf("%v, written as %x, is read as %v, %v", m, b, got, err)
			}
			if d.unknown == 0 {
				sizes(t, m)
			}
		}
	}
}

func sizes(t *testing.T, m proto.Message) {
	t.Helper()
	if n := size(m); n != proto.Size(m) {
		t.Fatalf("%v: %d bytes, want %d", m, n, proto.Size(m))
	}
	switch m := m.(type) {
	case *pb.ClientMessage:
		for _, r := range m.Requests {
			if n, ok := RequestSize(r); n != proto.Size(r) || !ok {
				t.Fatalf("%v: %d bytes, want %d", r, n, proto.Size(r))
			}
		}
	case *pb.ServerMessage:
		for _, r := range m.Responses {
			if n := ResponseSize(r); n != proto.Size(r) {
				t.Fatalf("%v: %d bytes, want %d", r, n, proto.Size(r))
			}
		}
	}
}

// TestTexts checks that a request with invalid text is detected, wherever the text is.
func TestTexts(t *testing.T) {
	const bad = "\xff"
	grant := &pb.GrantRequest{Name: bad}
	for _, r := range []*pb.Request{
		{Body: &pb.Request_Grant{Grant: grant}},
		{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{Labels: map[string]string{"k": bad}}}},
		{Body: &pb.Request_HandOver{HandOver: &pb.HandOverRequest{Owner: bad}}},
		{Body: &pb.Request_Txn{Txn: &pb.TxnRequest{Compare: []*pb.Compare{{
			Target: &pb.Compare_NameToken{NameToken: &pb.NameToken{Name: bad}},
		}}}}},
		{Body: &pb.Request_Txn{Txn: &pb.TxnRequest{Failure: []*pb.Op{{Op: &pb.Op_Txn{
			Txn: &pb.TxnRequest{Success: []*pb.Op{{Op: &pb.Op_Grant{Grant: grant}}}},
		}}}}}},
	} {
		_, err := proto.Marshal(r)
		if n, ok := RequestSize(r); err == nil || ok || n != proto.Size(r) {
			t.Errorf("%v: %d bytes, can be sent: %t", r, n, ok)
		}
	}
}

// TestMerge checks that duplicate fields, at any depth, are handled as the standard requires: the
// last value wins, and messages are merged.
func TestMerge(t *testing.T) {
	d := &dice{Rand: rand.New(rand.NewPCG(3, 4))}
	for range 20000 {
		d.dense, d.again = 0.5+d.Float64()/2, d.Float64()/16
		for _, of := range []proto.Message{&pb.ClientMessage{}, &pb.ServerMessage{}} {
			b, err := proto.Marshal(d.message(of))
			if err != nil {
				t.Fatal(err)
			}
			agree(t, d.twice(b, of.ProtoReflect().Descriptor()), of)
		}
	}
}

// block encodes a field of type bytes.
func block(field protowire.Number, b ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
}

// TestTruncated truncates messages and their parts at every byte, and corrupts them.
func TestTruncated(t *testing.T) {
	d := rand.New(rand.NewPCG(5, 6))
	for _, m := range samples() {
		part := parts(m)[0]
		for n := range part {
			agree(t, block(1, part[:n]...), m)
		}
		whole := slices.Concat(block(1, part...), block(1, part...))
		for n := range whole {
			agree(t, whole[:n], m)
		}
		for range 2000 {
			garbled := bytes.Clone(whole)
			for range 1 + d.IntN(3) {
				garbled[d.IntN(len(garbled))] = byte(d.Uint32())
			}
			agree(t, garbled, m)
		}
	}
}

// transactions returns transactions nested to the given depth.
func transactions(levels int) []byte {
	var b []byte
	for range levels {
		b = block(2, block(4, b...)...)
	}
	return block(1, block(7, b...)...)
}

// TestOdd checks that this package treats misplaced or invalid data in a message as the standard
// implementation does: it either rejects the data or keeps it.
func TestOdd(t *testing.T) {
	ones := bytes.Repeat([]byte{0xff}, 9)
	for name, b := range map[string][]byte{
		"an invalid name":        block(1, block(8, block(3, 0xff)...)...),
		"an invalid name inside": block(1, block(7, block(2, block(5, block(3, 0xff)...)...)...)...),
		"a wrong type":           block(1, block(4, 1<<3, 5)...),
		"a group":                block(1, 1<<3|3, 1<<3|4),
		"a field 0":              block(1, 0, 0),
		"a number of 19 bytes":   block(1, slices.Concat([]byte{8}, ones, ones)...),
		"a number of 70 bits":    block(1, slices.Concat([]byte{8}, ones, []byte{2})...),
		"a length beyond":        slices.Concat([]byte{10}, ones, []byte{1}),
		"a name, then a token": block(1, block(7, block(1, slices.Concat(
			block(10, block(1, 'n')...), block(10, 2<<3, 5))...)...)...),
		"a pair, then its lease": block(1, block(4, slices.Concat(
			block(2, block(1, 'k')...), block(2, 6<<3, 5))...)...),
		"an outcome in two parts": block(1, block(7, block(3, slices.Concat(
			block(1, block(1, 8, 5)...), block(1, block(2, block(1, 'k')...)...))...)...)...),
		"transactions":          transactions(maxDepth + 1),
		"too deep transactions": transactions(5001),
	} {
		t.Run(name, func(t *testing.T) {
			agree(t, b, &pb.ClientMessage{})
			agree(t, b, &pb.ServerMessage{})
		})
	}
	if err := read(transactions(5001), &pb.ClientMessage{}); err == nil {
		t.Error("transactions beyond every depth were taken")
	}
	bad := &pb.ClientMessage{Requests: []*pb.Request{{Body: &pb.Request_Grant{
		Grant: &pb.GrantRequest{Name: "\xff"},
	}}}}
	if _, err := Codec().Marshal(bad); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("a name that is no text was sent, or refused with: %v", err)
	}
	if read(block(1, block(25, 0xff)...), &pb.ClientMessage{}) == nil {
		t.Error("a trace that is no text was taken")
	}
}

// TestNil checks that missing parts are sent as empty ones.
func TestNil(t *testing.T) {
	for _, m := range []proto.Message{
		&pb.ClientMessage{}, &pb.ServerMessage{},
		&pb.ClientMessage{Requests: []*pb.Request{
			nil,
			{Body: &pb.Request_Put{}},
			{Body: &pb.Request_DeleteRange{}},
			{Body: &pb.Request_ReadRange{}},
			{Body: &pb.Request_Txn{}},
			{Body: &pb.Request_Grant{}},
			{Body: &pb.Request_Renew{}},
			{Body: &pb.Request_Txn{Txn: &pb.TxnRequest{
				Compare: []*pb.Compare{
					nil,
					{Target: &pb.Compare_Value{}},
					{Target: &pb.Compare_NameToken{}},
				},
				Success: []*pb.Op{
					nil,
					{Op: &pb.Op_Put{}},
					{Op: &pb.Op_DeleteRange{}},
					{Op: &pb.Op_ReadRange{}},
					{Op: &pb.Op_Txn{}},
					{Op: &pb.Op_Grant{}},
					{Op: &pb.Op_Renew{}},
					{Op: &pb.Op_Revoke{}},
					{Op: &pb.Op_DrawToken{}},
				},
				Wait: &pb.Wait{IgnoredValue: []byte{}},
			}}},
		}},
		&pb.ServerMessage{Responses: []*pb.Response{
			nil,
			{Body: &pb.Response_Put{}},
			{Body: &pb.Response_DeleteRange{}},
			{Body: &pb.Response_ReadRange{}},
			{Body: &pb.Response_Txn{}},
			{Body: &pb.Response_Grant{}},
			{Body: &pb.Response_Watch{}},
			{Body: &pb.Response_Error{}},
			{Body: &pb.Response_Watch{Watch: &pb.WatchResponse{Events: []*pb.Event{nil}}}},
			{Body: &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{Kvs: []*pb.KeyValue{nil}}}},
			{Body: &pb.Response_Txn{Txn: &pb.TxnResponse{Responses: []*pb.OpResponse{
				nil,
				{Response: &pb.OpResponse_Put{}},
				{Response: &pb.OpResponse_DeleteRange{}},
				{Response: &pb.OpResponse_ReadRange{}},
				{Response: &pb.OpResponse_Txn{}},
				{Response: &pb.OpResponse_Grant{}},
				{Response: &pb.OpResponse_Renew{}},
			}}}},
		}},
	} {
		want, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if b := encode(t, m); !bytes.Equal(b, want) {
			t.Errorf("%v: %x, want %x", m, b, want)
		}
		agree(t, want, m)
	}
}

// pool is a buffer pool that overwrites the buffers returned to it.
type pool struct{ mem.BufferPool }

func (p pool) Put(b *[]byte) {
	for i := range *b {
		(*b)[i] = 0xee
	}
}

// TestOwnMemory checks that a message does not change when the buffer it was read from is reused.
func TestOwnMemory(t *testing.T) {
	for name, m := range samples() {
		b := encode(t, m)
		half := len(b) / 2
		first, second := bytes.Clone(b[:half]), bytes.Clone(b[half:])
		for _, data := range []mem.BufferSlice{
			{mem.NewBuffer(&b, pool{})},
			{mem.NewBuffer(&first, pool{}), mem.NewBuffer(&second, pool{})},
		} {
			got := fresh(m)
			if err := Codec().Unmarshal(data, got); err != nil {
				t.Fatal(err)
			}
			data.Free()
			// Overwrite buffers from gRPC's pool, as another user of the pool would.
			for range 8 {
				other := mem.DefaultBufferPool().Get(len(b))
				clear(*other)
				defer mem.DefaultBufferPool().Put(other)
			}
			if !proto.Equal(got, m) {
				t.Errorf("%s: it has changed with its buffer", name)
			}
		}
	}
}

// TestOthers checks that messages that do not belong to a stream are passed to gRPC's codec.
func TestOthers(t *testing.T) {
	m := &pb.PutRequest{Key: []byte("k")}
	b, err := Codec().Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := &pb.PutRequest{}
	if err := Codec().Unmarshal(b, got); err != nil || !proto.Equal(got, m) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := Codec().Marshal("text"); err == nil {
		t.Error("what is no message was sent")
	}
	if name := Codec().Name(); name != "proto" {
		t.Errorf("the codec's name is %q", name)
	}
}

// FuzzRead compares the decoding of arbitrary bytes with the standard implementation. If decoding
// succeeds, it compares the encoding as well.
func FuzzRead(f *testing.F) {
	for _, m := range samples() {
		for _, p := range parts(m)[:1] {
			_, client := m.(*pb.ClientMessage)
			f.Add(client, protowire.AppendBytes([]byte{1<<3 | typeBytes}, p))
		}
	}
	f.Fuzz(func(t *testing.T, client bool, b []byte) {
		var m proto.Message = &pb.ServerMessage{}
		if client {
			m = &pb.ClientMessage{}
		}
		agree(t, b, m)
		if read(b, m) != nil {
			return
		}
		got := fresh(m)
		if err := proto.Unmarshal(encode(t, m), got); err != nil || !proto.Equal(got, m) {
			t.Fatalf("%v is written and read as %v, %v", m, got, err)
		}
	})
}
