package leaseholdv1_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// TestWireNames: every name and number of leasehold.v1 is as testdata/names.txt lists it. JSON
// has the names of fields and of values as they stand there; binary messages have the numbers.
// So a change that edits a line, or takes one away, breaks programs that are in use.
func TestWireNames(t *testing.T) {
	var b strings.Builder
	for _, f := range files {
		for i := range f.Services().Len() {
			writeService(&b, f.Services().Get(i))
		}
		writeEnums(&b, f.Enums())
		writeMessages(&b, f.Messages())
	}
	const golden = "testdata/names.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("%s differs from the .proto files from line %d on: %q (go test -rewrite)",
				golden, i+1, line)
		}
	}
}

func writeService(b *strings.Builder, s protoreflect.ServiceDescriptor) {
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		http, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		fmt.Fprintf(b, "/%s/%s %s(%s) %s(%s)%s\n", s.FullName(), m.Name(),
			stream(m.IsStreamingClient()), m.Input().Name(),
			stream(m.IsStreamingServer()), m.Output().Name(),
			strings.TrimRight(" "+http.GetPost(), " "))
	}
}

func stream(streams bool) string {
	if streams {
		return "stream"
	}
	return "one"
}

func writeEnums(b *strings.Builder, list protoreflect.EnumDescriptors) {
	for i := range list.Len() {
		e := list.Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			fmt.Fprintf(b, "%s %d %s\n", short(e), v.Number(), v.Name())
		}
	}
}

func writeMessages(b *strings.Builder, list protoreflect.MessageDescriptors) {
	for i := range list.Len() {
		m := list.Get(i)
		if m.IsMapEntry() {
			continue
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			fmt.Fprintf(b, "%s %d %s %s\n", short(m), f.Number(), f.TextName(), kind(f))
		}
		writeEnums(b, m.Enums())
		writeMessages(b, m.Messages())
	}
}

// short is a name without the package.
func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

// kind is the type of a field.
func kind(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map " + kind(f.MapKey()) + " " + kind(f.MapValue())
	case f.Message() != nil:
		return strings.TrimPrefix(f.Cardinality().String()+" ", "optional ") + short(f.Message())
	case f.Enum() != nil:
		return strings.TrimPrefix(f.Cardinality().String()+" ", "optional ") + short(f.Enum())
	}
	return strings.TrimPrefix(f.Cardinality().String()+" ", "optional ") + f.Kind().String()
}
