package server

import (
	"context"
	"fmt"
	"io"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/keeper"
	"leasehold.dev/internal/storage"
)

// newKeeper returns the keeper of a member's backups, or nil if the member does not make backups.
func newKeeper(cfg Config, core *core, id storage.Identity) (*keeper.Keeper, error) {
	if cfg.Backup.To == "" {
		return nil, nil
	}
	c, err := keeper.Settings(cfg.Backup).Config()
	if err != nil {
		return nil, err
	}
	c.Source, c.Member, c.Logger = kept{core: core, cluster: id.Cluster}, id.Member, cfg.Logger
	return keeper.New(c), nil
}

// kept implements keeper.Source for a member.
type kept struct {
	core    *core
	cluster uint64
}

var _ keeper.Source = kept{}

// Leading implements keeper.Source.
func (k kept) Leading() bool { return k.core.status.Load().Primary }

// Applied implements keeper.Source.
func (k kept) Applied() (backup.Place, int64) {
	v := k.core.View()
	return backup.Place{Index: v.Index, Term: v.Term}, v.KV.Revision()
}

// TermAt implements keeper.Source.
func (k kept) TermAt(index uint64) (uint64, bool) {
	term, err := k.core.disk.Term(index)
	return term, err == nil
}

// Entries implements keeper.Source.
func (k kept) Entries(first, last uint64, bytes int) ([]backup.Entry, error) {
	entries, err := k.core.disk.Entries(first, last+1, uint64(bytes))
	if err != nil {
		return nil, fmt.Errorf("read the log from entry %d: %w", first, err)
	}
	out := make([]backup.Entry, len(entries))
	for i, e := range entries {
		out[i] = backup.Entry{Term: e.GetTerm(), Type: byte(e.GetType()), Data: e.GetData()}
	}
	return out, nil
}

// State implements keeper.Source.
func (k kept) State(ctx context.Context) (keeper.State, error) {
	image, err := k.core.image(ctx)
	if err != nil {
		return keeper.State{}, err
	}
	v := image.View
	return keeper.State{
		Place: backup.Place{Index: v.Index, Term: v.Term}, Revision: v.KV.Revision(),
		Write: func(ctx context.Context, w io.Writer) error {
			return backup.Write(ctx, w, k.cluster, image.Encode)
		},
	}, nil
}

// History implements keeper.Source.
func (k kept) History() backup.History {
	return backup.History{Cluster: k.cluster, Restore: k.core.View().Restore}
}

// Keep implements keeper.Source.
func (k kept) Keep(index uint64) { k.core.snap.uncopied.Store(index) }
