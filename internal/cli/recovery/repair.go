package recovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/cli/cluster"
	"leasehold.dev/internal/rewind"
)

// did records that a step has been done.
func (d *disaster) did(format string, args ...any) {
	d.Done = append(d.Done, fmt.Sprintf(format, args...))
}

// withClient calls do with a client of the cluster.
func (r *recovery) withClient(do func(context.Context, *clientv3.Client) error) error {
	c, err := r.Dial(r.spec)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := r.PatientContext()
	defer cancel()
	return do(ctx, c)
}

// makeRoom compacts the history. If that frees enough space, it clears the alarm.
func (r *recovery) makeRoom(d *disaster) error {
	return r.withClient(func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, "health", clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("read the revision: %w", err)
		}
		rev := got.Header.GetRevision()
		_, err = c.Compact(ctx, rev, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("compact at revision %d: %w", rev, err)
		}
		d.did("compacted at revision %d", rev)
		if err := r.queryCluster(); err != nil {
			return err
		}
		now := useOf(r.cluster)
		if now.Quota > 0 && now.Full() {
			return app.WithCode(app.ExitFound, fmt.Errorf("the state still uses %s of %s: delete keys "+
				"or raise the quota, and run recover again", size(now.Used), size(now.Quota)))
		}
		if err := clearQuotaAlarms(ctx, c); err != nil {
			return fmt.Errorf("clear the alarm: %w", err)
		}
		d.did("cleared the alarm: the state uses %s of %s", size(now.Used), size(now.Quota))
		return nil
	})
}

// clearQuotaAlarms clears only alarms about a full quota.
func clearQuotaAlarms(ctx context.Context, c *clientv3.Client) error {
	list, err := c.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Alarms {
		if m.GetAlarm().String() != "NOSPACE" {
			continue
		}
		if _, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(m)); err != nil {
			return err
		}
	}
	return nil
}

// replace removes this host's member from the cluster and moves its data aside.
func (r *recovery) replace(d *disaster) error {
	if x := r.own; x != nil {
		if at := r.answers(x.URLs()); at != "" {
			return fmt.Errorf("a process responds at %s, where %s should not be running: stop it first", at,
				nameOf(x))
		}
	}
	if err := r.leave(d); err != nil || r.is(rewind.Empty) {
		return err
	}
	kept, err := r.dir.MoveAway(time.Now())
	if err == nil {
		d.did("moved %s to %s", r.dir.Path, kept)
	}
	return err
}

// leave removes the member from the cluster unless it has already been removed. It lists the
// members again, because the earlier list might have come from a member that is behind.
func (r *recovery) leave(d *disaster) error {
	id := r.dir.Member
	if r.own != nil {
		id = r.own.MemberID
	}
	return r.withClient(func(ctx context.Context, c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return fmt.Errorf("list the members: %w", err)
		}
		if got := fmt.Sprintf("%x", list.Header.GetClusterId()); got != r.cluster.Cluster {
			return fmt.Errorf("cluster %s responds instead of cluster %s: check whether all "+
				"--endpoints belong to one cluster", got, r.cluster.Cluster)
		}
		has := slices.ContainsFunc(list.Members, func(m *etcdserverpb.Member) bool { return m.ID == id })
		switch {
		case !has:
			return nil
		case r.own == nil:
			return fmt.Errorf("the cluster now has member %x: run recover again", id)
		}
		if _, err := c.MemberRemove(ctx, id); err != nil {
			return fmt.Errorf("remove %s from the cluster: %w", nameOf(r.own), err)
		}
		d.did("removed member %x from the cluster", id)
		return nil
	})
}

// forceNewCluster creates a new cluster from the data on this host.
func (r *recovery) forceNewCluster(d *disaster) error {
	now, err := rewind.Examine(r.dir.Path) // a member might have been started in the meantime
	if err != nil {
		return err
	}
	if now.Condition != rewind.Sound || now.Index != r.dir.Index {
		return errors.New("the data directory has changed in the meantime: run recover again")
	}
	kept, err := now.ForceNewCluster(time.Now())
	if err != nil {
		return err
	}
	d.did("moved %s to %s", r.dir.Path, kept)
	d.did("created a single-member cluster in %s, with the state up to revision %d", r.dir.Path,
		now.Revision)
	return nil
}

// answers returns one of the addresses where a process accepts connections, or "" if there is none.
// If one address hangs, the others are still tried.
func (r *recovery) answers(urls []string) (at string) {
	ctx, cancel := context.WithTimeout(context.Background(), r.Flags.DialTimeout)
	defer cancel()
	found := make(chan string, len(urls))
	for _, text := range urls {
		go func() {
			u, err := url.Parse(text)
			if err != nil || u.Host == "" || cluster.Connects(ctx, 0, u.Host) != nil {
				found <- ""
				return
			}
			found <- u.Host
		}()
	}
	for range urls {
		if at = <-found; at != "" {
			break
		}
	}
	return at
}
