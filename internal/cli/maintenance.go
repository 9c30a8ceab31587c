package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) compactionCommand() *cobra.Command {
	var physical bool
	cmd := &cobra.Command{
		Use:   "compaction [options] <revision>",
		Short: "Compact the history of the store",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("compaction command needs 1 argument")
			}
			rev, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return err
			}
			c, err := a.open()
			if err != nil {
				return err
			}
			defer c.Close()
			ctx, cancel := a.commandContext()
			defer cancel()
			var opts []clientv3.CompactOption
			if physical {
				opts = append(opts, clientv3.WithCompactPhysical())
			}
			if _, err := c.Compact(ctx, rev, opts...); err != nil {
				return err
			}
			a.say("compacted revision %d\n", rev)
			return nil
		},
	}
	cmd.Flags().BoolVar(&physical, "physical", false,
		"'true' to wait for compaction to physically remove all old revisions")
	return cmd
}

func (a *app) defragCommand() *cobra.Command {
	var cluster bool
	cmd := &cobra.Command{
		Use:   "defrag",
		Short: "Defragment the storage of members",
		RunE: func(*cobra.Command, []string) error {
			spec, err := a.prepare()
			if err != nil {
				return err
			}
			eps, err := a.everyEndpoint(spec, cluster)
			if err != nil {
				return err
			}
			failed := false
			for _, ep := range eps {
				err := a.defragment(spec, ep)
				failed = failed || err != nil
			}
			if failed {
				return &exitError{exitFailure, nil}
			}
			return nil
		},
	}
	cmd.PersistentFlags().BoolVar(&cluster, "cluster", false,
		"use all endpoints from the cluster member list")
	return cmd
}

// defragment defragments one member and tells the user how it went.
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
	cmd := family("downgrade", "Downgrade the cluster",
		a.downgradeTo("validate", "Check whether the cluster can be downgraded",
			clientv3.DowngradeValidate),
		a.downgradeTo("enable", "Start a downgrade", clientv3.DowngradeEnable),
		a.downgradeCancel())
	cmd.Long = "Asks the cluster to go back to the version of an earlier release, or to stay at its " +
		"version while members are upgraded, until it is told to cancel that."
	return cmd
}

func (a *app) downgradeTo(name, short string, action clientv3.DowngradeAction) *cobra.Command {
	return &cobra.Command{
		Use:   name + " <TARGET_VERSION>",
		Short: short,
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) < 1:
				return badArgs("TARGET_VERSION not provided")
			case len(args) > 1:
				return badArgs("too many arguments")
			case args[0] == "":
				return badArgs("target version not provided")
			}
			return a.downgrade(name, action, args[0])
		},
	}
}

func (a *app) downgradeCancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel",
		Short: "Cancel the current downgrade",
		RunE: func(*cobra.Command, []string) error {
			return a.downgrade("cancel", clientv3.DowngradeCancel, "")
		},
	}
}

func (a *app) downgrade(name string, action clientv3.DowngradeAction, target string) error {
	return a.ask(func(ctx context.Context, c *clientv3.Client) (answer, error) {
		resp, err := c.Downgrade(ctx, action, target)
		r := (*pb.DowngradeResponse)(resp)
		return answer{json: r, proto: r, simple: func(p *page) {
			p.printf("Downgrade %s success, cluster version %s\n", name, r.GetVersion())
		}}, err
	})
}

func (a *app) alarmCommand() *cobra.Command {
	return family("alarm", "List and disarm alarms", questions(a.ask, alarmQuestions)...)
}

var alarmQuestions = []question{{
	use: "disarm", short: "Disarm all alarms",
	refusal: "alarm disarm command accepts no arguments",
	ask: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
		resp, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		return showAlarm(resp), err
	},
}, {
	use: "list", short: "List all alarms",
	refusal: "alarm list command accepts no arguments",
	ask: func(ctx context.Context, c *clientv3.Client, _ []string) (answer, error) {
		resp, err := c.AlarmList(ctx)
		return showAlarm(resp), err
	},
}}

func showAlarm(resp *clientv3.AlarmResponse) answer {
	r := (*pb.AlarmResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		for _, m := range r.GetAlarms() {
			p.printf("memberID:%d alarm:%s\n", m.GetMemberID(), m.GetAlarm())
		}
	}, fields: func(p *page) {
		p.header(r.GetHeader())
		for _, m := range r.GetAlarms() {
			p.memberID("MemberID", m.GetMemberID())
			p.field("AlarmType", m.GetAlarm())
			p.printf("\n")
		}
	}}
}
