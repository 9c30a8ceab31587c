package storage

import (
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"leasehold.dev/test/corpus"
)

// sample is a record of one kind.
type sample struct {
	name   string
	rec    []byte
	decode func([]byte) error
}

// with returns a sample of what decode decodes.
func with[T any](name string, rec []byte, decode func([]byte) (T, error)) sample {
	return sample{name, rec, func(b []byte) error { _, err := decode(b); return err }}
}

func withEntry(name string, e *raftpb.Entry) sample {
	return with(name, encodeEntry(e), func(b []byte) (*raftpb.Entry, error) {
		return decodeEntry(b, entryKey(e.GetIndex()))
	})
}

// samples are records of all kinds.
func samples(t *testing.T) []sample {
	t.Helper()
	change := entry(1<<40, 1<<33, "change")
	change.Type = raftpb.EntryConfChangeV2.Enum()
	conf, err := encodeConf(voters(1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	man, err := encodeManifest(manifest{
		position: position{7, 300}, chunks: 4, bytes: 1 << 40, sum: 0xdeadbeef, conf: voters(1, 5),
	})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger{seq: 300, lines: []ledgerLine{{"000002.log", 1 << 20}, {"MANIFEST-000001", 77}}}
	return []sample{
		withEntry("entry", entry(5, 2, "data")),
		withEntry("entry without data", entry(6, 2, "")),
		withEntry("entry of a change of members", change),
		with("hard state", encodeHardState(hardState(3, 1<<63, 300)), decodeHardState),
		with("identity", encodeIdentity(Identity{
			Cluster: 1 << 63, Member: 3, Name: "m3", Generation: 9, CreatedUnixMilli: 1.7e12,
			Incarnation: 77,
		}), decodeIdentity),
		with("compaction mark", encodeMark(position{index: 7, term: 300}), decodeMark),
		with("first members", conf, decodeConf),
		with("snapshot manifest", man, decodeManifest),
		with("other members", encodePeers(Peers{
			Assembled: true, Claimed: true, Incarnations: map[uint64]uint64{2: 5, 1 << 50: 6},
		}), decodePeers),
		with("ledger", l.encodeLocked()[2:], func(b []byte) (uint64, error) {
			seq, _, err := decodeLedger(b)
			return seq, err
		}),
	}
}

// Goal: a format that has been released does not change. Method: records of all kinds stand in
// testdata as they were written first. They are written so today, and can be read.
func TestGoldenRecords(t *testing.T) {
	var records []corpus.Record
	for _, s := range samples(t) {
		records = append(records, corpus.Record{Name: s.name, Bytes: s.rec})
		if err := s.decode(s.rec); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
	corpus.Check(t, filepath.Join("testdata", "v1", "records.txt"), records)
}

// Goal: what a newer release has written is told as that, and never guessed at. Method: every
// record with the next version; and members with a field of which nobody knows.
func TestNewerRecords(t *testing.T) {
	keys := map[string][]byte{
		"entry": entryKey(5), "entry without data": entryKey(6),
		"entry of a change of members": entryKey(1 << 40), "hard state": keyHard,
		"identity": keyIdentity, "compaction mark": keyMark, "first members": keyConf,
		"snapshot manifest": keyManifest, "other members": keyPeers, "ledger": keyLedger,
	}
	for _, s := range samples(t) {
		rec := record(s.rec[0]+1, keys[s.name], s.rec[headerLen:])
		if err := s.decode(rec); !errors.Is(err, ErrVersion) {
			t.Errorf("%s of version %d: %v", s.name, rec[0], err)
		}
		if s.name != "first members" && s.name != "snapshot manifest" {
			continue
		}
		more := protowire.AppendVarint(
			protowire.AppendTag(s.rec[headerLen:], 99, protowire.VarintType), 1)
		if err := s.decode(record(s.rec[0], keys[s.name], more)); !errors.Is(err, ErrVersion) {
			t.Errorf("%s with an unknown field: %v", s.name, err)
		}
	}
}
