package dump

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// stranger reads a backup using only docs/formats.md and the package comment of fsm. It does not
// call any of our packages. Its field names are the documented ones.
type stranger struct {
	b     []byte
	names *[]any // the writers and long keys read so far
}

// fields holds the fields of a record, or of a value in it. Zero values are omitted.
type fields map[string]any

func (s *stranger) take(n int) []byte {
	out := s.b[:n]
	s.b = s.b[n:]
	return out
}

func (s *stranger) byte() byte { return s.take(1)[0] }

func (s *stranger) uv() uint64 {
	v, n := binary.Uvarint(s.b)
	s.take(n)
	return v
}

func (s *stranger) sv() int64 {
	v, n := binary.Varint(s.b)
	s.take(n)
	return v
}

func (s *stranger) id() string { return fmt.Sprintf("%016x", binary.BigEndian.Uint64(s.take(8))) }

// text reads a string. It returns an object if the string is not valid UTF-8.
func (s *stranger) text() any {
	b := s.take(int(s.uv()))
	if utf8.Valid(b) {
		return string(b)
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString(b)}
}

func (s *stranger) list(one func() any) []any {
	out := make([]any, s.uv())
	for i := range out {
		out[i] = one()
	}
	return out
}

// set adds a field unless it is zero.
func (f fields) set(name string, v any) {
	switch v := v.(type) {
	case int64, uint64, byte:
		if n := fmt.Sprint(v); n != "0" {
			f[name] = json.Number(n)
		}
		return
	case []any:
		if len(v) == 0 {
			return
		}
	case string:
		if strings.Trim(v, "0") == "" && (v == "" || len(v) == 16) {
			return
		}
	case bool:
		if !v {
			return
		}
	}
	f[name] = v
}

func (f fields) merge(g map[string]any) {
	for name, v := range g {
		f[name] = v
	}
}

// token adds a token as a string, because it can exceed the precision of a floating-point number.
func (f fields) token(n uint64) {
	if n != 0 {
		f["token"] = fmt.Sprint(n)
	}
}

func (s *stranger) header() map[string]any {
	version := fields{}
	f := fields{"record": "header", "version": map[string]any(version)}
	version.set("number", s.byte())
	f.set("index", s.uv())
	f.set("term", s.uv())
	f.set("revision", s.sv())
	f.set("compacted", s.sv())
	f.set("lastToken", fmt.Sprint(s.uv()))
	f.set("generation", s.uv())
	f.set("lastEvent", s.uv())
	f.set("lastSession", s.uv())
	flags := s.byte()
	version.set("held", flags&1 != 0)
	version.set("fell", flags&2 != 0)
	version.set("decided", s.uv())
	return f
}

func (s *stranger) member() map[string]any {
	f, flags := fields{}, s.byte()
	f.set("learner", flags&1 != 0)
	f.set("id", s.id())
	if flags&2 != 0 {
		f.set("incarnation", s.id())
	}
	if flags&4 != 0 {
		f["versions"] = map[string]any{
			"oldest": json.Number(fmt.Sprint(s.byte())), "newest": json.Number(fmt.Sprint(s.byte())),
		}
	}
	if flags&8 != 0 {
		f.set("quota", s.sv())
	}
	if flags&16 != 0 {
		f.set("tokenKey", s.text())
	}
	f.set("name", s.text())
	f.set("peerURLs", s.list(s.text))
	f.set("clientURLs", s.list(s.text))
	return f
}

func (s *stranger) terms() map[string]any {
	f, flags := fields{}, s.byte()
	f.set("id", s.id())
	f.set("ttl", s.sv())
	for i, name := range []string{"name", "owner", "requestID"} {
		if flags>>i&1 != 0 {
			f.set(name, s.text())
		}
	}
	if flags&8 != 0 {
		labels := map[string]any{}
		for n := s.uv(); n > 0; n-- {
			k := s.text()
			labels[k.(string)] = s.text()
		}
		f["labels"] = labels
	}
	if flags&16 != 0 {
		more := s.byte()
		f.set("keepKeys", more&1 != 0)
		f.set("bound", more&2 != 0)
		if more&4 != 0 {
			f.set("lockDelay", s.sv())
		}
		if more&8 != 0 {
			f.set("secret", fmt.Sprintf("secret of %d bytes", len(s.take(32))))
		}
		if more&16 != 0 {
			f.set("principal", s.text())
		}
	}
	return f
}

func (s *stranger) lease() map[string]any {
	f, flags := fields{}, s.byte()
	f.set("delayed", flags&1 != 0)
	f.merge(s.terms())
	f.token(s.uv())
	f.set("stamp", s.uv())
	if flags&2 != 0 {
		f.set("remaining", s.sv())
	}
	return f
}

func (s *stranger) ranges() []any {
	return s.list(func() any {
		f := fields{}
		f.set("key", s.text())
		f.set("end", s.text())
		return map[string]any(f)
	})
}

func (s *stranger) pair() map[string]any {
	f, flags := fields{}, s.byte()
	f.set("key", s.text())
	f.set("value", s.text())
	f.set("createRevision", s.sv())
	f.set("modRevision", s.sv())
	f.set("version", s.sv())
	if flags&1 != 0 {
		f.set("lease", s.id())
	}
	return f
}

func (s *stranger) pairs() []any { return s.list(func() any { return s.pair() }) }

// refusals lists how the texts of refusals without data begin. The first has number 32.
var refusals = []string{
	"key not found", "session not found", "transaction", "not found", "already exists",
	"bad id", "bound to another key", "revision has been compacted", "revision is in the future",
	"a lease holds at most", "all leases together hold", "the leases of one owner",
}

func (s *stranger) refusal() any {
	f := fields{}
	name := ""
	switch k := s.byte(); k {
	case 0:
		return nil
	case 1:
		name = "nameError"
		f.set("name", s.text())
		f.set("holder", s.lease())
	case 2:
		name = "keyLimitError"
		f.set("id", s.id())
		f.set("limit", s.sv())
	case 3:
		name = "ttlError"
		f.set("got", s.sv())
		f.set("min", s.sv())
		f.set("max", s.sv())
	case 4:
		name = "cacheTTLError"
		f.set("got", s.sv())
		f.set("max", s.sv())
	case 5:
		name = "unnamedError"
		f.set("name", s.text())
		f.set("id", s.id())
	default:
		return refusals[k-32]
	}
	return map[string]any{name: map[string]any(f)}
}

func (s *stranger) value() any {
	f := fields{}
	name := ""
	switch k := s.byte(); k {
	case 1:
		if name = "put"; s.byte()&1 != 0 {
			f.set("prev", s.pair())
		}
	case 2:
		name = "delete"
		f.set("deleted", s.sv())
		f.set("prev", s.pairs())
	case 3:
		name = "txn"
		f.set("succeeded", s.byte()&1 != 0)
		f.set("responses", s.list(s.value))
	case 4:
		name = "range"
		f.set("more", s.byte()&1 != 0)
		f.set("count", s.sv())
		f.set("revision", s.sv())
		f.set("kvs", s.pairs())
	case 5, 7:
		name = map[byte]string{5: "info", 7: "existing"}[k]
		f.merge(s.lease())
	case 6:
		name = "revoke"
		f.set("deleted", s.sv())
	case 8:
		return map[string]any{"token": fmt.Sprint(s.uv())}
	}
	return map[string]any{name: map[string]any(f)}
}

func (s *stranger) result(f fields) {
	f.set("revision", s.sv())
	if err := s.refusal(); err != nil {
		f.set("err", err)
		return
	}
	f.set("value", s.value())
}

func (s *stranger) version() map[string]any {
	f, flags := fields{}, s.byte()
	f.set("tombstone", flags&1 != 0)
	f.set("modRevision", s.sv())
	f.set("sub", s.sv())
	named := func() any {
		n := s.uv()
		if n == 0 {
			*s.names = append(*s.names, s.text())
			n = uint64(len(*s.names))
		}
		return (*s.names)[n-1]
	}
	if flags&8 != 0 {
		f.set("key", named())
	} else {
		f.set("key", s.text())
	}
	if flags&2 != 0 {
		f.set("lease", s.id())
	}
	if flags&4 != 0 {
		f.set("writtenFor", named())
	}
	if flags&1 == 0 {
		f.set("value", s.text())
		f.set("createRevision", s.sv())
		f.set("version", s.sv())
	}
	return f
}

// access reads a record about users and roles.
func (s *stranger) access(f fields, tag byte) {
	switch tag {
	case 12:
		f.set("enabled", s.byte()&1 != 0)
		f.set("revision", s.uv())
	case 13:
		f.set("name", s.text())
		f.set("permissions", s.list(func() any {
			p := fields{"kind": []string{
				0: "read", 1: "write", 2: "readwrite", 16: "see", 17: "hold", 18: "manage",
			}[s.byte()]}
			p.set("key", s.text())
			p.set("end", s.text())
			return map[string]any(p)
		}))
	case 14:
		f.set("noPassword", s.byte()&1 != 0)
		f.set("name", s.text())
		if n := s.uv(); n > 0 {
			f.set("hash", fmt.Sprintf("hash of %d bytes", len(s.take(int(n)))))
		}
		f.set("roles", s.list(s.text))
	case 15:
		f.set("user", s.text())
	case 16:
		of := fields{"kind": []string{"everybody", "role", "user"}[s.byte()]}
		of.set("name", s.text())
		f.set("of", map[string]any(of))
		f.set("list", s.list(func() any {
			l := fields{"what": s.resource()}
			l.set("most", s.sv())
			return map[string]any(l)
		}))
	case 17:
		f.set("principal", s.text())
		f.set("leases", s.list(func() any { return s.id() }))
	}
}

// resource reads the resource of a limit.
func (s *stranger) resource() string {
	return []string{
		"leases", "lease-keys", "bytes", "rate",
	}[s.byte()]
}

// record reads the rest of a record after its tag.
func (s *stranger) record(tag byte) map[string]any {
	f := fields{}
	kinds := []string{
		1: "header", "member", "alarm", "lease", "version", "trailer", "removed", "session",
		"answer", "holds", "orphan", "access", "role", "user", "session user", "limits", "account",
		"comparison", "restore",
	}
	switch tag {
	case 1:
		return s.header()
	case 2:
		f.merge(s.member())
	case 3:
		f.set("member", s.id())
		f.set("kind", []string{
			1: "NOSPACE", "CORRUPT", "CORRUPT (member differs)", "CORRUPT (no majority)",
		}[s.byte()])
	case 4:
		f.merge(s.lease())
	case 5:
		f.merge(s.version())
	case 6:
		f.set("records", s.uv())
	case 7, 19:
		f.set("id", s.id())
	case 8:
		f.set("id", s.uv())
		f.set("nonce", s.id())
		f.set("settled", s.uv())
	case 9:
		f.set("number", s.uv())
		s.result(f)
	case 10:
		f.set("lease", s.id())
		f.set("ranges", s.ranges())
	case 11:
		f.set("lease", s.lease())
		f.set("ranges", s.ranges())
	}
	switch {
	case tag == 18:
		f.set("index", s.uv())
		f.set("hashes", s.list(func() any {
			h := fields{}
			h.set("member", s.id())
			h.set("hash", s.uv())
			return map[string]any(h)
		}))
	case tag >= 12 && tag < 18:
		s.access(f, tag)
	}
	f["record"] = kinds[tag]
	return f
}

// backup reads a backup: its first line, chunks, and end.
func (s *stranger) backup(t *testing.T) (out []map[string]any) {
	t.Helper()
	all := s.b
	if line := s.take(19); string(line) != "leasehold backup 1\n" {
		t.Fatalf("the first line is %q", line)
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	for first := true; ; first = false {
		n := binary.BigEndian.Uint32(s.take(4))
		if n == 0 {
			break
		}
		sum := binary.BigEndian.Uint32(s.take(4))
		chunk := stranger{s.take(int(n)), s.names}
		if crc32.Checksum(chunk.b, table) != sum {
			t.Fatal("the checksum of a chunk is wrong")
		}
		if first {
			out = append(out, fields{
				"record": "backup", "version": "leasehold 1", "cluster": chunk.id(),
			})
			continue
		}
		for len(chunk.b) > 0 {
			out = append(out, chunk.record(chunk.byte()))
		}
	}
	at := len(all) - len(s.b)
	if zeros := s.take(-at & 511); len(bytes.Trim(zeros, "\x00")) > 0 {
		t.Fatal("nonzero bytes before the SHA-256")
	}
	if want := sha256.Sum256(all[:len(all)-len(s.b)]); !bytes.Equal(s.b, want[:]) {
		t.Fatal("the SHA-256 is wrong")
	}
	return out
}

// TestIndependentReader checks that docs/formats.md and the package comment of fsm are enough to
// write a program that reads backups. The type stranger is such a program. It reads a backup with
// every type of record and must get the fields that a dump prints.
func TestIndependentReader(t *testing.T) {
	file := corpusBackup(t)
	want := (&stranger{file, new([]any)}).backup(t)
	var got []map[string]any
	d := json.NewDecoder(strings.NewReader(dumpOf(t, file)))
	d.UseNumber()
	for d.More() {
		var f map[string]any
		if err := d.Decode(&f); err != nil {
			t.Fatal(err)
		}
		if err, isText := f["err"].(string); isText { // without the package name at the beginning
			for _, r := range refusals {
				if _, words, _ := strings.Cut(err, ": "); strings.HasPrefix(words, r) {
					f["err"] = r
				}
			}
		}
		got = append(got, f)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, but the dump has %d", len(want), len(got))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], map[string]any(want[i])) {
			t.Errorf("record %d is read as\n%v\nbut printed as\n%v", i, want[i], got[i])
		}
	}
}
