package rewind

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// etcdChange is an entry in etcd's key bucket.
type etcdChange struct {
	main, sub       int64
	key, value      string
	created         int64 // 0 if the change deletes the key
	version, leased int64
}

func (c etcdChange) entry() (k, v []byte) {
	k = append(binary.BigEndian.AppendUint64(nil, uint64(c.main)), '_')
	k = binary.BigEndian.AppendUint64(k, uint64(c.sub))
	kv := &mvccpb.KeyValue{Key: []byte(c.key)}
	if c.created == 0 {
		k = append(k, 't')
	} else {
		kv.Value, kv.Lease, kv.Version = []byte(c.value), c.leased, c.version
		kv.CreateRevision, kv.ModRevision = c.created, c.main
	}
	v, _ = proto.Marshal(kv)
	return k, v
}

func etcdLease(id, ttl int64) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(id))
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(ttl))
}

// saveEtcd writes a snapshot as etcdctl does and returns its path.
func saveEtcd(t *testing.T, leases map[int64]int64, changes ...etcdChange) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		keys, err1 := tx.CreateBucket(bucketKeys)
		list, err2 := tx.CreateBucket(bucketLeases)
		users, err3 := tx.CreateBucket(bucketUsers)
		all := errors.Join(err1, err2, err3, users.Put([]byte("root"), nil))
		for id, ttl := range leases {
			k := binary.BigEndian.AppendUint64(nil, uint64(id))
			all = errors.Join(all, list.Put(k, etcdLease(id, ttl)))
		}
		for _, c := range changes {
			k, v := c.entry()
			all = errors.Join(all, keys.Put(k, v))
		}
		return all
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if err := os.WriteFile(path, append(data, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// restoreEtcd restores a snapshot as RestoreEtcd does, but only in memory.
func restoreEtcd(t *testing.T, path string) (*fsm.Machine, EtcdSummary) {
	t.Helper()
	s, err := openEtcd(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var chunks [][]byte
	err = s.contents().Encode(func(b []byte) error {
		chunks = append(chunks, append([]byte(nil), b...))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	next := func() ([]byte, bool, error) {
		if len(chunks) == 0 {
			return nil, false, nil
		}
		b := chunks[0]
		chunks = chunks[1:]
		return b, true, nil
	}
	m, err := fsm.RestoreBackup(fsm.Config{}, fsm.Restoration{ID: 1, Above: 1 << 48}, next)
	if err != nil {
		t.Fatal(err)
	}
	return m, s.summary()
}

// keysOf describes a machine's keys in revision order.
func keysOf(m *fsm.Machine) string {
	var got []string
	for r := range m.View().KV.Records() {
		got = append(got, fmt.Sprintf("%s=%s created %d, modified %d, version %d, lease %d",
			r.Key, r.Value, r.CreateRevision, r.ModRevision, r.Version, r.Lease))
	}
	return strings.Join(got, "\n")
}

func TestRestoreEtcd(t *testing.T) {
	m, sum := restoreEtcd(t, saveEtcd(t, map[int64]int64{7: 60, 9: 5},
		etcdChange{main: 2, key: "a", value: "1", created: 2, version: 1},
		etcdChange{main: 3, key: "a", value: "2", created: 2, version: 2},
		etcdChange{main: 4, key: "b", value: "x", created: 4, version: 1, leased: 7},
		etcdChange{main: 5, key: "b"},
		etcdChange{main: 6, key: "c", value: "y", created: 6, version: 1, leased: 7},
		etcdChange{main: 6, sub: 1, key: "d", value: "z", created: 6, version: 1, leased: 8},
		etcdChange{main: 7, key: "b", value: "again", created: 7, version: 1, leased: 9},
	))
	want := EtcdSummary{Revision: 7, Keys: 4, Leases: 2, Orphans: 1, Users: 1}
	if sum != want {
		t.Errorf("summary %+v; want %+v", sum, want)
	}
	text := keysOf(m)
	if want := `a=2 created 2, modified 3, version 2, lease 0
c=y created 6, modified 6, version 1, lease 7
d=z created 6, modified 6, version 1, lease 0
b=again created 7, modified 7, version 1, lease 9`; text != want {
		t.Errorf("keys:\n%s\nwant:\n%s", text, want)
	}
	view := m.View()
	if r, c := view.KV.Revision(), view.KV.Compacted(); r != 7 || c != 7 {
		t.Errorf("revision %d, compacted %d; want 7, 7", r, c)
	}
	for id, ttl := range map[int64]int64{7: 60_000, 9: 5_000} {
		info, ok := m.Lessor().Lookup(lease.ID(id))
		if !ok || int64(info.TTL) != ttl || info.Token == 0 {
			t.Errorf("lease %d: %+v, %v; want a TTL of %d ms", id, info, ok, ttl)
		}
	}
}

// TestEtcdsOwn restores a snapshot that etcdctl 3.7.3 saved from etcd 3.7.3 after puts, a delete, a
// transaction, a compaction, two grants, and the creation of a user.
func TestEtcdsOwn(t *testing.T) {
	f, err := os.Open("testdata/etcd-3.7.3.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "etcd.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, sum := restoreEtcd(t, path)
	if want := (EtcdSummary{Revision: 9, Keys: 5, Leases: 2, Users: 1}); sum != want {
		t.Errorf("summary %+v; want %+v", sum, want)
	}
	want := `b=x created 4, modified 4, version 1, lease 7807731195431547141
c=1 created 7, modified 7, version 1, lease 0
d=2 created 7, modified 7, version 1, lease 0
e=5 created 8, modified 8, version 1, lease 0
a=3 created 2, modified 9, version 3, lease 0`
	if got := keysOf(m); got != want {
		t.Errorf("keys:\n%s\nwant:\n%s", got, want)
	}
}

func TestEtcdEmpty(t *testing.T) {
	m, sum := restoreEtcd(t, saveEtcd(t, nil))
	if sum.Revision != 1 || m.View().KV.Revision() != 1 {
		t.Errorf("summary %+v, revision %d; want revision 1", sum, m.View().KV.Revision())
	}
}

func TestEtcdDamaged(t *testing.T) {
	good := saveEtcd(t, nil, etcdChange{main: 2, key: "a", value: "1", created: 2, version: 1})
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), data...)
	flipped[len(flipped)/2] ^= 1
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"bit flipped": {flipped, "does not match"},
		"no hash":     {data[:len(data)-sha256.Size], "--skip-hash-check"},
		"cut off":     {data[:len(data)/2], "no SHA-256"},
		"empty":       {nil, "no SHA-256"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "db")
			if err := os.WriteFile(path, test.data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := openEtcd(path, false)
			if !errors.Is(err, errNotEtcd) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v; want errNotEtcd with %q", err, test.want)
			}
		})
	}
	if _, err := openEtcd(filepath.Join(t.TempDir(), "missing"), true); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v; want ErrNotExist", err)
	}
}

func TestEtcdNegativeLease(t *testing.T) {
	_, err := openEtcd(saveEtcd(t, map[int64]int64{-5: 60}), false)
	if err == nil || !strings.Contains(err.Error(), "revoke it") {
		t.Errorf("error %v; want one that says to revoke the lease", err)
	}
}
