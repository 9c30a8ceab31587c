package audit

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestEveryRequestHasAnAuditLevel checks that every request of every service, and of a leasehold.v1
// stream, has an audit level. It fails for a new request without one.
func TestEveryRequestHasAnAuditLevel(t *testing.T) {
	t.Parallel()
	check := func(of string, m protoreflect.MessageDescriptor) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
		if err != nil {
			t.Fatal(err)
		}
		if levelOf(kind.New().Interface()) == unknown {
			t.Errorf("%s has no level for the audit log", of)
		}
	}
	n := 0
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(f.Package()), "opentelemetry.") {
			return true // a collector's service, which members do not offer
		}
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if strings.HasPrefix(string(s.FullName()), "grpc.") {
				continue // health and reflection
			}
			for j := range s.Methods().Len() {
				check(string(s.Methods().Get(j).FullName()), s.Methods().Get(j).Input())
				n++
			}
		}
		return true
	})
	if n < 60 {
		t.Errorf("only %d calls", n)
	}
	for i := range requestBody.Fields().Len() {
		if f := requestBody.Fields().Get(i); f.Message() != nil {
			check(string(f.FullName()), f.Message())
		}
	}
}
