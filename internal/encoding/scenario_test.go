package encoding

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files in testdata, which contain bytes, their meaning, and the errors. To
// update them, run it with -rewrite and review the diff.
//
// "write uvarint=7 text=ab" prints the bytes of each field, one field per line. "read uvarint text"
// reads fields from the bytes below it. "open text" does the same for bytes that start with a
// version. The format's newest version is 2.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var b strings.Builder
			if d.Cmd == "write" {
				for _, a := range d.CmdArgs {
					fmt.Fprintf(&b, "% x\n", written(t, a.Key, a.Vals))
				}
				return b.String()
			}
			bytes, err := hex.DecodeString(strings.Join(strings.Fields(d.Input), ""))
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			r := format.Decoder(1, bytes)
			if d.Cmd == "open" {
				r = format.Open(bytes)
				fmt.Fprintf(&b, "version %d\n", r.Version())
			}
			for _, a := range d.CmdArgs {
				fmt.Fprintf(&b, "%s\n", taken(t, a.Key, &r))
			}
			return b.String() + left(&r)
		})
	})
}

// written encodes a field.
func written(t *testing.T, field string, values []string) []byte {
	t.Helper()
	value := strings.Join(values, "")
	if value == "" {
		values = nil
	}
	switch field {
	case "uvarint":
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return binary.AppendUvarint(nil, n)
	case "varint":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return binary.AppendVarint(nil, n)
	case "text":
		return AppendBytes(nil, value)
	case "list":
		return AppendList(nil, values, AppendBytes[string])
	case "map":
		m := make(map[string]string)
		for _, v := range values {
			k, v, _ := strings.Cut(v, ":")
			m[k] = v
		}
		return AppendMap(nil, m)
	}
	t.Fatalf("unknown field %s", field)
	return nil
}

// taken reads a field and describes it. An empty field is described as "nil" where nil is expected.
func taken(t *testing.T, field string, d *Decoder) string {
	t.Helper()
	switch field {
	case "uvarint":
		return strconv.FormatUint(d.Uvarint(), 10)
	case "varint":
		return strconv.FormatInt(d.Varint(), 10)
	case "uint64":
		return strconv.FormatUint(d.Uint64(), 10)
	case "byte":
		return strconv.Itoa(int(d.Byte()))
	case "text":
		return strconv.Quote(d.Text())
	case "bytes":
		b := d.Bytes()
		return orNil(b == nil, fmt.Sprintf("%x", b))
	case "view":
		b := d.View()
		return orNil(b == nil, fmt.Sprintf("%x", b))
	case "list":
		list := List(d, d.Text)
		return orNil(list == nil, fmt.Sprintf("%q", list))
	case "map":
		m := d.Map()
		return orNil(m == nil, fmt.Sprintf("%q", m))
	case "count":
		return strconv.Itoa(d.Count())
	case "flags": // 1, 2 and 4 are known
		return strconv.Itoa(int(d.Flags("a lease", 7)))
	case "bool":
		return strconv.FormatBool(d.Bool("a lease"))
	case "choice": // 0 to 3 are known
		return strconv.Itoa(int(d.Choice("order", 3)))
	case "kind": // 1 to 3 are known
		v := d.Byte()
		if v < 1 || v > 3 {
			d.Unknown("kind", uint64(v))
			return "0"
		}
		return strconv.Itoa(int(v))
	case "peek":
		return strconv.Itoa(int(d.Peek()))
	case "rest":
		return fmt.Sprintf("%x", d.Rest())
	}
	t.Fatalf("unknown field %s", field)
	return ""
}

func orNil(isNil bool, text string) string {
	if isNil {
		return "nil"
	}
	return text
}

// left describes the remaining bytes, and the error before and after End.
func left(d *Decoder) string {
	n, before := d.Len(), d.Err()
	switch err := d.End(); {
	case before != nil:
		return fmt.Sprintf("%s\n", kind(before))
	case err != nil:
		return fmt.Sprintf("%d left, at the end %s\n", n, kind(err))
	}
	return ""
}

// kind returns an error's text, prefixed with the sentinel error that it matches.
func kind(err error) string {
	for name, of := range map[string]error{"corrupt": errCorrupt, "newer": ErrNewer} {
		if errors.Is(err, of) {
			return name + ": " + strings.TrimPrefix(err.Error(), of.Error()+": ")
		}
	}
	return err.Error()
}

// TestFieldsCutOff checks that a truncated or missing field returns zero, sets an error, and leaves
// nothing to read, so a caller can check the error once at the end. It truncates each type of field
// at each byte.
func TestFieldsCutOff(t *testing.T) {
	whole := map[string][]byte{
		"uvarint": {0x80, 0x80, 1}, "varint": {0x81, 1}, "uint64": {0, 0, 0, 0, 0, 0, 0, 9},
		"byte": {7}, "text": {2, 'a', 'b'}, "bytes": {2, 'a', 'b'}, "view": {2, 'a', 'b'},
		"list": {2, 1, 'a', 1, 'b'}, "map": {1, 1, 'k', 1, 'v'}, "flags": {5}, "bool": {1},
		"choice": {2},
	}
	zero := map[string]string{
		"text": `""`, "bytes": "nil", "view": "nil", "list": "nil", "bool": "false",
	}
	for _, field := range slices.Sorted(maps.Keys(whole)) {
		b := whole[field]
		d := format.Decoder(1, b)
		if got := taken(t, field, &d); d.End() != nil || got == "0" || got == zero[field] {
			t.Errorf("%s: %s, %v", field, got, d.Err())
		}
		for n := range b {
			d := format.Decoder(1, b[:n:n])
			got := taken(t, field, &d)
			if !errors.Is(d.Err(), errCorrupt) || d.Len() != 0 {
				t.Errorf("%s, %d of %d bytes: %v, %d left", field, n, len(b), d.Err(), d.Len())
			}
			if want := cmp.Or(zero[field], "0"); field != "map" && got != want {
				t.Errorf("%s, %d of %d bytes: %s", field, n, len(b), got)
			}
		}
	}
}

// TestViewAliasesInput checks that View returns the input bytes without a copy, and that appending
// to the result does not overwrite the bytes after it.
func TestViewAliasesInput(t *testing.T) {
	b := []byte{2, 'a', 'b', 7}
	d := format.Decoder(1, b)
	v := d.View()
	if b[1] = 'x'; string(v) != "xb" {
		t.Errorf("the view is a copy: %q", v)
	}
	if _ = append(v, 'y'); b[3] != 7 {
		t.Error("the byte after the view was overwritten")
	}
}
