package lease

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"leasehold.dev/client/leases"
)

// TestShowCacheSlow checks that every format identifies the lease of a slow cache, so that the user
// can revoke it.
func TestShowCacheSlow(t *testing.T) {
	e := &leases.Event{
		Kind: leases.CacheSlow, Waited: 1001 * time.Millisecond,
		Lease: leases.Info{ID: 0x1a, Name: "reader/1", Owner: "host-1"},
	}
	for _, c := range []struct {
		p    string // format
		want []string
	}{
		{"simple", []string{
			`- cache slow 000000000000001a name "reader/1" owner "host-1" waited 1.001s`,
		}},
		{"fields", []string{`"kind" : KIND_CACHE_SLOW`, `"waited_ms" : 1001`}},
		{"json", []string{`"KIND_CACHE_SLOW"`, `"waited_ms":"1001"`, `"owner":"host-1"`}},
	} {
		got, err := showLeaseEvent(e).Text(c.p, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", c.p, got, want)
			}
		}
		over := *e
		over.Kind = leases.CacheSlowEnded
		if got, err = showLeaseEvent(&over).Text(c.p, false); err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer(
			"cache slow", "cache slow ended", "CACHE_SLOW", "CACHE_SLOW_ENDED",
		).Replace(c.want[0])
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q does not say %q", c.p, got, want)
		}
	}
}

// TestLeaseMessage checks that a lease in an event is printed with all of its fields, so that none
// is forgotten when a field is added.
func TestLeaseMessage(t *testing.T) {
	var l leases.Info
	for _, f := range reflect.ValueOf(&l).Elem().Fields() {
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("x")
		case reflect.Int64:
			f.SetInt(int64(time.Second))
		case reflect.Uint64:
			f.SetUint(1)
		case reflect.Map:
			l.Labels = map[string]string{"a": "b"}
		}
	}
	m := leaseMessage(&l)
	notInEvents := []protoreflect.Name{"keys", "key_count", "holds"}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.ProtoReflect().Has(fd) && !slices.Contains(notInEvents, fd.Name()) {
			t.Errorf("%s is not printed", fd.Name())
		}
	}
}
