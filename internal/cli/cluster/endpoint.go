package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/cli/app"
)

func (a commands) endpointCommand() *cobra.Command {
	var cluster bool
	cmd := a.Family("endpoint", "Check individual members",
		a.endpointHealth(&cluster), a.endpointStatus(&cluster), a.endpointHashKV(&cluster))
	app.ClusterFlag(cmd.PersistentFlags(), &cluster)
	return cmd
}

// health is the result of checking an endpoint.
type health struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`

	cluster uint64 // 0 if there was no response
	commits bool   // unhealthy for a reason other than a failed read
}

func (a commands) endpointHealth(cluster *bool) app.Command {
	return app.Command{
		Use: "health", Short: "Check the health of the endpoints in --endpoints", Max: -1,
		Example: "endpoint health --endpoints a:2379,b:2379",
		Run: func(*cobra.Command, []string, []string) error {
			spec, err := a.Prepare()
			if err != nil {
				return err
			}
			eps, err := a.EveryEndpoint(spec, *cluster)
			if err != nil {
				return err
			}
			list := a.checkAll(spec, eps)
			labelClusters(list)
			if err := a.Show(showHealth(list)); err != nil {
				return err
			}
			bad := false
			for _, h := range list {
				if h.Error == "" {
					continue
				}
				bad = true
				if a.Flags.Format == "simple" {
					a.Warnf("%s is unhealthy: %s%v\n", h.Endpoint, h.prefix(), h.Error)
				}
			}
			if bad {
				return errors.New("unhealthy cluster")
			}
			return nil
		},
	}
}

// prefix returns the prefix that etcdctl adds to errors.
func (h *health) prefix() string {
	if h.commits {
		return ""
	}
	return "failed to commit proposal: "
}

// labelClusters marks endpoints as unhealthy if they belong to a different cluster than the first
// endpoint that responds. With such a list of endpoints, a client could see a held lock as free.
func labelClusters(list []health) {
	first := slices.IndexFunc(list, func(h health) bool { return h.cluster != 0 })
	for i := range list {
		h := &list[i]
		if h.cluster != 0 && h.cluster != list[first].cluster && h.Error == "" {
			h.Health, h.commits = false, true
			h.Error = fmt.Sprintf("it belongs to cluster %x, but %s belongs to cluster %x",
				h.cluster, list[first].Endpoint, list[first].cluster)
		}
	}
}

// checkAll checks all endpoints concurrently. The results are in the order of the endpoints.
// etcdctl prints them in the order of the responses.
func (a commands) checkAll(spec *clientv3.ConfigSpec, eps []string) []health {
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

// check reports whether an endpoint can serve a linearizable read, has no alarm, and does not
// report a problem itself.
func (a commands) check(spec *clientv3.ConfigSpec, ep string) health {
	h := health{Endpoint: ep}
	c, err := a.DialOne(spec, ep)
	if err != nil {
		h.Error = err.Error()
		return h
	}
	defer c.Close()
	ctx, cancel := a.CommandContext()
	defer cancel()
	start := time.Now()
	resp, err := c.Get(ctx, "health")
	h.Took = time.Since(start).String()
	if err == nil {
		h.cluster = resp.Header.GetClusterId()
	}
	// A denied request is fine, because the cluster confirmed it first.
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		h.Error = err.Error()
		return h
	}
	if h.Error = alarmsOf(ctx, c); h.Error == "" {
		// A member with a full disk rejects writes, but does not raise an alarm.
		if r, err := c.Status(ctx, ep); err == nil {
			reports := reportedBy((*pb.StatusResponse)(r))
			h.Error = texts(slices.DeleteFunc(reports, func(r SelfReport) bool {
				return r.Code == cause.BackupsFail // does not affect service
			}))
			h.commits = h.Error != ""
		}
	}
	h.Health = h.Error == ""
	return h
}

// alarmsOf describes the active alarms. It returns "" if there are none.
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

// status is the status reported by an endpoint.
type status struct {
	Endpoint string                   `json:"Endpoint"`
	Resp     *clientv3.StatusResponse `json:"Status"`
}

func (a commands) endpointStatus(cluster *bool) app.Command {
	return app.Command{
		Use: "status", Short: "Print the status of the endpoints in --endpoints", Max: -1,
		Long: `Print the status of the endpoints in --endpoints.

With --write-out simple, the fields of a line are ` + strings.Join(statusHead, ", ") + ".",
		Example: "endpoint status --cluster -w table",
		Run: func(*cobra.Command, []string, []string) error {
			var list []status
			failure, err := a.EachEndpoint(*cluster, "status",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					resp, err := c.Status(ctx, ep)
					if err == nil {
						list = append(list, status{ep, resp})
					}
					return err
				})
			if err == nil {
				err = a.Show(showStatus(list))
			}
			if err == nil && failure != nil {
				err = app.Reported(app.ExitFailure)
			}
			return err
		},
	}
}

// hashKV is the hash of an endpoint's keys.
type hashKV struct {
	Endpoint string                   `json:"Endpoint"`
	Resp     *clientv3.HashKVResponse `json:"HashKV"`
}

func (a commands) endpointHashKV(cluster *bool) app.Command {
	var rev int64
	return app.Command{
		Use: "hashkv", Short: "Print the hash of the history of each endpoint in --endpoints", Max: -1,
		Example: "endpoint hashkv --cluster -w table",
		Flags: func(fs *pflag.FlagSet) {
			fs.Int64Var(&rev, "rev", 0, "last revision to hash (default: the latest)")
		},
		Run: func(*cobra.Command, []string, []string) error {
			var list []hashKV
			failure, err := a.EachEndpoint(*cluster, "hash",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					resp, err := c.HashKV(ctx, ep, rev)
					if err == nil {
						list = append(list, hashKV{ep, resp})
					}
					return err
				})
			if err == nil {
				err = a.Show(showHashKV(list))
			}
			if err == nil {
				err = failure
			}
			return err
		},
	}
}

func showHealth(list []health) app.Answer {
	return app.Answer{JSON: list, Simple: func(p *app.Page) {
		for _, h := range list {
			if h.Error == "" {
				p.Printf("%s is healthy: successfully committed proposal: took = %v\n",
					h.Endpoint, h.Took)
			}
		}
	}, Fields: func(p *app.Page) {
		for _, h := range list {
			p.Quoted("Endpoint", h.Endpoint)
			p.Field("Health", h.Health)
			p.Field("Took", h.Took)
			p.Field("Error", h.Error)
			p.Printf("\n")
		}
	}, Table: func() ([]string, [][]string) {
		var rows [][]string
		for _, h := range list {
			rows = append(rows, []string{
				h.Endpoint, strconv.FormatBool(h.Health), h.Took, h.Error,
			})
		}
		return []string{"endpoint", "health", "took", "error"}, rows
	}}
}

// statusHead lists the columns of endpoint status.
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
		humanize.Bytes(uint64(r.GetDbSize())),
		humanize.Bytes(uint64(r.GetDbSizeInUse())),
		fmt.Sprintf("%d%%", percentFree(r.GetDbSize(), r.GetDbSizeInUse())),
		humanize.Bytes(uint64(r.GetDbSizeQuota())),
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

// percentFree returns the percentage of size that is not in use. For an empty database, it returns
// 0, whereas etcdctl divides by zero.
func percentFree(size, inUse int64) int64 {
	if size == 0 {
		return 0
	}
	return 100 - inUse*100/size
}

func showStatus(list []status) app.Answer {
	rows := func() (rows [][]string) {
		for _, s := range list {
			rows = append(rows, statusRow(s))
		}
		return rows
	}
	return app.Answer{JSON: list, Simple: func(p *app.Page) {
		p.Rows(rows())
	}, Fields: func(p *app.Page) {
		for _, s := range list {
			statusFields(p, s)
		}
	}, Table: func() ([]string, [][]string) {
		return statusHead, rows()
	}}
}

func statusFields(p *app.Page, s status) {
	r := (*pb.StatusResponse)(s.Resp)
	p.Header(r.GetHeader())
	p.Quoted("Version", r.GetVersion())
	p.Quoted("StorageVersion", r.GetStorageVersion())
	p.Field("DBSize", r.GetDbSize())
	p.Field("DBSizeInUse", r.GetDbSizeInUse())
	p.Field("DBSizeQuota", r.GetDbSizeQuota())
	p.Field("Leader", r.GetLeader())
	p.Field("IsLearner", r.GetIsLearner())
	p.Field("RaftIndex", r.GetRaftIndex())
	p.Field("RaftAppliedIndex", r.GetRaftAppliedIndex())
	p.Field("Errors", r.GetErrors())
	p.Quoted("Endpoint", s.Endpoint)
	p.Quoted("DowngradeTargetVersion", r.GetDowngradeInfo().GetTargetVersion())
	p.Field("DowngradeEnabled", r.GetDowngradeInfo().GetEnabled())
	p.Printf("\n")
}

func showHashKV(list []hashKV) app.Answer {
	rows := func() (rows [][]string) {
		for _, h := range list {
			r := (*pb.HashKVResponse)(h.Resp)
			rows = append(rows, []string{
				h.Endpoint, fmt.Sprint(r.GetHash()), fmt.Sprint(r.GetHashRevision()),
			})
		}
		return rows
	}
	return app.Answer{JSON: list, Simple: func(p *app.Page) {
		p.Rows(rows())
	}, Fields: func(p *app.Page) {
		for _, h := range list {
			r := (*pb.HashKVResponse)(h.Resp)
			p.Header(r.GetHeader())
			p.Quoted("Endpoint", h.Endpoint)
			p.Field("Hash", r.GetHash())
			p.Field("HashRevision", r.GetHashRevision())
			p.Printf("\n")
		}
	}, Table: func() ([]string, [][]string) {
		return []string{"endpoint", "hash", "hash_revision"}, rows()
	}}
}
