package storage

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// sampleEntries have every type, extreme numbers, and no data as well as some.
func sampleEntries() []*raftpb.Entry {
	var es []*raftpb.Entry
	for _, typ := range []raftpb.EntryType{
		raftpb.EntryNormal, raftpb.EntryConfChange, raftpb.EntryConfChangeV2,
	} {
		for _, term := range []uint64{0, 1, 127, 128, math.MaxUint64} {
			for _, data := range []string{"", "x", "long enough to matter"} {
				e := entry(term, term, data)
				e.Type = typ.Enum()
				if data == "" {
					e.Data = nil
				}
				es = append(es, e)
			}
		}
	}
	return es
}

func encodeEntry(e *raftpb.Entry) []byte {
	rec := appendEntry(make([]byte, headerLen), e)
	seal(rec, entryVersion, entryKey(e.GetIndex()))
	return rec
}

// An entry comes back as it was written, in as many bytes as were reckoned.
func TestEntryRoundTrip(t *testing.T) {
	for _, e := range sampleEntries() {
		rec := encodeEntry(e)
		if want := headerLen + entryPayloadLen(e); len(rec) != want {
			t.Errorf("%v: %d bytes, entryPayloadLen says %d", e, len(rec), want)
		}
		got, err := decodeEntry(rec, entryKey(e.GetIndex()))
		if err != nil || !proto.Equal(got, e) {
			t.Errorf("got %v (%v), want %v", got, err, e)
		}
		if got, want := entrySize(e), proto.Size(e); got != want {
			t.Errorf("%v: entrySize %d, proto.Size %d", e, got, want)
		}
	}
}

// Each record comes back as it was written, also at the bounds of its numbers.
func TestRecordRoundTrip(t *testing.T) {
	hs := hardState(math.MaxUint64, 0, 300)
	if got, err := decodeHardState(encodeHardState(hs)); err != nil || !proto.Equal(got, hs) {
		t.Errorf("hard state: got %v (%v), want %v", got, err, hs)
	}
	id := Identity{
		Cluster: 1 << 63, Member: 3, Name: "mémber", Generation: 9, CreatedUnixMilli: -5,
	}
	if got, err := decodeIdentity(encodeIdentity(id)); err != nil || got != id {
		t.Errorf("identity: got %+v (%v), want %+v", got, err, id)
	}
	p := position{index: 7, term: math.MaxUint64}
	if got, err := decodeMark(encodeMark(p)); err != nil || got != p {
		t.Errorf("mark: got %+v (%v), want %+v", got, err, p)
	}
	rec, err := encodeConf(voters(1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeConf(rec); err != nil || !proto.Equal(got, voters(1, 2, 3)) {
		t.Errorf("conf: got %v (%v)", got, err)
	}
	m := manifest{position: p, chunks: 4, bytes: 1 << 40, sum: 0xdeadbeef, conf: voters(5)}
	if rec, err = encodeManifest(m); err != nil {
		t.Fatal(err)
	}
	got, err := decodeManifest(rec)
	if err != nil || got.position != p || got.chunks != 4 || got.bytes != 1<<40 ||
		got.sum != m.sum || !proto.Equal(got.conf, m.conf) {
		t.Errorf("manifest: got %+v (%v), want %+v", got, err, m)
	}
}

// TestEveryBit: no flipped bit and no cut of any record goes unnoticed, and none
// is taken for a newer version.
func TestEveryBit(t *testing.T) {
	conf, _ := encodeConf(voters(1))
	man, _ := encodeManifest(manifest{position: position{3, 2}, conf: voters(1)})
	for name, c := range map[string]struct {
		rec    []byte
		decode func([]byte) error
	}{
		"entry": {encodeEntry(entry(5, 2, "data")), func(b []byte) error {
			_, err := decodeEntry(b, entryKey(5))
			return err
		}},
		"hard": {encodeHardState(hardState(1, 2, 3)), func(b []byte) error {
			_, err := decodeHardState(b)
			return err
		}},
		"identity": {encodeIdentity(Identity{Name: "a"}), func(b []byte) error {
			_, err := decodeIdentity(b)
			return err
		}},
		"mark": {encodeMark(position{1, 1}), func(b []byte) error {
			_, err := decodeMark(b)
			return err
		}},
		"peers": {encodePeers(Peers{Incarnations: map[uint64]uint64{1: 2}}), func(b []byte) error {
			_, err := decodePeers(b)
			return err
		}},
		"conf":     {conf, func(b []byte) error { _, err := decodeConf(b); return err }},
		"manifest": {man, func(b []byte) error { _, err := decodeManifest(b); return err }},
	} {
		if err := c.decode(c.rec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range len(c.rec) * 8 {
			bad := append([]byte(nil), c.rec...)
			bad[i/8] ^= 1 << (i % 8)
			if err := c.decode(bad); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: bit %d: got %v, want ErrCorrupt", name, i, err)
			}
		}
		for n := range c.rec {
			if err := c.decode(c.rec[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: cut to %d: got %v, want ErrCorrupt", name, n, err)
			}
		}
	}
}

// TestShortPayload: a record whose payload ends before its last field, or has more than that, is
// corrupt though its checksum is right, as a fault of the writer would leave it. Method: payloads
// of fields of several bytes, cut anywhere, and lengthened.
func TestShortPayload(t *testing.T) {
	const large = 1 << 60
	man, err := encodeManifest(manifest{
		position: position{large, large}, chunks: large, bytes: large, sum: 1 << 31,
	})
	if err != nil {
		t.Fatal(err)
	}
	open := func(key, rec []byte) []byte {
		p, err := open(rec, rec[0], key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct {
		rec, key []byte
		decode   func([]byte) error
		more     bool // what follows the fields is read by somebody else
	}{
		"hard": {encodeHardState(hardState(large, large, large)), keyHard, func(b []byte) error {
			_, err := decodeHardState(b)
			return err
		}, false},
		"identity": {encodeIdentity(Identity{
			Cluster: large, Member: large, Generation: large, CreatedUnixMilli: -large,
			Incarnation: large, Name: strings.Repeat("name", 50),
		}), keyIdentity, func(b []byte) error {
			_, err := decodeIdentity(b)
			return err
		}, false},
		"peers": {encodePeers(Peers{
			Incarnations: map[uint64]uint64{1: large, large: 1},
		}), keyPeers, func(b []byte) error {
			_, err := decodePeers(b)
			return err
		}, false},
		"mark": {encodeMark(position{large, large}), keyMark, func(b []byte) error {
			_, err := decodeMark(b)
			return err
		}, false},
		"manifest": {man, keyManifest, func(b []byte) error {
			_, err := decodeManifest(b)
			return err
		}, true},
	} {
		p := open(c.key, c.rec)
		for n := range p {
			if err := c.decode(record(c.rec[0], c.key, p[:n])); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %d of %d bytes: %v", name, n, len(p), err)
			}
		}
		longer := record(c.rec[0], c.key, append(slices.Clone(p), 1))
		if err := c.decode(longer); !c.more && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: a byte too many: %v", name, err)
		}
	}
	_, err = decodeConf(record(confVersion, keyConf, []byte{8}))
	_, err2 := decodePeers(record(peersVersion, keyPeers, []byte{4, 0})) // a bit without a meaning
	_, err3 := decodePeers(record(peersVersion, keyPeers, binary.AppendUvarint([]byte{0}, large)))
	if !errors.Is(err, ErrCorrupt) || !errors.Is(err2, ErrCorrupt) || !errors.Is(err3, ErrCorrupt) {
		t.Errorf("a membership and peers of nonsense: %v, %v, %v", err, err2, err3)
	}
	for _, p := range [][]byte{nil, {0}, {0, 0x80}, {0, 0x80, 0x80}, {9, 1}} {
		if _, err := decodeEntry(record(entryVersion, entryKey(5), p), entryKey(5)); !errors.Is(
			err, ErrCorrupt,
		) {
			t.Errorf("an entry of %x: %v", p, err)
		}
	}
}

// TestRecordOfAnotherKey: a sound record under the wrong key is corrupt.
func TestRecordOfAnotherKey(t *testing.T) {
	rec := encodeEntry(entry(5, 2, "data"))
	if _, err := decodeEntry(rec, entryKey(6)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// TestKeys: keys are as docs/formats.md has them, and no other key is one of an entry.
func TestKeys(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{entryKey(0x0102030405060708), "l\x01\x02\x03\x04\x05\x06\x07\x08"},
		{
			chunkKey(0x0102030405060708, 0x090a0b0c),
			"s\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c",
		},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	for _, key := range []string{"l", "l1234567", "l123456789", "m12345678"} {
		if i, err := parseEntryKey([]byte(key)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q is of entry %d: %v", key, i, err)
		}
	}
}

// TestNewerVersion: a sound record of a later version is ErrVersion, not damage.
func TestNewerVersion(t *testing.T) {
	rec := record(hardStateVersion+1, keyHard, []byte("whatever it will be"))
	if _, err := decodeHardState(rec); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
	rec = record(0, keyHard, []byte{1, 2, 3})
	_, err := decodeHardState(rec)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "version 0") {
		t.Errorf("version 0: got %v, want ErrCorrupt", err)
	}
}

// fuzzDecoder seals arbitrary payloads, so that the fuzzer gets past the
// checksum, and feeds them raw too. An error must be one of the documented two.
func fuzzDecoder(f *testing.F, version byte, key []byte, decode func(rec []byte) error) {
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, rec := range [][]byte{b, record(version, key, b)} {
			err := decode(rec)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Errorf("%x: %v", rec, err)
			}
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, e := range sampleEntries() {
		f.Add(encodeEntry(e)[headerLen:])
	}
	key := entryKey(9)
	fuzzDecoder(f, entryVersion, key, func(rec []byte) error {
		e, err := decodeEntry(rec, key)
		if err == nil && e.GetIndex() != 9 {
			return errors.New("wrong index")
		}
		if err == nil { // what was decoded is decoded again the same
			again, err := decodeEntry(encodeEntry(e), key)
			if err != nil || !proto.Equal(e, again) {
				return errors.New("does not round trip")
			}
		}
		return err
	})
}

func FuzzHardState(f *testing.F) {
	f.Add(encodeHardState(hardState(1, 2, 3))[headerLen:])
	fuzzDecoder(f, hardStateVersion, keyHard, func(rec []byte) error {
		hs, err := decodeHardState(rec)
		if err != nil {
			return err
		}
		again, err := decodeHardState(encodeHardState(hs))
		if err != nil || !proto.Equal(hs, again) {
			return errors.New("does not round trip")
		}
		return nil
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add(encodeIdentity(Identity{Cluster: 1, Name: "abc", CreatedUnixMilli: -1})[headerLen:])
	fuzzDecoder(f, identityVersion, keyIdentity, func(rec []byte) error {
		id, err := decodeIdentity(rec)
		if err != nil {
			return err
		}
		if again, err := decodeIdentity(encodeIdentity(id)); err != nil || again != id {
			return errors.New("does not round trip")
		}
		return nil
	})
}

func FuzzMark(f *testing.F) {
	f.Add(encodeMark(position{300, 5})[headerLen:])
	fuzzDecoder(f, markVersion, keyMark, func(rec []byte) error {
		_, err := decodeMark(rec)
		return err
	})
}

func FuzzConf(f *testing.F) {
	rec, _ := encodeConf(voters(1, 2, 3))
	f.Add(rec[headerLen:])
	fuzzDecoder(f, confVersion, keyConf, func(rec []byte) error {
		_, err := decodeConf(rec)
		return err
	})
}

func FuzzManifest(f *testing.F) {
	rec, _ := encodeManifest(manifest{position: position{9, 3}, chunks: 2, conf: voters(1)})
	f.Add(rec[headerLen:])
	fuzzDecoder(f, manifestVersion, keyManifest, func(rec []byte) error {
		_, err := decodeManifest(rec)
		return err
	})
}

func FuzzChunk(f *testing.F) {
	f.Add([]byte("chunk"))
	key := chunkKey(4, 2)
	fuzzDecoder(f, chunkVersion, key, func(rec []byte) error {
		_, err := open(rec, chunkVersion, key)
		return err
	})
}

func FuzzEntryKey(f *testing.F) {
	f.Add(entryKey(1))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := parseEntryKey(b)
		if err == nil && string(entryKey(i)) != string(b) {
			t.Errorf("%x: index %d has another key", b, i)
		}
	})
}

// encodeHardState returns the record of a hard state.
func encodeHardState(hs *raftpb.HardState) []byte {
	rec := make([]byte, hardStateLen(hs))
	putHardState(rec, hs)
	return rec
}
