package wire

import (
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// dice fills messages with random values.
type dice struct {
	*rand.Rand
	// dense, unknown and again are the probabilities that a field is set, that a message has an
	// unknown field, and that an encoded message is followed by another of the same type.
	dense, unknown, again float64
}

// message returns a random message of the same type as m.
func (d *dice) message(m proto.Message) proto.Message {
	out := m.ProtoReflect().New()
	d.fill(out, 0)
	return out.Interface()
}

func (d *dice) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	var one protoreflect.FieldDescriptor // the chosen field of a oneof
	for i := range fields.Len() {
		f := fields.Get(i)
		o := f.ContainingOneof()
		if o != nil && !o.IsSynthetic() {
			if f.Index() == o.Fields().Get(0).Index() {
				one = o.Fields().Get(d.IntN(o.Fields().Len()))
			}
			if f != one {
				continue
			}
		}
		if d.Float64() > d.dense || depth > 6 {
			continue
		}
		d.set(m, f, depth)
	}
	if d.Float64() < d.unknown {
		b := protowire.AppendTag(nil, 4000, protowire.VarintType)
		m.SetUnknown(protowire.AppendVarint(b, d.Uint64()))
	}
}

func (d *dice) set(m protoreflect.Message, f protoreflect.FieldDescriptor, depth int) {
	switch {
	case f.IsMap():
		for range d.IntN(3) {
			m.Mutable(f).Map().Set(
				d.scalar(f.MapKey()).MapKey(), d.scalar(f.MapValue()))
		}
	case f.IsList():
		list := m.Mutable(f).List()
		for range d.IntN(4) {
			if f.Message() != nil {
				d.fill(list.AppendMutable().Message(), depth+1)
			} else {
				list.Append(d.scalar(f))
			}
		}
	case f.Message() != nil:
		d.fill(m.Mutable(f).Message(), depth+1)
	default:
		m.Set(f, d.scalar(f))
	}
}

// twice occasionally appends another message of the same type to an encoded message, and does the
// same for nested messages.
func (d *dice) twice(b []byte, m protoreflect.MessageDescriptor) []byte {
	var out []byte
	for len(b) > 0 {
		num, typ, size := protowire.ConsumeField(b)
		_, _, tag := protowire.ConsumeTag(b)
		f := m.Fields().ByNumber(num)
		if typ != protowire.BytesType || f.Message() == nil || f.IsMap() {
			out = append(out, b[:size]...)
		} else {
			v, _ := protowire.ConsumeBytes(b[tag:])
			out = protowire.AppendBytes(append(out, b[:tag]...), d.twice(v, f.Message()))
		}
		b = b[size:]
	}
	if d.Float64() < d.again {
		more := dynamicpb.NewMessage(m)
		d.fill(more, 4)
		out, _ = proto.MarshalOptions{}.MarshalAppend(out, more)
	}
	return out
}

// scalar returns a random value of f's type. Small values are as likely as large ones.
func (d *dice) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := d.Uint64() >> d.IntN(64)
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("né"[:d.IntN(2)] + string(d.bytes()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(d.bytes())
	default:
		panic("no values of kind " + f.Kind().String())
	}
}

// bytes returns random text, either empty or with a length that takes one or two bytes to encode.
func (d *dice) bytes() []byte {
	b := make([]byte, d.IntN(2)*d.IntN(200))
	for i := range b {
		b[i] = byte('a' + d.IntN(26))
	}
	return b
}
