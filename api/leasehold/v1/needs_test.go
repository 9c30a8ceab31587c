package leaseholdv1_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestNeeds checks that every call and every stream request declares the permission that it needs,
// and that a message that is used for both declares the same permission in both.
func TestNeeds(t *testing.T) {
	byRequest := make(map[protoreflect.FullName]pb.Needs)
	protoregistry.GlobalFiles.RangeFilesByPackage("leasehold.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				needs := proto.GetExtension(m.Options(), pb.E_CallNeeds).(pb.Needs)
				if needs == pb.Needs_NEEDS_UNSPECIFIED {
					t.Errorf("%s lacks the option call_needs", m.FullName())
				}
				byRequest[m.Input().FullName()] = needs
			}
		}
		return true
	})
	if len(byRequest) == 0 {
		t.Fatal("leasehold.v1 has no calls")
	}
	fields := new(pb.Request).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		needs := proto.GetExtension(f.Options(), pb.E_RequestNeeds).(pb.Needs)
		if needs == pb.Needs_NEEDS_UNSPECIFIED {
			t.Errorf("%s lacks the option request_needs", f.FullName())
		}
		if f.Message() == nil {
			continue
		}
		if call, ok := byRequest[f.Message().FullName()]; ok && call != needs {
			t.Errorf("%s needs %v, and %v in a call", f.FullName(), needs, call)
		}
	}
}
