package leaseholdv1_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "leasehold.dev/api/leasehold/v1"
)

// Goal: every call, and every request of a stream, says what its caller needs, and a call needs the
// same by itself and over a stream. Method: the descriptors, so that a new one is looked at, too.
func TestNeeds(t *testing.T) {
	byRequest := make(map[protoreflect.FullName]pb.Needs)
	for _, f := range files {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				needs := proto.GetExtension(m.Options(), pb.E_CallNeeds).(pb.Needs)
				if needs == pb.Needs_NEEDS_UNSPECIFIED {
					t.Errorf("%s: it does not say what it needs (option call_needs)", m.FullName())
				}
				byRequest[m.Input().FullName()] = needs
			}
		}
	}
	fields := new(pb.Request).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		needs := proto.GetExtension(f.Options(), pb.E_RequestNeeds).(pb.Needs)
		if needs == pb.Needs_NEEDS_UNSPECIFIED {
			t.Errorf("%s: it does not say what it needs (option request_needs)", f.FullName())
		}
		if f.Message() == nil {
			continue
		}
		if call, ok := byRequest[f.Message().FullName()]; ok && call != needs {
			t.Errorf("%s needs %v, and %v in a call", f.FullName(), needs, call)
		}
	}
}
