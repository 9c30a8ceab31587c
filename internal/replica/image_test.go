package replica

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// image is a snapshot on disk.
type image struct {
	meta   *raftpb.SnapshotMetadata
	chunks [][]byte
}

func encodeImage(t testing.TB, m *fsm.Machine, conf *raftpb.ConfState) image {
	t.Helper()
	v := m.View()
	im := image{meta: &raftpb.SnapshotMetadata{
		Index: new(v.Index), Term: new(v.Term), ConfState: conf,
	}}
	if err := m.Image().Encode(func(b []byte) error {
		im.chunks = append(im.chunks, slices.Clone(b))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return im
}

func (im image) decode(t testing.TB) *fsm.Machine {
	t.Helper()
	chunks := im.chunks
	m, err := fsm.Restore(fsm.Config{}, func() ([]byte, bool, error) {
		if len(chunks) == 0 {
			return nil, false, nil
		}
		b := chunks[0]
		chunks = chunks[1:]
		return b, true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// snapshot writes a member's state to its disk and truncates the log.
func (c *cluster) snapshot(p *peer) {
	c.t.Helper()
	p.disk = encodeImage(c.t, p.r.Machine(), p.r.ConfState())
	_, err := p.log.CreateSnapshot(p.disk.meta.GetIndex(), p.disk.meta.GetConfState(), nil)
	c.check(err)
	c.check(p.log.Compact(p.disk.meta.GetIndex()))
}
