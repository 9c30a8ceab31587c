package cli

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
)

// limitUsages say what the flag of each resource limits.
var limitUsages = map[pb.Limit_Resource]string{
	pb.Limit_RESOURCE_LEASES:     "leases that belong to it",
	pb.Limit_RESOURCE_LEASE_KEYS: "keys on leases that it wrote last",
	pb.Limit_RESOURCE_BYTES:      "bytes of its leases and of what it wrote, with its history",
	pb.Limit_RESOURCE_RATE:       "requests a second at each member, except renewals",
}

// limitName is the name of a resource, and of its flag: lease-keys for RESOURCE_LEASE_KEYS.
func limitName(r pb.Limit_Resource) string {
	name := strings.TrimPrefix(r.String(), "RESOURCE_")
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// Values of flags that are no number.
const (
	noLimit    = "none"
	unsetLimit = "unset"
)

func registerLimits(fs *pflag.FlagSet) {
	for r, usage := range limitUsages {
		fs.String(limitName(r), "", "most "+usage+"; none for no limit, unset to set none")
	}
}

// limitsGiven returns the limits that flags name.
func limitsGiven(fs *pflag.FlagSet) (out []*pb.Limit, err error) {
	for _, r := range slices.Sorted(maps.Keys(limitUsages)) {
		name := limitName(r)
		if !fs.Changed(name) {
			continue
		}
		text, err := fs.GetString(name)
		if err != nil {
			return nil, err
		}
		l := &pb.Limit{Resource: r}
		switch n, err := strconv.ParseInt(text, 10, 64); {
		case text == noLimit:
			l.Most = -1
		case text == unsetLimit:
		case err != nil || n < 1:
			return nil, badArgs("--%s is a number above 0, none, or unset, not %q", name, text)
		default:
			l.Most = n
		}
		out = append(out, l)
	}
	return out, nil
}

func (a *app) userLimits() *cobra.Command {
	return a.limitsCommand(1, &cobra.Command{
		Use:   "limits [options] <user name>",
		Short: "Limit what a user may have, or list its limits and what it has",
		Long: "With options, sets limits of a user in place of those of its roles. Without, lists " +
			"them, and what the\nuser has.",
	}, func(l *pb.Limits, name string) { l.User = name })
}

func (a *app) roleLimits() *cobra.Command {
	return a.limitsCommand(1, &cobra.Command{
		Use:   "limits [options] <role name>",
		Short: "Limit what each user with a role may have, or list the limits",
		Long: "With options, sets limits of each user, and of everybody else, that has the role. Of " +
			"several roles the\nlargest limit counts. Without options, lists them.",
	}, func(l *pb.Limits, name string) { l.Role = name })
}

func (a *app) authLimits() *cobra.Command {
	return a.limitsCommand(0, &cobra.Command{
		Use:   "limits [options]",
		Short: "Limit what every user may have, or list all limits and usage",
		Long: "With options, sets the limits of everybody whose name and roles have none. Without, " +
			"lists all limits\nthat are set, and who has how much.",
	}, func(*pb.Limits, string) {})
}

// limitsCommand completes a command that sets limits, or lists them if it is given none.
func (a *app) limitsCommand(
	names int, cmd *cobra.Command, of func(l *pb.Limits, name string),
) *cobra.Command {
	registerLimits(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != names {
			return badArgs("%s takes %d arguments, not %d", cmd.CommandPath(), names, len(args))
		}
		l := &pb.Limits{}
		of(l, strings.Join(args, ""))
		list, err := limitsGiven(cmd.Flags())
		if err != nil {
			return err
		}
		if l.Limits = list; len(list) == 0 {
			return a.listLimits(l.User, l.Role)
		}
		return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
			resp, err := namesOf(c).SetLimits(ctx, &pb.SetLimitsRequest{Limits: l})
			if err != nil {
				return answer{}, nativeError(err)
			}
			return answer{json: protoJSON(resp), proto: resp, simple: func(p *page) {
				p.printf("Limits of %s updated\n", whoseLimits(l))
			}}, nil
		})
	}
	return cmd
}

func (a *app) listLimits(user, role string) error {
	return a.askPatiently(func(ctx context.Context, c *clientv3.Client) (answer, error) {
		resp, err := namesOf(c).ListLimits(ctx, &pb.ListLimitsRequest{User: user, Role: role})
		if err != nil {
			return answer{}, nativeError(err)
		}
		return showLimits(resp), nil
	})
}

func whoseLimits(l *pb.Limits) string {
	switch {
	case l.User != "":
		return "user " + readable(l.User)
	case l.Role != "":
		return "role " + readable(l.Role)
	default:
		return "everybody"
	}
}

var (
	limitsHead = []string{"Of", "What", "Most"}
	usesHead   = []string{"Principal", "Leases", "Keys on leases", "Bytes"}
)

func limitRows(r *pb.ListLimitsResponse) (rows [][]string) {
	for _, l := range r.Limits {
		for _, x := range l.Limits {
			most := strconv.FormatInt(x.Most, 10)
			if x.Most < 0 {
				most = noLimit
			}
			rows = append(rows, []string{whoseLimits(l), limitName(x.Resource), most})
		}
	}
	return rows
}

func useRows(r *pb.ListLimitsResponse) (rows [][]string) {
	for _, u := range r.Uses {
		rows = append(rows, []string{
			readable(u.Principal), strconv.FormatInt(u.Leases, 10),
			strconv.FormatInt(u.LeaseKeys, 10), strconv.FormatInt(u.Bytes, 10),
		})
	}
	return rows
}

func showLimits(r *pb.ListLimitsResponse) answer {
	return answer{json: protoJSON(r), proto: r, simple: func(p *page) {
		if rows := limitRows(r); len(rows) > 0 {
			p.aligned(append([][]string{limitsHead}, rows...)...)
		}
		if rows := useRows(r); len(rows) > 0 {
			p.aligned(append([][]string{usesHead}, rows...)...)
		}
	}, table: func() ([]string, [][]string) { return limitsHead, limitRows(r) }}
}
