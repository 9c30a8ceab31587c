package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

// joinFlags are the flags for joining a running cluster.
type joinFlags struct {
	endpoints []string // client addresses of the members of the cluster
	replace   bool
	login     joinLogin
}

// joiner adds a member to a running cluster with one command. It adds the member as a learner,
// starts it, and has it promoted once it has caught up. It can be interrupted at any point, and
// continues after a restart.
type joiner struct {
	joinFlags
	// These fields record whether the name, the data directory and the addresses were given. The
	// joiner chooses any that were not.
	nameGiven, dirGiven, addressesGiven bool

	log  *slog.Logger
	dial func(endpoints []string, who joinLogin, cfg server.Config) (cluster, error)
	// reach checks whether a member can be reached at its peer URLs: see [server.Reach].
	reach func(cfg server.Config, members map[string][]url.URL, cluster uint64) error

	reserved io.Closer // keeps other processes from choosing the same addresses
	cluster  cluster
	member   uint64 // ID in the cluster
	reason   string // why the joiner is waiting, as last logged
}

// cluster is the cluster to join. It has the methods that a joiner calls.
type cluster interface {
	// Ours returns an error if the dialed hosts are not Leasehold members.
	Ours(context.Context) error
	MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error)
	MemberAddAsLearner(context.Context, []string) (*clientv3.MemberAddResponse, error)
	MemberRemove(context.Context, uint64) (*clientv3.MemberRemoveResponse, error)
	MemberPromote(context.Context, uint64) (*clientv3.MemberPromoteResponse, error)
	Close() error
}

// joinCall is the timeout for each call. When it expires, the next member is tried.
const joinCall = 10 * time.Second

// joiner returns the joiner, or nil without --join.
func (f *flags) joiner(lg *slog.Logger) (*joiner, error) {
	if err := f.join.login.check(len(f.join.endpoints) > 0); err != nil {
		return nil, err
	}
	if len(f.join.endpoints) == 0 {
		if f.join.replace {
			return nil, usageError("--replace requires --join")
		}
		return nil, nil
	}
	if f.given["initial-cluster"] {
		return nil, usageError("--join gets the members from the cluster; " +
			"omit --initial-cluster")
	}
	j := &joiner{
		joinFlags: f.join, log: lg, dial: dialCluster, reach: server.Reach,
		nameGiven: f.given["name"], dirGiven: f.given["data-dir"],
	}
	for _, name := range []string{
		"listen-client-urls", "advertise-client-urls", "listen-peer-urls",
		"initial-advertise-peer-urls",
	} {
		j.addressesGiven = j.addressesGiven || f.given[name]
	}
	return j, nil
}

// prepare waits until the cluster has added the member, and returns the configuration to start it
// with. It waits as long as necessary, because a server is expected to keep trying until it is
// stopped.
func (j *joiner) prepare(ctx context.Context, cfg server.Config) (server.Config, error) {
	cfg, err := j.chooseAddresses(cfg)
	if err != nil {
		return cfg, err
	}
	cfg.Cluster.State = "existing"
	have, err := look(cfg.DataDir)
	if err != nil {
		return cfg, err
	}
	if j.cluster, err = j.dial(j.endpoints, j.login, cfg); err != nil {
		return cfg, err
	}
	if j.member = have.Member; have.hasState {
		j.log.Info("the data directory already belongs to a cluster; ignoring --join",
			"data-dir", cfg.DataDir, "cluster", fmt.Sprintf("%x", have.Cluster),
			"member", fmt.Sprintf("%x", have.Member))
		return cfg, nil
	}
	var all []*etcdserverpb.Member
	err = j.persist(ctx, "waiting to join the cluster", func(ctx context.Context) error {
		all, err = j.admit(ctx, cfg, have)
		return err
	})
	if err != nil {
		return cfg, fault.Join(fmt.Errorf("join the cluster: %w", err), j.cluster.Close())
	}
	cfg.Cluster.Initial, err = j.initial(cfg, all)
	return cfg, err
}

// admit adds this member to the cluster if necessary, and returns all members.
func (j *joiner) admit(
	ctx context.Context, cfg server.Config, have dirContents,
) ([]*etcdserverpb.Member, error) {
	if err := j.cluster.Ours(ctx); err != nil {
		return nil, err
	}
	list, err := j.cluster.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	if have.Member != 0 {
		return list.Members, have.check(cfg, list)
	}
	urls := listen.URLTexts(cfg.URLs.AdvertisePeer)
	m := at(list.Members, urls)
	if err := j.check(cfg, list, m); err != nil {
		return nil, err
	}
	started := m.GetName() != ""
	switch {
	case m == nil:
		return j.add(ctx, urls)
	case !started && !j.replace:
		j.log.Info("the cluster already lists this member", "member", fmt.Sprintf("%x", m.ID))
		j.member = m.ID
		return list.Members, nil
	case !m.IsLearner && !j.replace:
		return nil, fmt.Errorf("member %x (%s) is a voter with the peer URLs %s, but its data is "+
			"not in %s: with an empty directory, it would lack data that it has acknowledged; start "+
			"it with its data, or use --replace to remove it and join as a new member",
			m.ID, m.Name, strings.Join(urls, ","), cfg.DataDir)
	}
	// A learner can be removed even without --replace, because it has no vote that could be lost.
	j.log.Warn("removing the member that lost its data, in order to replace it",
		"member", fmt.Sprintf("%x", m.ID), "name", m.Name)
	_, err = j.cluster.MemberRemove(ctx, m.ID)
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil, err
	}
	return j.add(ctx, urls)
}

// errUnreachable means that no member can be reached at its peer URLs.
var errUnreachable = errors.New("no member of the cluster can be reached at its peer URLs, so " +
	"this one could not take part; check them with \"leasehold member list\", and correct them with " +
	"\"leasehold member update ID --peer-urls=URL\"")

// check returns an error if a new member, or a member replacing self, would be unable to take part.
// Without this check, such a member would remain an unreachable learner.
func (j *joiner) check(
	cfg server.Config, list *clientv3.MemberListResponse, self *etcdserverpb.Member,
) error {
	others := make(map[string][]url.URL)
	for _, m := range list.Members {
		if m == self {
			continue
		}
		us, err := listen.ParseURLs(strings.Join(m.PeerURLs, ","))
		if err != nil {
			return fmt.Errorf("member %x: %w", m.ID, err)
		}
		others[fmt.Sprintf("%x", m.ID)] = us
	}
	if len(others) == 0 {
		return nil
	}
	err := j.reach(cfg, others, list.Header.GetClusterId())
	if err == nil || errors.Is(err, server.ErrUnsupportedVersion) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

func (j *joiner) add(ctx context.Context, urls []string) ([]*etcdserverpb.Member, error) {
	resp, err := j.cluster.MemberAddAsLearner(ctx, urls)
	switch {
	case err == nil:
		j.member = resp.Member.GetID()
		j.log.Info("added to the cluster as a learner", "member", fmt.Sprintf("%x", j.member),
			"peer-urls", urls)
		return resp.Members, nil
	case !errors.Is(err, rpctypes.ErrPeerURLExist):
		return nil, err
	}
	// An earlier attempt might have succeeded although its response was lost.
	list, lerr := j.cluster.MemberList(ctx)
	if lerr != nil {
		return nil, lerr
	}
	if m := at(list.Members, urls); m != nil {
		j.member = m.ID
		return list.Members, nil
	}
	return nil, fmt.Errorf("another member uses one of the peer URLs %s; "+
		"choose others with --initial-advertise-peer-urls: %w",
		strings.Join(urls, ","), err)
}

// initial returns the value for --initial-cluster.
func (j *joiner) initial(
	cfg server.Config, all []*etcdserverpb.Member,
) (map[string][]url.URL, error) {
	initial := map[string][]url.URL{cfg.Name: cfg.URLs.AdvertisePeer}
	remote := !slices.ContainsFunc(cfg.URLs.AdvertisePeer, isLoopback)
	for _, m := range all {
		if m.ID == j.member {
			continue
		}
		us, err := listen.ParseURLs(strings.Join(m.PeerURLs, ","))
		if err != nil {
			return nil, fmt.Errorf("join the cluster: member %x: %w", m.ID, err)
		}
		if remote && !slices.ContainsFunc(us, func(u url.URL) bool { return !isLoopback(u) }) {
			j.log.Warn("a member advertises an address that other machines cannot reach; start "+
				"it with --initial-advertise-peer-urls, or change it with leasehold member "+
				"update",
				"member", fmt.Sprintf("%x", m.ID), "peer-urls", m.PeerURLs)
		}
		name := m.Name
		if _, taken := initial[name]; taken || name == "" {
			name = fmt.Sprintf("%x", m.ID) // names are not necessarily unique, or known yet
		}
		initial[name] = us
	}
	return initial, nil
}

// finish has the member promoted once it is serving. Before that, the member cannot have caught up.
// A restarted voter does not need to be promoted, and might lack the login for it. The function
// learner reports whether the member is a learner.
func (j *joiner) finish(ctx context.Context, ready <-chan struct{}, learner func() bool) {
	defer j.cluster.Close() //nolint:errcheck // nothing is lost
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	if !learner() {
		return
	}
	err := j.persist(ctx, "waiting to become a voter", func(ctx context.Context) error {
		_, err := j.cluster.MemberPromote(ctx, j.member)
		return err
	})
	switch {
	case err == nil:
		j.log.Info("became a voter", "member", fmt.Sprintf("%x", j.member))
	case ctx.Err() != nil, errors.Is(err, rpctypes.ErrMemberNotLearner), !learner():
	default:
		j.log.Error("could not become a voter; this member remains a learner",
			"member", fmt.Sprintf("%x", j.member), "error", err)
	}
}

// find returns the member with the given ID, or nil.
func find(all []*etcdserverpb.Member, id uint64) *etcdserverpb.Member {
	for _, m := range all {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// at returns the member with exactly these peer URLs, or nil.
func at(all []*etcdserverpb.Member, urls []string) *etcdserverpb.Member {
	set := func(urls []string) map[string]bool {
		s := make(map[string]bool)
		for _, u := range urls {
			s[u] = true
		}
		return s
	}
	for _, m := range all {
		if maps.Equal(set(m.PeerURLs), set(urls)) {
			return m
		}
	}
	return nil
}

func isLoopback(u url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() ||
		u.Scheme == "unix" || u.Scheme == "unixs"
}
