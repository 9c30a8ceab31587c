package trace

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is where a span has its place. The values are OTLP's.
type Kind uint64

// The kinds.
const (
	Internal Kind = 1 // a part of what a server does
	Server   Kind = 2 // a call, as the server sees it
)

// Span is something that took time, as a part of a trace.
type Span struct {
	Trace  ID
	ID     SpanID
	Parent SpanID // zero if nothing caused it
	State  string
	Name   string
	Kind   Kind
	// Start and End are in nanoseconds since 1970.
	Start, End int64
	Attributes []Attribute
	// Failed says that what the span is of failed. Why is not told: errors name keys.
	Failed bool
}

// Attribute is something to know of a span, or of the member that sends spans. The value is a
// string, an int64 or a bool.
type Attribute struct {
	Key   string
	Value any
}

// NewID makes the ID of a trace of random numbers.
func NewID(high, low uint64) (i ID) {
	binary.BigEndian.PutUint64(i[:], high)
	binary.BigEndian.PutUint64(i[8:], low|1) // never zero
	return i
}

// NewSpanID makes the ID of a span of a random number.
func NewSpanID(random uint64) (i SpanID) {
	binary.BigEndian.PutUint64(i[:], random|1)
	return i
}

// AppendRequest appends an ExportTraceServiceRequest of OTLP 1 to b: spans of one resource.
func AppendRequest(b []byte, resource []Attribute, release string, spans []Span) []byte {
	var r []byte
	for _, a := range resource {
		r = appendAttribute(r, 1, a)
	}
	var scope []byte
	scope = appendText(scope, 1, "leasehold")
	scope = appendText(scope, 2, release)
	all := appendPart(nil, 1, scope)
	for i := range spans {
		all = appendPart(all, 2, appendSpan(nil, &spans[i]))
	}
	var of []byte
	of = appendPart(of, 1, r)
	of = appendPart(of, 2, all)
	return appendPart(b, 1, of)
}

// sampled are the flags of a span of which the trace is kept. That the parent is of another
// process is known of those of servers (OTLP's SpanFlags).
const (
	sampled      = 1
	remoteKnown  = 1 << 8
	parentRemote = 1 << 9
)

func appendSpan(b []byte, s *Span) []byte {
	b = appendPart(b, 1, s.Trace[:])
	b = appendPart(b, 2, s.ID[:])
	b = appendText(b, 3, s.State)
	if s.Parent != (SpanID{}) {
		b = appendPart(b, 4, s.Parent[:])
	}
	b = appendText(b, 5, s.Name)
	b = appendNumber(b, 6, uint64(s.Kind))
	b = appendTime(b, 7, s.Start)
	b = appendTime(b, 8, s.End)
	for _, a := range s.Attributes {
		b = appendAttribute(b, 9, a)
	}
	if s.Failed {
		b = appendPart(b, 15, appendNumber(nil, 3, 2))
	}
	flags := uint32(sampled | remoteKnown)
	if s.Kind == Server && s.Parent != (SpanID{}) {
		flags |= parentRemote
	}
	b = protowire.AppendTag(b, 16, protowire.Fixed32Type)
	return protowire.AppendFixed32(b, flags)
}

func appendAttribute(b []byte, field protowire.Number, a Attribute) []byte {
	var value []byte
	switch v := a.Value.(type) {
	case string:
		value = appendPart(value, 1, []byte(v))
	case bool:
		value = protowire.AppendTag(value, 2, protowire.VarintType)
		value = protowire.AppendVarint(value, protowire.EncodeBool(v))
	case int64:
		value = protowire.AppendTag(value, 3, protowire.VarintType)
		value = protowire.AppendVarint(value, uint64(v))
	}
	return appendPart(b, field, appendPart(appendText(nil, 1, a.Key), 2, value))
}

func appendPart(b []byte, field protowire.Number, part []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, part)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, text)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, n)
}

func appendTime(b []byte, field protowire.Number, at int64) []byte {
	b = protowire.AppendTag(b, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, uint64(at))
}

// Rejected reads an ExportTraceServiceResponse: how many spans the collector did not take, and
// why. What it cannot read rejects nothing.
func Rejected(b []byte) (spans int64, why string) {
	part, _ := field(b, 1)
	n, _ := field(part, 1)
	if v, size := protowire.ConsumeVarint(n); size > 0 {
		spans = max(int64(v), 0)
	}
	text, _ := field(part, 2)
	return spans, string(text)
}

// field returns the value of a field of a message: of bytes what is in them, of a number its
// encoding.
func field(b []byte, want protowire.Number) (value []byte, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return nil, false
		}
		if num == want && typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			return value, true
		}
		if num == want {
			return b[:size], true
		}
		b = b[size:]
	}
	return nil, false
}
