package leaseholdv1_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "leasehold.dev/api/leasehold/v1"
)

// files are those of leasehold.v1.
var files = []protoreflect.FileDescriptor{
	pb.File_leasehold_v1_leases_proto, pb.File_leasehold_v1_store_proto,
	pb.File_leasehold_v1_stream_proto, pb.File_leasehold_v1_access_proto,
	pb.File_leasehold_v1_needs_proto, pb.File_leasehold_v1_relay_proto,
}

var (
	pascal = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	snake  = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	upper  = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$`)
)

// TestNames holds the rules of buf's STANDARD (see buf.yaml), and that no name is a word which a
// language that people write clients in keeps for itself.
func TestNames(t *testing.T) {
	for _, f := range files {
		dir := strings.ReplaceAll(string(f.Package()), ".", "/") + "/"
		if !strings.HasPrefix(f.Path(), dir) || !strings.HasSuffix(dir, "/v1/") {
			t.Errorf("%s: it is of package %s", f.Path(), f.Package())
		}
		for i := range f.Services().Len() {
			serviceNames(t, f.Services().Get(i))
		}
		enumNames(t, f.Enums())
		messageNames(t, f.Messages())
	}
}

func serviceNames(t *testing.T, s protoreflect.ServiceDescriptor) {
	t.Helper()
	if n := string(s.Name()); !pascal.MatchString(n) || !strings.HasSuffix(n, "Service") {
		t.Errorf("service %s", s.FullName())
	}
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		name, in, out := m.Name(), m.Input().Name(), m.Output().Name()
		if !pascal.MatchString(string(name)) {
			t.Errorf("method %s", m.FullName())
		}
		if m.IsStreamingClient() && in == "ClientMessage" && out == "ServerMessage" {
			continue // argued in buf.yaml
		}
		if in != name+"Request" || out != name+"Response" {
			t.Errorf("method %s takes %s and returns %s", m.FullName(), in, out)
		}
	}
}

func enumNames(t *testing.T, list protoreflect.EnumDescriptors) {
	t.Helper()
	for i := range list.Len() {
		e := list.Get(i)
		if !pascal.MatchString(string(e.Name())) {
			t.Errorf("enum %s", e.FullName())
		}
		prefix := shout(string(e.Name())) + "_"
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			n := string(v.Name())
			if !upper.MatchString(n) || !strings.HasPrefix(n, prefix) {
				t.Errorf("value %s of enum %s does not begin with %s", n, e.FullName(), prefix)
			}
			if none := n == prefix+"UNSPECIFIED"; none != (v.Number() == 0) || none != (j == 0) {
				t.Errorf("value %s of enum %s is %d", n, e.FullName(), v.Number())
			}
		}
	}
}

// shout is a name such as AtExpiry as AT_EXPIRY.
func shout(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

func messageNames(t *testing.T, list protoreflect.MessageDescriptors) {
	t.Helper()
	for i := range list.Len() {
		m := list.Get(i)
		if !m.IsMapEntry() && !pascal.MatchString(string(m.Name())) {
			t.Errorf("message %s", m.FullName())
		}
		for j := range m.Fields().Len() {
			fieldName(t, m.Fields().Get(j))
		}
		for j := range m.Oneofs().Len() {
			if o := m.Oneofs().Get(j); !o.IsSynthetic() {
				fieldName(t, o)
			}
		}
		enumNames(t, m.Enums())
		messageNames(t, m.Messages())
	}
}

func fieldName(t *testing.T, d protoreflect.Descriptor) {
	t.Helper()
	n := string(d.Name())
	if !snake.MatchString(n) {
		t.Errorf("%s", d.FullName())
	}
	for language, words := range reserved {
		if strings.Contains(" "+words+" ", " "+n+" ") {
			t.Errorf("%s is a word of %s", d.FullName(), language)
		}
	}
}

// reserved are the words that cannot be names. Those that begin with a capital letter are left
// out.
var reserved = map[string]string{
	"Go": `break case chan const continue default defer else fallthrough for func go goto if import
interface map package range return select struct switch type var`,
	"Java": `abstract assert boolean break byte case catch char class const continue default do double
else enum extends final finally float for goto if implements import instanceof int interface long
native new package private protected public return short static strictfp super switch synchronized
this throw throws transient try void volatile while true false null`,
	"Python": `and as assert async await break class continue def del elif else except finally for from
global if import in is lambda nonlocal not or pass raise return try while with yield`,
	"C++": `alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
char16_t char32_t class compl concept const consteval constexpr constinit const_cast continue
co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq`,
	"JavaScript": `arguments await break case catch class const continue debugger default delete do
else enum eval export extends false finally for function if implements import in instanceof
interface let new null package private protected public return static super switch this throw true
try typeof var void while with yield`,
}

func init() {
	for language, words := range reserved {
		reserved[language] = strings.Join(strings.Fields(words), " ")
	}
}

// TestFileNames: a program that has a store.proto of its own, and what else is likely, links with
// leasehold.v1. All of a process share one registry, in which a path is there once.
func TestFileNames(t *testing.T) {
	for _, path := range []string{
		"leasehold.proto", "lease.proto", "leases.proto", "store.proto", "stream.proto",
		"v1/leases.proto", "v1/store.proto", "v1/stream.proto",
		"api/leases.proto", "api/store.proto", "api/stream.proto",
	} {
		if _, err := protoregistry.GlobalFiles.FindFileByPath(path); err != protoregistry.NotFound {
			t.Errorf("%s is taken: %v", path, err)
		}
	}
}
