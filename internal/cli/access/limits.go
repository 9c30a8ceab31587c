package access

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

// limitUsages contains the usage text of the flag for each resource.
var limitUsages = map[pb.Limit_Resource]string{
	pb.Limit_RESOURCE_LEASES:     "number of leases that belong to the principal",
	pb.Limit_RESOURCE_LEASE_KEYS: "number of keys on leases that the principal wrote last",
	pb.Limit_RESOURCE_BYTES:      "bytes of the principal's leases and writes, including history",
	pb.Limit_RESOURCE_RATE:       "requests per second at each member, except renewals",
}

// limitName returns the name of a resource and its flag, such as lease-keys for
// RESOURCE_LEASE_KEYS.
func limitName(r pb.Limit_Resource) string {
	name := strings.TrimPrefix(r.String(), "RESOURCE_")
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// Non-numeric flag values.
const (
	noLimit    = "none"
	unsetLimit = "unset"
)

// limitsGiven returns the limits set by flags.
func limitsGiven(fs *pflag.FlagSet) (out []*pb.Limit, err error) {
	for _, r := range slices.Sorted(maps.Keys(limitUsages)) {
		name := limitName(r)
		if !fs.Changed(name) {
			continue
		}
		text := fs.Lookup(name).Value.String()
		l := &pb.Limit{Resource: r}
		switch n, err := strconv.ParseInt(text, 10, 64); {
		case text == noLimit:
			l.Max = -1
		case text == unsetLimit:
		case err != nil || n < 1:
			return nil, app.BadArgs("--%s must be a number above 0, none, or unset, not %q", name, text)
		default:
			l.Max = n
		}
		out = append(out, l)
	}
	return out, nil
}

func (a commands) userLimits() app.Command {
	return limitsCommand(app.Command{
		Use: "limits <user name>", Short: "Set or list the limits of a user",
		Long: `With flags, set limits for a user, which override those of its roles. Without flags,
list the limits and the user's usage.`,
		Example: "user limits alice --bytes none",
		Min:     1, Max: 1, Words: []app.WordList{app.UserWords, app.NoWords},
	}, func(l *pb.Limits, name string) { l.User = name })
}

func (a commands) roleLimits() app.Command {
	return limitsCommand(app.Command{
		Use: "limits <role name>", Short: "Set or list the per-user limits of a role",
		Long: `With flags, set limits for every principal that has the role. If a principal has
several roles, the largest limit applies. Without flags, list the limits.`,
		Example: "role limits app --leases 100 --bytes 1000000",
		Min:     1, Max: 1, Words: []app.WordList{app.RoleWords, app.NoWords},
	}, func(l *pb.Limits, name string) { l.Role = name })
}

func (a commands) authLimits() app.Command {
	return limitsCommand(app.Command{
		Use: "limits", Short: "Set or list limits for all principals",
		Long: `With flags, set the default limits, which apply to principals that have no limits of their
own or from a role. Without flags, list all limits and the usage of each principal.`,
		Example: "auth limits --leases 1000 --rate 500\nauth limits",
	}, func(*pb.Limits, string) {})
}

// limitsCommand completes a command that sets limits or, if no limit flag is given, lists them.
func limitsCommand(d app.Command, of func(l *pb.Limits, name string)) app.Command {
	var fs *pflag.FlagSet
	var given []*pb.Limit
	d.Patient = true
	d.Flags = func(to *pflag.FlagSet) {
		fs = to
		for r, usage := range limitUsages {
			fs.String(limitName(r), "", "maximum "+usage+"; none: unlimited; unset: remove the limit")
		}
	}
	d.Check = func([]string) (err error) {
		given, err = limitsGiven(fs)
		return err
	}
	d.RPC = func(ctx context.Context, c grpc.ClientConnInterface, args []string) (app.Answer, error) {
		l := &pb.Limits{Limits: given}
		of(l, strings.Join(args, ""))
		access := pb.NewAccessServiceClient(c)
		if len(given) == 0 {
			resp, err := access.ListLimits(ctx, &pb.ListLimitsRequest{User: l.User, Role: l.Role})
			return showLimits(resp), err
		}
		resp, err := access.SetLimits(ctx, &pb.SetLimitsRequest{Limits: l})
		return app.ProtoAnswer(resp, func(p *app.Page) {
			p.Printf("Limits of %s updated\n", limited(l))
		}), err
	}
	return d
}

// limited returns the name of the principal, or the group of principals, that limits apply to.
func limited(l *pb.Limits) string {
	switch {
	case l.User != "":
		return "user " + app.Readable(l.User)
	case l.Role != "":
		return "role " + app.Readable(l.Role)
	default:
		return "everybody"
	}
}

func showLimits(r *pb.ListLimitsResponse) app.Answer {
	var limits, uses [][]string
	for _, l := range r.GetLimits() {
		for _, x := range l.Limits {
			most := strconv.FormatInt(x.Max, 10)
			if x.Max < 0 {
				most = noLimit
			}
			limits = append(limits, []string{limited(l), limitName(x.Resource), most})
		}
	}
	for _, u := range r.GetUsages() {
		uses = append(uses, []string{
			app.Readable(u.Principal), strconv.FormatInt(u.Leases, 10),
			strconv.FormatInt(u.LeaseKeys, 10), strconv.FormatInt(u.Bytes, 10),
		})
	}
	ans := app.AlignedAnswer(r, []string{"Of", "What", "Most"}, limits)
	table := ans.Simple
	ans.Simple = func(p *app.Page) {
		if len(limits) > 0 {
			table(p)
		}
		if len(uses) > 0 {
			p.Aligned(append([][]string{{"Principal", "Leases", "Keys on leases", "Bytes"}}, uses...)...)
		}
	}
	return ans
}
