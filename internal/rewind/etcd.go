package rewind

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
	"leasehold.dev/server"
)

// EtcdSummary describes the contents of a snapshot of an etcd cluster.
type EtcdSummary struct {
	Revision     int64
	Keys, Leases int
	// Orphans is the number of keys attached to leases that do not exist. They are restored without
	// a lease.
	Orphans int
	// Users is the number of users. They are not restored.
	Users int
}

// RestoreEtcd creates a data directory with the state of an etcd cluster, as server.Restore does
// from a backup. The file was written by "etcdctl snapshot save", or is member/snap/db in the data
// directory of a stopped member, which requires o.SkipHash.
//
// It restores the newest version of every key, and the leases, as etcd 3.6 and 3.7 store them. It
// does not restore the history, users or roles.
func RestoreEtcd(path string, c server.Config, o server.RestoreOptions) (EtcdSummary, error) {
	s, err := openEtcd(path, o.SkipHash)
	if err != nil {
		return EtcdSummary{}, fmt.Errorf("%s: %w", path, err)
	}
	defer s.close()
	err = create(c, o, func(w io.Writer) error {
		return backup.Write(context.Background(), w, max(rand.Uint64(), 1), s.contents().Encode)
	}, func() {})
	return s.summary(), err
}

// errNotEtcd means that a file is not an etcd snapshot, or is damaged.
var errNotEtcd = errors.New("not a complete etcd snapshot")

// These are the buckets that are read in etcd's database, and the key that is read in the bucket
// meta.
var (
	bucketKeys      = []byte("key")
	bucketLeases    = []byte("lease")
	bucketUsers     = []byte("authUsers")
	bucketMeta      = []byte("meta")
	finishedCompact = []byte("finishedCompactRev")
)

// An etcdSnapshot is an open snapshot file. Its methods must not be called concurrently.
type etcdSnapshot struct {
	db *bolt.DB
	tx *bolt.Tx

	revision int64
	newest   map[string]etcdRevision // newest revision of each existing key
	leases   []lease.Terms
	known    map[lease.ID]bool
	orphans  int
	users    int
}

// An etcdRevision identifies a change in etcd's database.
type etcdRevision struct{ main, sub int64 }

// openEtcd opens a file and reads its index. Unless skipHash is set, the SHA-256 at the end of the
// file must match. A member's own database has no SHA-256. openEtcd returns an error if the file
// cannot be read as a snapshot.
func openEtcd(path string, skipHash bool) (*etcdSnapshot, error) {
	if !skipHash {
		if err := checkEtcdHash(path); err != nil {
			return nil, err
		}
	}
	// Without these options, bbolt would create a missing file, or wait for the lock of a running
	// member.
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotEtcd, err)
	}
	tx, err := db.Begin(false)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &etcdSnapshot{db: db, tx: tx, newest: map[string]etcdRevision{}, known: map[lease.ID]bool{}}
	if err := s.index(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close closes the file.
func (s *etcdSnapshot) close() error { return errors.Join(s.tx.Rollback(), s.db.Close()) }

// checkEtcdHash verifies the SHA-256 that "etcdctl snapshot save" appends: 32 bytes after a whole
// number of sectors.
func checkEtcdHash(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size()%512 != sha256.Size {
		return fmt.Errorf("%w: no SHA-256 at its end; use --skip-hash-check to read it anyway, "+
			"for example if it is a member's member/snap/db file", errNotEtcd)
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, info.Size()-sha256.Size); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return fmt.Errorf("%w: its SHA-256 does not match its contents", errNotEtcd)
	}
	return nil
}

func (s *etcdSnapshot) index() error {
	keys := s.tx.Bucket(bucketKeys)
	if keys == nil {
		return fmt.Errorf("%w: it has no bucket %q", errNotEtcd, bucketKeys)
	}
	s.revision = 1
	if b := s.tx.Bucket(bucketMeta); b != nil {
		if v := b.Get(finishedCompact); len(v) >= 8 {
			s.revision = max(s.revision, int64(binary.BigEndian.Uint64(v)))
		}
	}
	if err := s.indexLeases(); err != nil {
		return err
	}
	err := keys.ForEach(func(k, v []byte) error {
		at, deleted, err := parseRevision(k)
		if err != nil {
			return err
		}
		s.revision = max(s.revision, at.main)
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(v, &kv); err != nil {
			return fmt.Errorf("%w: revision %d: %w", errNotEtcd, at.main, err)
		}
		if deleted {
			delete(s.newest, string(kv.Key))
		} else {
			s.newest[string(kv.Key)] = at
		}
		return nil
	})
	if b := s.tx.Bucket(bucketUsers); b != nil {
		s.users = b.Stats().KeyN
	}
	return err
}

// parseRevision parses a key in the bucket of keys: two 8-byte numbers separated by an underscore,
// followed by a t if the change deleted the key.
func parseRevision(k []byte) (at etcdRevision, deleted bool, err error) {
	if len(k) < 17 || k[8] != '_' || len(k) > 18 || len(k) == 18 && k[17] != 't' {
		return at, false, fmt.Errorf("%w: revision %x", errNotEtcd, k)
	}
	at.main = int64(binary.BigEndian.Uint64(k))
	at.sub = int64(binary.BigEndian.Uint64(k[9:]))
	return at, len(k) == 18, nil
}

func (s *etcdSnapshot) indexLeases() error {
	b := s.tx.Bucket(bucketLeases)
	if b == nil {
		return nil
	}
	return b.ForEach(func(_, v []byte) error {
		id, ttl, err := parseLease(v)
		if err != nil {
			return err
		}
		if id <= 0 {
			return fmt.Errorf("etcd's lease %016x has an ID below 1, which Leasehold does not "+
				"support: revoke it, and save the snapshot again", uint64(id))
		}
		s.known[id] = true
		s.leases = append(s.leases, lease.Terms{ID: id, TTL: lease.TTL(ttl * 1000)})
		return nil
	})
}

// parseLease parses etcd's leasepb.Lease. Field 1 is the ID, and field 2 is the TTL in seconds.
func parseLease(v []byte) (id lease.ID, ttl int64, err error) {
	for len(v) > 0 {
		number, kind, n := protowire.ConsumeTag(v)
		if n < 0 {
			return 0, 0, fmt.Errorf("%w: lease: %w", errNotEtcd, protowire.ParseError(n))
		}
		v = v[n:]
		if kind == protowire.VarintType && (number == 1 || number == 2) {
			value, n := protowire.ConsumeVarint(v)
			if n < 0 {
				return 0, 0, fmt.Errorf("%w: lease: %w", errNotEtcd, protowire.ParseError(n))
			}
			if v = v[n:]; number == 1 {
				id = lease.ID(value)
			} else {
				ttl = int64(value)
			}
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, v); n < 0 {
			return 0, 0, fmt.Errorf("%w: lease: %w", errNotEtcd, protowire.ParseError(n))
		}
		v = v[n:]
	}
	if ttl <= 0 {
		return 0, 0, fmt.Errorf("%w: lease %016x has a TTL of %d", errNotEtcd, uint64(id), ttl)
	}
	return id, ttl, nil
}

// summary describes the contents of the snapshot. Orphans counts only keys that contents has
// yielded so far.
func (s *etcdSnapshot) summary() EtcdSummary {
	return EtcdSummary{s.revision, len(s.newest), len(s.leases), s.orphans, s.users}
}

// contents returns the contents of the snapshot. They must be read before close is called.
func (s *etcdSnapshot) contents() *fsm.Import {
	s.orphans = 0
	return &fsm.Import{Revision: s.revision, Leases: s.terms(), Keys: s.records()}
}

func (s *etcdSnapshot) terms() iter.Seq[lease.Terms] {
	return func(yield func(lease.Terms) bool) {
		for _, t := range s.leases {
			if !yield(t) {
				return
			}
		}
	}
}

func (s *etcdSnapshot) records() iter.Seq[mvcc.Record] {
	return func(yield func(mvcc.Record) bool) {
		c := s.tx.Bucket(bucketKeys).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			at, deleted, _ := parseRevision(k) // index has already checked all keys
			var kv mvccpb.KeyValue
			if deleted || proto.Unmarshal(v, &kv) != nil || s.newest[string(kv.Key)] != at {
				continue
			}
			if kv.Lease != 0 && !s.known[lease.ID(kv.Lease)] {
				kv.Lease = 0
				s.orphans++
			}
			r := mvcc.Record{Sub: at.sub, KeyValue: mvcc.KeyValue{
				Key: string(kv.Key), Value: kv.Value, Lease: kv.Lease, Version: kv.Version,
				CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
			}}
			if !yield(r) {
				return
			}
		}
	}
}
