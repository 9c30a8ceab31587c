package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/rewind"
)

// toReplaceHere says how the member of this host gets its data from the others; x is nil if the
// cluster does not have it any more.
func (r *recovery) toReplaceHere(
	x *memberState, code cause.Code, what string, facts ...string,
) {
	d := newDisaster(code, what,
		append(facts, "the cluster serves without it, and has all its data")...)
	if r.dir.Condition == rewind.Empty {
		d.first("whether %s is the right directory, and its disk is mounted", r.dir.Path)
	}
	if r.dir.Member == 0 && r.member == "" {
		// The member may run on another host, and only be out of reach.
		r.nameFirst(d, x)
		return
	}
	if x != nil {
		d.own("leasehold member remove %s  # a member that has lost its data needs a new ID", x.ID)
	} else {
		x = &memberState{Name: r.dir.Name}
		for _, m := range r.dir.Members {
			if m.ID == r.dir.Member {
				x = stateOf(m)
			}
		}
	}
	if r.dir.Condition != rewind.Empty {
		r.moveAway(d)
	}
	d.on("here, then", "%s --join %s  # with its other flags of before, but not --initial-cluster",
		r.serve(x, r.dir.Path), r.endpointsOf())
	d.act = r.replace
	r.found = append(r.found, d)
}

// nameFirst asks for the name of the member, of whom the data do not say that they are its own.
func (r *recovery) nameFirst(d *disaster, x *memberState) {
	d.first("which member's directory %s is: it does not say so itself", r.dir.Path)
	if x != nil {
		d.on("here, only if it is that of "+nameOf(x), "leasehold recover --endpoints %s --data-dir %s "+
			"--member %s --yes", r.endpointsOf(), shellWord(r.dir.Path), shellWord(cmp.Or(x.Name, x.ID)))
	}
	r.found = append(r.found, d)
}

func (r *recovery) moveAway(d *disaster) {
	path := shellWord(r.dir.Path)
	d.own("mv %s %s.before-recovery-TIME", path, path)
}

// replace removes the member of this host from the cluster, and moves its data away.
func (r *recovery) replace(d *disaster) error {
	if x := r.own; x != nil {
		if at := r.answers(x.urls()); at != "" {
			return fmt.Errorf("a process answers at %s, where %s should not run: stop it first", at,
				nameOf(x))
		}
	}
	if err := r.withClient(r.leave)(d); err != nil || r.dir.Condition == rewind.Empty {
		return err
	}
	kept, err := r.dir.MoveAway(time.Now())
	if err == nil {
		d.did("moved %s to %s", r.dir.Path, kept)
	}
	return err
}

// leave sees to it that the cluster does not have the member any more. What was looked at may have
// come from a member that lags.
func (r *recovery) leave(ctx context.Context, c *clientv3.Client, d *disaster) error {
	id := r.dir.Member
	if r.own != nil {
		id = r.own.id
	}
	list, err := c.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list the members: %w", err)
	}
	if got := fmt.Sprintf("%x", list.Header.GetClusterId()); got != r.cluster.Cluster {
		return fmt.Errorf("cluster %s answers, and it was cluster %s: see whether all --endpoints "+
			"are of one cluster", got, r.cluster.Cluster)
	}
	has := slices.ContainsFunc(list.Members, func(m *etcdserverpb.Member) bool { return m.ID == id })
	switch {
	case !has:
		return nil
	case r.own == nil:
		return fmt.Errorf("the cluster has member %x after all: call recover again", id)
	}
	if _, err := c.MemberRemove(ctx, id); err != nil {
		return fmt.Errorf("remove %s from the cluster: %w", nameOf(r.own), err)
	}
	d.did("removed member %x from the cluster", id)
	return nil
}

// urls are all addresses of a member.
func (x *memberState) urls() []string {
	if x.url == "" {
		return x.peers
	}
	return append(slices.Clone(x.peers), x.url)
}

// answers returns one of the addresses at which a process accepts a connection; empty if there is
// none. One that is cut off does not keep the others from being tried.
func (r *recovery) answers(urls []string) (at string) {
	ctx, cancel := context.WithTimeout(context.Background(), r.flags.dialTimeout)
	defer cancel()
	found := make(chan string, len(urls))
	for _, text := range urls {
		go func() {
			u, err := url.Parse(text)
			if err != nil || u.Host == "" || connects(ctx, 0, u.Host) != nil {
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
