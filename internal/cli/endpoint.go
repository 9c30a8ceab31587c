package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cause"
)

func (a *app) endpointCommand() *cobra.Command {
	var cluster bool
	cmd := family("endpoint", "Ask single members for their health, status or hash",
		a.endpointHealth(&cluster), a.endpointStatus(&cluster), a.endpointHashKV(&cluster))
	cmd.PersistentFlags().BoolVar(&cluster, "cluster", false,
		"use all endpoints from the cluster member list")
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

func (a *app) endpointHealth(cluster *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Check the health of the endpoints in --endpoints",
		RunE: func(*cobra.Command, []string) error {
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
				if h.Error != "" {
					bad = true
					if _, ok := a.printer.(*simplePrinter); ok {
						a.complain("%s is unhealthy: %s%v\n", h.Endpoint, h.prefix(), h.Error)
					}
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

// status is what one endpoint says about itself.
type status struct {
	Endpoint string                   `json:"Endpoint"`
	Resp     *clientv3.StatusResponse `json:"Status"`
}

func (a *app) endpointStatus(cluster *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Print the status of the endpoints in --endpoints",
		Long: `Prints out the status of endpoints specified in the --endpoints flag.

With --write-out simple the items of a line are ` + strings.Join(statusHead, ", ") + ".",
		RunE: func(*cobra.Command, []string) error {
			var list []status
			failure, err := a.eachEndpoint(*cluster, "status",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					resp, err := c.Status(ctx, ep)
					if err == nil {
						list = append(list, status{ep, resp})
					}
					return err
				})
			if err != nil {
				return err
			}
			if err := a.show(showStatus(list)); err != nil {
				return err
			}
			if failure != nil {
				return &exitError{exitFailure, nil}
			}
			return nil
		},
	}
}

// hashKV is the hash of one endpoint's keys.
type hashKV struct {
	Endpoint string                   `json:"Endpoint"`
	Resp     *clientv3.HashKVResponse `json:"HashKV"`
}

func (a *app) endpointHashKV(cluster *bool) *cobra.Command {
	var rev int64
	cmd := &cobra.Command{
		Use:   "hashkv",
		Short: "Print the hash of the history of each endpoint in --endpoints",
		RunE: func(*cobra.Command, []string) error {
			var list []hashKV
			failure, err := a.eachEndpoint(*cluster, "hash",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					resp, err := c.HashKV(ctx, ep, rev)
					if err == nil {
						list = append(list, hashKV{ep, resp})
					}
					return err
				})
			if err != nil {
				return err
			}
			if err := a.show(showHashKV(list)); err != nil {
				return err
			}
			return failure
		},
	}
	cmd.PersistentFlags().Int64Var(&rev, "rev", 0,
		"maximum revision to hash (default: latest revision)")
	return cmd
}
