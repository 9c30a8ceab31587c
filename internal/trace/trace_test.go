package trace_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/tracetest"
)

const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A header is taken for what Trace Context says, and for nothing else.
func TestParse(t *testing.T) {
	t.Parallel()
	p, ok := trace.Parse(good)
	if !ok || p.Trace.String() != "4bf92f3577b34da6a3ce929d0e0e4736" || !p.Sampled ||
		p.Span != (trace.SpanID{0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}) {
		t.Errorf("%q: %v %+v", good, ok, p)
	}
	for text, sampled := range map[string]bool{
		good[:53] + "00":         false,
		good[:53] + "fe":         false, // flags that nobody knows
		good[:53] + "ff":         true,
		"01" + good[2:]:          true,
		"cc" + good[2:] + "-xyz": true,
	} {
		if p, ok := trace.Parse(text); !ok || p.Sampled != sampled {
			t.Errorf("%q: %v %+v", text, ok, p)
		}
	}
	zeros := strings.Repeat("0", 32)
	for _, text := range []string{
		"", "-", good[:54], good + "0", good + "-more", strings.ToUpper(good), " " + good, good + " ",
		"ff" + good[2:], "0g" + good[2:], "cc" + good[2:] + "more",
		good[:3] + zeros + good[35:], good[:36] + zeros[:16] + good[52:],
		good[:3] + "z" + good[4:], good[:36] + "z" + good[37:], good[:53] + "0x",
		strings.Replace(good, "-", "_", 1), good[:35] + "_" + good[36:], good[:52] + "_" + good[53:],
		strings.Repeat("-", 55), strings.Repeat("\x00", 55), strings.Repeat("é", 55),
	} {
		if p, ok := trace.Parse(text); ok || p != (trace.Parent{}) {
			t.Errorf("%q is taken for %+v", text, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("cc" + good[2:] + "-more")
	f.Fuzz(func(t *testing.T, text string) {
		if p, ok := trace.Parse(text); ok && text[3:35] != p.Trace.String() {
			t.Errorf("%q has trace %s", text, p.Trace)
		}
	})
}

func TestState(t *testing.T) {
	t.Parallel()
	for want, headers := range map[string][]string{
		"a=1,b=2": {"a=1", "b=2"},
		"a=1":     {"a=1"},
	} {
		if got := trace.State(headers); got != want {
			t.Errorf("%q: %q", headers, got)
		}
	}
	for _, bad := range []string{"", "a=\n", "a=é", strings.Repeat("a", 513)} {
		if got := trace.State([]string{bad}); got != "" {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

// A rate takes about its share of random numbers, and at its ends all and none.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		share  float64
		random uint64
		want   bool
	}{
		{0, 0, false},
		{1, math.MaxUint64, true},
		{0.5, 1<<63 - 1<<12, true},
		{0.5, 1<<63 + 1<<12, false},
		{0.01, math.MaxUint64/100 - 1<<12, true},
		{0.01, math.MaxUint64/100 + 1<<12, false},
		{0.999999, math.MaxUint64 / 2, true},
	} {
		if got := trace.NewRate(c.share).Takes(c.random); got != c.want {
			t.Errorf("%v of %d: %v", c.share, c.random, got)
		}
	}
}

// What is encoded is what another decoder reads.
func TestRequest(t *testing.T) {
	t.Parallel()
	root := trace.Span{
		Trace: trace.NewID(1, 2), ID: trace.NewSpanID(4), Name: "root", Kind: trace.Server,
		Start: 1_700_000_000_000_000_000, End: 1_700_000_000_000_000_001, Failed: true,
		Attributes: []trace.Attribute{
			{Key: "text", Value: "x"},
			{Key: "number", Value: int64(-7)},
			{Key: "flag", Value: true},
			{Key: "no", Value: false},
		},
	}
	child := trace.Span{
		Trace: root.Trace, ID: trace.NewSpanID(0), Parent: root.ID, State: "a=1", Name: "child",
		Kind: trace.Internal, Start: 5, End: 6,
	}
	far := child
	far.Kind = trace.Server
	resource := []trace.Attribute{{Key: "service.name", Value: "leasehold"}}
	body := trace.AppendRequest(nil, resource, "1.2.3", []trace.Span{root, child, far})
	got, err := tracetest.Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	res := map[string]any{"service.name": "leasehold"}
	id := "0000000000000001" + "0000000000000003"
	want := []tracetest.Span{
		{
			Trace: id, ID: "0000000000000005", Name: "root", Kind: 2, Status: 2, Flags: 0x101,
			Start: 1_700_000_000_000_000_000, End: 1_700_000_000_000_000_001,
			Attributes: map[string]any{"text": "x", "number": int64(-7), "flag": true, "no": false},
			Resource:   res, Scope: "leasehold", Release: "1.2.3",
		},
		{
			Trace: id, ID: "0000000000000001", Parent: "0000000000000005", State: "a=1", Name: "child",
			Kind: 1, Flags: 0x101, Start: 5, End: 6,
			Attributes: map[string]any{}, Resource: res, Scope: "leasehold", Release: "1.2.3",
		},
	}
	want = append(want, want[1])
	want[2].Kind, want[2].Flags = 2, 0x301
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What a collector says that it has rejected is understood, and nothing else is.
func TestRejected(t *testing.T) {
	t.Parallel()
	part := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3)
	part = protowire.AppendString(protowire.AppendTag(part, 2, protowire.BytesType), "why")
	body := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), part)
	if n, why := trace.Rejected(body); n != 3 || why != "why" {
		t.Errorf("%d, %q", n, why)
	}
	for _, bad := range []string{
		"", "no message", "\x0a", "\x0a\x05", "\x08\x01", "\x0a\x02\x08\x80",
	} {
		if n, why := trace.Rejected([]byte(bad)); n != 0 || why != "" {
			t.Errorf("%q: %d, %q", bad, n, why)
		}
	}
}
