package cluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"leasehold.dev/internal/cli/app"
)

func (a commands) compactionCommand() *cobra.Command {
	var physical bool
	var rev int64
	return a.Make(app.Command{
		Use: "compaction <revision>", Short: "Compact the history of the store",
		Example: "compaction 1200\ncompaction --physical 1200",
		Min:     1, Max: 1,
		Flags: func(fs *pflag.FlagSet) {
			fs.BoolVar(&physical, "physical", false, "wait until all old revisions are removed")
		},
		Check: func(args []string) (err error) {
			rev, err = strconv.ParseInt(args[0], 10, 64)
			return err
		},
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			var opts []clientv3.CompactOption
			if physical {
				opts = append(opts, clientv3.WithCompactPhysical())
			}
			_, err := c.Compact(ctx, rev, opts...)
			return app.Plain(fmt.Sprintf("compacted revision %d\n", rev)), err
		},
	})
}

func (a commands) defragCommand() *cobra.Command {
	var cluster bool
	return a.Make(app.Command{
		Use: "defrag", Short: "Defragment the storage of members", Example: "defrag --cluster",
		Flags: func(fs *pflag.FlagSet) { app.ClusterFlag(fs, &cluster) },
		Run: func(*cobra.Command, []string, []string) error {
			spec, err := a.Prepare()
			if err != nil {
				return err
			}
			eps, err := a.EveryEndpoint(spec, cluster)
			if err != nil {
				return err
			}
			var failed error
			for _, ep := range eps {
				if a.defragment(spec, ep) != nil {
					failed = app.Reported(app.ExitFailure)
				}
			}
			return failed
		},
	})
}

// defragment defragments a member, and prints the result.
func (a commands) defragment(spec *clientv3.ConfigSpec, ep string) error {
	c, err := a.DialOne(spec, ep)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.CommandContext()
	defer cancel()
	start := time.Now()
	_, err = c.Defragment(ctx, ep)
	took := time.Since(start)
	if err != nil {
		a.Warnf("Failed to defragment etcd member[%s]. took %s. (%v)\n", ep, took, err)
		return err
	}
	a.Say("Finished defragmenting etcd member[%s]. took %s\n", ep, took)
	return nil
}

func (a commands) downgradeCommand() *cobra.Command {
	to := func(name, short string, args int, action clientv3.DowngradeAction) app.Command {
		d := app.Command{
			Use: name, Short: short, Example: "downgrade " + name, Min: args, Max: args,
			Call: func(ctx context.Context, c *clientv3.Client, args []string) (app.Answer, error) {
				resp, err := c.Downgrade(ctx, action, append(args, "")[0])
				r := (*pb.DowngradeResponse)(resp)
				return app.EtcdAnswer(r, func(p *app.Page) {
					p.Printf("Downgrade %s success, cluster version %s\n", name, r.GetVersion())
				}), err
			},
		}
		if args > 0 {
			d.Use, d.Example = d.Use+" <TARGET_VERSION>", d.Example+" 0.1"
			d.Check = func(args []string) error {
				if args[0] == "" {
					return app.BadArgs("the target version is empty")
				}
				return nil
			}
		}
		return d
	}
	cmd := a.Family("downgrade", "Downgrade the cluster",
		to("validate", "Check whether the cluster can be downgraded", 1, clientv3.DowngradeValidate),
		to("enable", "Start a downgrade", 1, clientv3.DowngradeEnable),
		to("cancel", "Cancel the current downgrade", 0, clientv3.DowngradeCancel))
	cmd.Long = `Return the cluster to the version of an earlier release, or keep it at its current
version while members are upgraded, until the downgrade is canceled.`
	return cmd
}

func (a commands) alarmCommand() *cobra.Command {
	return a.Family("alarm", "Manage alarms", app.Command{
		Use: "disarm", Short: "Disarm all alarms", Example: "alarm disarm",
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			resp, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
			return showAlarm(resp), err
		},
	}, app.Command{
		Use: "list", Short: "List alarms", Example: "alarm list",
		Call: func(ctx context.Context, c *clientv3.Client, _ []string) (app.Answer, error) {
			resp, err := c.AlarmList(ctx)
			return showAlarm(resp), err
		},
	})
}

func showAlarm(resp *clientv3.AlarmResponse) app.Answer {
	r := (*pb.AlarmResponse)(resp)
	ans := app.EtcdAnswer(r, func(p *app.Page) {
		for _, m := range r.GetAlarms() {
			p.Printf("memberID:%d alarm:%s\n", m.GetMemberID(), m.GetAlarm())
		}
	})
	ans.Fields = func(p *app.Page) {
		p.Header(r.GetHeader())
		for _, m := range r.GetAlarms() {
			p.MemberID("MemberID", m.GetMemberID())
			p.Field("AlarmType", m.GetAlarm())
			p.Printf("\n")
		}
	}
	return ans
}
