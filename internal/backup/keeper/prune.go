package keeper

import (
	"context"
	"fmt"
	"time"
)

// prune removes expired backups.
func (k *Keeper) prune(ctx context.Context) error {
	c, err := k.catalog(ctx)
	if err != nil {
		return err
	}
	for _, name := range c.Expired(k.cfg.Keep, time.Now()) {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		err := k.cfg.Target.Delete(ctx, name)
		cancel()
		if err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		k.log.Info("removed an old backup", "name", name)
	}
	return nil
}
