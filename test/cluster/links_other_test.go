//go:build !linux

package cluster

import "testing"

type links struct{ hub string }

func newNetCluster(t *testing.T, _ int) *cluster {
	t.Skip("network namespaces need Linux")
	return nil
}

func (*links) cut(_, _ int)  {}
func (*links) join(_, _ int) {}
func (*links) unplug(_ int)  {}
func (*links) replug(_ int)  {}
