package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
)

func (a *app) endpointCommand() *cobra.Command {
	var cluster bool
	cmd := a.family("endpoint", "Check single members",
		a.endpointHealth(&cluster), a.endpointStatus(&cluster), a.endpointHashKV(&cluster))
	clusterFlag(cmd.PersistentFlags(), &cluster)
	return cmd
}

// health is what is known of one endpoint.
type health struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`

	cluster uint64 // 0 if it has not answered
	commits bool   // it can, and is unhealthy for another reason
}

func (a *app) endpointHealth(cluster *bool) command {
	return command{
		use: "health", short: "Check the health of the endpoints in --endpoints", max: -1,
		example: "endpoint health --endpoints a:2379,b:2379",
		run: func(*cobra.Command, []string, []string) error {
			spec, err := a.prepare()
			if err != nil {
				return err
			}
			eps, err := a.everyEndpoint(spec, *cluster)
			if err != nil {
				return err
			}
			list := a.checkAll(spec, eps)
			tellClustersApart(list)
			if err := a.show(showHealth(list)); err != nil {
				return err
			}
			bad := false
			for _, h := range list {
				if h.Error == "" {
					continue
				}
				bad = true
				if _, ok := a.printer.(*simplePrinter); ok {
					a.complain("%s is unhealthy: %s%v\n", h.Endpoint, h.prefix(), h.Error)
				}
			}
			if bad {
				return errors.New("unhealthy cluster")
			}
			return nil
		},
	}
}

// prefix is what etcdctl says of everything that is wrong.
func (h *health) prefix() string {
	if h.commits {
		return ""
	}
	return "failed to commit proposal: "
}

// tellClustersApart makes endpoints unhealthy that belong to another cluster than the first that
// answers: a client with such a list would find a lock free that is held.
func tellClustersApart(list []health) {
	first := slices.IndexFunc(list, func(h health) bool { return h.cluster != 0 })
	for i := range list {
		h := &list[i]
		if h.cluster != 0 && h.cluster != list[first].cluster && h.Error == "" {
			h.Health, h.commits = false, true
			h.Error = fmt.Sprintf("it belongs to cluster %x, and %s to cluster %x",
				h.cluster, list[first].Endpoint, list[first].cluster)
		}
	}
}

// checkAll asks all endpoints at once. The results are in the order of the
// endpoints (etcdctl's are in the order of the answers).
func (a *app) checkAll(spec *clientv3.ConfigSpec, eps []string) []health {
	list := make([]health, len(eps))
	var wg sync.WaitGroup
	for i, ep := range eps {
		wg.Go(func() {
			list[i] = a.check(spec, ep)
		})
	}
	wg.Wait()
	return list
}

// check finds out whether an endpoint can read what a quorum agrees on, has
// no alarm, and reports nothing to be wrong with itself.
func (a *app) check(spec *clientv3.ConfigSpec, ep string) health {
	h := health{Endpoint: ep}
	c, err := a.dialOne(spec, ep)
	if err != nil {
		h.Error = err.Error()
		return h
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
	defer cancel()
	start := time.Now()
	resp, err := c.Get(ctx, "health")
	h.Took = time.Since(start).String()
	if err == nil {
		h.cluster = resp.Header.GetClusterId()
	}
	// A refusal has gone through the cluster too.
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		h.Error = err.Error()
		return h
	}
	if h.Error = alarmsOf(ctx, c); h.Error == "" {
		// One whose disk is full refuses writes, and no alarm says so.
		if r, err := c.Status(ctx, ep); err == nil {
			reports := reportedBy((*pb.StatusResponse)(r))
			h.Error = texts(slices.DeleteFunc(reports, func(r selfReport) bool {
				return r.code == cause.BackupsFail // the endpoint serves all the same
			}))
			h.commits = h.Error != ""
		}
	}
	h.Health = h.Error == ""
	return h
}

// alarmsOf says which alarms there are, or nothing.
func alarmsOf(ctx context.Context, c *clientv3.Client) string {
	resp, err := c.AlarmList(ctx)
	switch {
	case err != nil:
		return "Unable to fetch the alarm list"
	case len(resp.Alarms) == 0:
		return ""
	}
	text := "Active Alarm(s): "
	for _, m := range resp.Alarms {
		switch m.GetAlarm() {
		case pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT:
			text += m.GetAlarm().String() + " "
		default:
			text += "UNKNOWN "
		}
	}
	return text
}

// eachEndpoint asks one endpoint after the other, and tells the user which of
// them did not answer. It returns the last failure.
func (a *app) eachEndpoint(
	cluster bool, what string, do func(context.Context, *clientv3.Client, string) error,
) (failure, err error) {
	spec, err := a.prepare()
	if err != nil {
		return nil, err
	}
	eps, err := a.everyEndpoint(spec, cluster)
	if err != nil {
		return nil, err
	}
	one := func(ep string) error {
		c, err := a.dialOne(spec, ep)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := a.commandContext()
		defer cancel()
		return do(ctx, c, ep)
	}
	for _, ep := range eps {
		if err := one(ep); err != nil {
			failure = err
			a.complain("Failed to get the %s of endpoint %s (%v)\n", what, ep, err)
		}
	}
	return failure, nil
}

// status is what one endpoint reports about itself.
type status struct {
	Endpoint string                   `json:"Endpoint"`
	Resp     *clientv3.StatusResponse `json:"Status"`
}

func (a *app) endpointStatus(cluster *bool) command {
	return command{
		use: "status", short: "Print the status of the endpoints in --endpoints", max: -1,
		long: `Print the status of the endpoints in --endpoints.

With --write-out simple the items of a line are ` + strings.Join(statusHead, ", ") + ".",
		example: "endpoint status --cluster -w table",
		run: func(*cobra.Command, []string, []string) error {
			var list []status
			failure, err := a.eachEndpoint(*cluster, "status",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					resp, err := c.Status(ctx, ep)
					if err == nil {
						list = append(list, status{ep, resp})
					}
					return err
				})
			if err == nil {
				err = a.show(showStatus(list))
			}
			if err == nil && failure != nil {
				err = &exitError{exitFailure, nil}
			}
			return err
		},
	}
}

// hashKV is the hash of one endpoint's keys.
type hashKV struct {
	Endpoint string                   `json:"Endpoint"`
	Resp     *clientv3.HashKVResponse `json:"HashKV"`
}

func (a *app) endpointHashKV(cluster *bool) command {
	var rev int64
	return command{
		use: "hashkv", short: "Print the hash of the history of each endpoint in --endpoints", max: -1,
		example: "endpoint hashkv --cluster -w table",
		flags: func(fs *pflag.FlagSet) {
			fs.Int64Var(&rev, "rev", 0, "last revision to hash (default: the latest)")
		},
		run: func(*cobra.Command, []string, []string) error {
			var list []hashKV
			failure, err := a.eachEndpoint(*cluster, "hash",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					resp, err := c.HashKV(ctx, ep, rev)
					if err == nil {
						list = append(list, hashKV{ep, resp})
					}
					return err
				})
			if err == nil {
				err = a.show(showHashKV(list))
			}
			if err == nil {
				err = failure
			}
			return err
		},
	}
}

func showHealth(list []health) answer {
	return answer{json: list, simple: func(p *page) {
		for _, h := range list {
			if h.Error == "" {
				p.printf("%s is healthy: successfully committed proposal: took = %v\n",
					h.Endpoint, h.Took)
			}
		}
	}, fields: func(p *page) {
		for _, h := range list {
			p.quoted("Endpoint", h.Endpoint)
			p.field("Health", h.Health)
			p.field("Took", h.Took)
			p.field("Error", h.Error)
			p.printf("\n")
		}
	}, table: func() ([]string, [][]string) {
		var rows [][]string
		for _, h := range list {
			rows = append(rows, []string{
				h.Endpoint, strconv.FormatBool(h.Health), h.Took, h.Error,
			})
		}
		return []string{"endpoint", "health", "took", "error"}, rows
	}}
}

// statusHead names the columns of endpoint status.
var statusHead = []string{
	"endpoint", "ID", "version", "storage version", "db size", "in use",
	"percentage not in use", "quota", "is leader", "is learner", "raft term",
	"raft index", "raft applied index", "errors", "downgrade target version",
	"downgrade enabled",
}

func statusRow(s status) []string {
	r := (*pb.StatusResponse)(s.Resp)
	return []string{
		s.Endpoint,
		fmt.Sprintf("%x", r.GetHeader().GetMemberId()),
		r.GetVersion(),
		r.GetStorageVersion(),
		siBytes(r.GetDbSize()),
		siBytes(r.GetDbSizeInUse()),
		fmt.Sprintf("%d%%", percentFree(r.GetDbSize(), r.GetDbSizeInUse())),
		siBytes(r.GetDbSizeQuota()),
		strconv.FormatBool(r.GetLeader() == r.GetHeader().GetMemberId()),
		strconv.FormatBool(r.GetIsLearner()),
		fmt.Sprint(r.GetRaftTerm()),
		fmt.Sprint(r.GetRaftIndex()),
		fmt.Sprint(r.GetRaftAppliedIndex()),
		strings.Join(r.GetErrors(), ", "),
		r.GetDowngradeInfo().GetTargetVersion(),
		strconv.FormatBool(r.GetDowngradeInfo().GetEnabled()),
	}
}

// percentFree is how much of size is not in use. An empty database has nothing
// free (etcdctl divides by zero).
func percentFree(size, inUse int64) int64 {
	if size == 0 {
		return 0
	}
	return 100 - inUse*100/size
}

func showStatus(list []status) answer {
	rows := func() (rows [][]string) {
		for _, s := range list {
			rows = append(rows, statusRow(s))
		}
		return rows
	}
	return answer{json: list, simple: func(p *page) {
		p.rows(rows())
	}, fields: func(p *page) {
		for _, s := range list {
			statusFields(p, s)
		}
	}, table: func() ([]string, [][]string) {
		return statusHead, rows()
	}}
}

func statusFields(p *page, s status) {
	r := (*pb.StatusResponse)(s.Resp)
	p.header(r.GetHeader())
	p.quoted("Version", r.GetVersion())
	p.quoted("StorageVersion", r.GetStorageVersion())
	p.field("DBSize", r.GetDbSize())
	p.field("DBSizeInUse", r.GetDbSizeInUse())
	p.field("DBSizeQuota", r.GetDbSizeQuota())
	p.field("Leader", r.GetLeader())
	p.field("IsLearner", r.GetIsLearner())
	p.field("RaftIndex", r.GetRaftIndex())
	p.field("RaftAppliedIndex", r.GetRaftAppliedIndex())
	p.field("Errors", r.GetErrors())
	p.quoted("Endpoint", s.Endpoint)
	p.quoted("DowngradeTargetVersion", r.GetDowngradeInfo().GetTargetVersion())
	p.field("DowngradeEnabled", r.GetDowngradeInfo().GetEnabled())
	p.printf("\n")
}

func showHashKV(list []hashKV) answer {
	rows := func() (rows [][]string) {
		for _, h := range list {
			r := (*pb.HashKVResponse)(h.Resp)
			rows = append(rows, []string{
				h.Endpoint, fmt.Sprint(r.GetHash()), fmt.Sprint(r.GetHashRevision()),
			})
		}
		return rows
	}
	return answer{json: list, simple: func(p *page) {
		p.rows(rows())
	}, fields: func(p *page) {
		for _, h := range list {
			r := (*pb.HashKVResponse)(h.Resp)
			p.header(r.GetHeader())
			p.quoted("Endpoint", h.Endpoint)
			p.field("Hash", r.GetHash())
			p.field("HashRevision", r.GetHashRevision())
			p.printf("\n")
		}
	}, table: func() ([]string, [][]string) {
		return []string{"endpoint", "hash", "hash_revision"}, rows()
	}}
}
