package storage

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// benchDisk opens a Disk with the defaults on a real file system.
func benchDisk(b *testing.B) (*Disk, Config) {
	b.Helper()
	cfg := Config{Dir: b.TempDir()}
	d := mustBootstrap(b, cfg)
	return d, cfg
}

func batch(first uint64, n, size int) []*raftpb.Entry {
	es := make([]*raftpb.Entry, n)
	for i := range es {
		es[i] = entry(first+uint64(i), 1, string(make([]byte, size)))
	}
	return es
}

// benchAppend appends n entries at a time. Six allocations an entry are the
// making of the entry.
func benchAppend(b *testing.B, n int) {
	d, _ := benchDisk(b)
	defer d.Close()
	next := uint64(1)
	b.SetBytes(int64(n * 128))
	b.ReportAllocs()
	for b.Loop() {
		es := batch(next, n, 128)
		if err := d.Append(es, nil, true); err != nil {
			b.Fatal(err)
		}
		next += uint64(n)
	}
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkAppend1(b *testing.B)  { benchAppend(b, 1) }
func BenchmarkAppend64(b *testing.B) { benchAppend(b, 64) }

// BenchmarkAppendUnsynced is what Append costs beside the sync, with a hard state, as a
// leader's entries mostly have.
func BenchmarkAppendUnsynced(b *testing.B) {
	d, _ := benchDisk(b)
	defer d.Close()
	next := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		hs := newHardState(1, 1, next-1)
		if err := d.Append(batch(next, 1, 128), hs, false); err != nil {
			b.Fatal(err)
		}
		next++
	}
}

// BenchmarkFdatasync is the floor under BenchmarkAppend1: the same bytes, written
// one after the other where there are zeros already, and synced.
func BenchmarkFdatasync(b *testing.B) {
	f, err := os.Create(b.TempDir() + "/f")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size = 16 << 20
	if _, err := f.Write(make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	buf := bytes.Repeat([]byte{1}, 160)
	off := int64(0)
	for b.Loop() {
		if _, err := f.WriteAt(buf, off%(size-160)); err != nil {
			b.Fatal(err)
		}
		if err := datasync(f); err != nil {
			b.Fatal(err)
		}
		off += 160
	}
}

const (
	benchChunk    = 1 << 20
	benchSnapshot = 256 << 20
)

func benchWriteSnapshot(b *testing.B, d *Disk, index uint64) {
	b.Helper()
	chunk := bytes.Repeat([]byte("leasehold"), benchChunk/9+1)[:benchChunk]
	w, err := d.NewSnapshot(SnapshotMeta{Index: index, Term: 1})
	if err != nil {
		b.Fatal(err)
	}
	for range benchSnapshot / benchChunk {
		if err := w.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkSnapshotWrite(b *testing.B) {
	d, _ := benchDisk(b)
	defer d.Close()
	index := uint64(0)
	b.SetBytes(benchSnapshot)
	for b.Loop() {
		index++
		benchWriteSnapshot(b, d, index)
	}
}

func BenchmarkSnapshotRead(b *testing.B) {
	d, _ := benchDisk(b)
	defer d.Close()
	benchWriteSnapshot(b, d, 1)
	b.SetBytes(benchSnapshot)
	for b.Loop() {
		r, err := d.OpenSnapshot()
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens a directory with a log of 500,000 entries of 128 bytes.
func BenchmarkOpen(b *testing.B) {
	d, cfg := benchDisk(b)
	const n = 500_000
	for i := uint64(1); i <= n; i += 1000 {
		if err := d.Append(batch(i, 1000, 128), nil, false); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d := mustOpen(b, cfg)
		b.StopTimer()
		if last, _ := d.LastIndex(); last != n {
			b.Fatal(last)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
