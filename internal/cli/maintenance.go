package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) compactionCommand() *cobra.Command {
	var physical bool
	var rev int64
	return a.make(command{
		use: "compaction <revision>", short: "Compact the history of the store",
		example: "compaction 1200\ncompaction --physical 1200",
		min:     1, max: 1,
		flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&physical, "physical", false, "wait until all old revisions are removed")
		},
		check: func(args []string) (err error) {
			rev, err = strconv.ParseInt(args[0], 10, 64)
			return err
		},
		call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
			var opts []clientv3.CompactOption
			if physical {
				opts = append(opts, clientv3.WithCompactPhysical())
			}
			_, err := c.Compact(ctx, rev, opts...)
			return plain(fmt.Sprintf("compacted revision %d\n", rev)), err
		},
	})
}

func (a *app) defragCommand() *cobra.Command {
	var cluster bool
	return a.make(command{
		use: "defrag", short: "Defragment the storage of members", example: "defrag --cluster",
		flags: func(fs *pflag.FlagSet) { clusterFlag(fs, &cluster) },
		run: func(*cobra.Command, []string, []string) error {
			spec, err := a.prepare()
			if err != nil {
				return err
			}
			eps, err := a.everyEndpoint(spec, cluster)
			if err != nil {
				return err
			}
			var failed error
			for _, ep := range eps {
				if a.defragment(spec, ep) != nil {
					failed = &exitError{exitFailure, nil}
				}
			}
			return failed
		},
	})
}

// defragment defragments one member, and prints the result.
func (a *app) defragment(spec *clientv3.ConfigSpec, ep string) error {
	c, err := a.dialOne(spec, ep)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
	defer cancel()
	start := time.Now()
	_, err = c.Defragment(ctx, ep)
	took := time.Since(start)
	if err != nil {
		a.complain("Failed to defragment etcd member[%s]. took %s. (%v)\n", ep, took, err)
		return err
	}
	a.say("Finished defragmenting etcd member[%s]. took %s\n", ep, took)
	return nil
}

func (a *app) downgradeCommand() *cobra.Command {
	to := func(name, short string, args int, action clientv3.DowngradeAction) command {
		d := command{
			use: name, short: short, example: "downgrade " + name, min: args, max: args,
			call: func(ctx context.Context, c *clientv3.Client, args []string) (answer, error) {
				resp, err := c.Downgrade(ctx, action, append(args, "")[0])
				r := (*pb.DowngradeResponse)(resp)
				return etcdAnswer(r, func(p *page) {
					p.printf("Downgrade %s success, cluster version %s\n", name, r.GetVersion())
				}), err
			},
		}
		if args > 0 {
			d.use, d.example = d.use+" <TARGET_VERSION>", d.example+" 0.1"
			d.check = func(args []string) error {
				if args[0] == "" {
					return badArgs("the target version is empty")
				}
				return nil
			}
		}
		return d
	}
	cmd := a.family("downgrade", "Downgrade the cluster",
		to("validate", "Check whether the cluster can be downgraded", 1, clientv3.DowngradeValidate),
		to("enable", "Start a downgrade", 1, clientv3.DowngradeEnable),
		to("cancel", "Cancel the current downgrade", 0, clientv3.DowngradeCancel))
	cmd.Long = `Return the cluster to the version of an earlier release, or keep it at its version
while members are upgraded, until that is cancelled.`
	return cmd
}

func (a *app) alarmCommand() *cobra.Command {
	return a.family("alarm", "Manage alarms", command{
		use: "disarm", short: "Disarm all alarms", example: "alarm disarm",
		call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
			resp, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
			return showAlarm(resp), err
		},
	}, command{
		use: "list", short: "List alarms", example: "alarm list",
		call: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
			resp, err := c.AlarmList(ctx)
			return showAlarm(resp), err
		},
	})
}

func showAlarm(resp *clientv3.AlarmResponse) answer {
	r := (*pb.AlarmResponse)(resp)
	ans := etcdAnswer(r, func(p *page) {
		for _, m := range r.GetAlarms() {
			p.printf("memberID:%d alarm:%s\n", m.GetMemberID(), m.GetAlarm())
		}
	})
	ans.fields = func(p *page) {
		p.header(r.GetHeader())
		for _, m := range r.GetAlarms() {
			p.memberID("MemberID", m.GetMemberID())
			p.field("AlarmType", m.GetAlarm())
			p.printf("\n")
		}
	}
	return ans
}
