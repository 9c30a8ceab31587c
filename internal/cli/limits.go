package cli

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

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

// limitsGiven returns the limits that flags name.
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

func (a *app) userLimits() command {
	return limitsCommand(command{
		use: "limits <user name>", short: "Set or list the limits of a user",
		long: `With flags, set limits of a user in place of those of its roles. Without flags, list
them, and what the user has.`,
		example: "user limits alice --bytes none",
		min:     1, max: 1, words: []wordList{userWords, noWords},
	}, func(l *pb.Limits, name string) { l.User = name })
}

func (a *app) roleLimits() command {
	return limitsCommand(command{
		use: "limits <role name>", short: "Set or list the limits of users with a role",
		long: `With flags, set limits of each user, and of each other principal, with the role. If a
principal has several roles, the largest limit counts. Without flags, list them.`,
		example: "role limits app --leases 100 --bytes 1000000",
		min:     1, max: 1, words: []wordList{roleWords, noWords},
	}, func(l *pb.Limits, name string) { l.Role = name })
}

func (a *app) authLimits() command {
	return limitsCommand(command{
		use: "limits", short: "Set or list limits for all principals",
		long: `With flags, set the limits of all principals whose name and roles have none. Without
flags, list all limits, and what each principal has.`,
		example: "auth limits --leases 1000 --rate 500\nauth limits",
	}, func(*pb.Limits, string) {})
}

// limitsCommand completes a command that sets limits, or lists them if it is given none.
func limitsCommand(d command, of func(l *pb.Limits, name string)) command {
	var fs *pflag.FlagSet
	var given []*pb.Limit
	d.patient = true
	d.flags = func(to *pflag.FlagSet) {
		fs = to
		for r, usage := range limitUsages {
			fs.String(limitName(r), "", "most "+usage+"; none for no limit, unset to set none")
		}
	}
	d.check = func([]string) (err error) {
		given, err = limitsGiven(fs)
		return err
	}
	d.rpc = func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error) {
		l := &pb.Limits{Limits: given}
		of(l, strings.Join(args, ""))
		access := pb.NewAccessServiceClient(c)
		if len(given) == 0 {
			resp, err := access.ListLimits(ctx, &pb.ListLimitsRequest{User: l.User, Role: l.Role})
			return showLimits(resp), err
		}
		resp, err := access.SetLimits(ctx, &pb.SetLimitsRequest{Limits: l})
		return protoAnswer(resp, func(p *page) { p.printf("Limits of %s updated\n", limited(l)) }), err
	}
	return d
}

// limited names the principals that limits apply to.
func limited(l *pb.Limits) string {
	switch {
	case l.User != "":
		return "user " + readable(l.User)
	case l.Role != "":
		return "role " + readable(l.Role)
	default:
		return "everybody"
	}
}

func showLimits(r *pb.ListLimitsResponse) answer {
	var limits, uses [][]string
	for _, l := range r.GetLimits() {
		for _, x := range l.Limits {
			most := strconv.FormatInt(x.Most, 10)
			if x.Most < 0 {
				most = noLimit
			}
			limits = append(limits, []string{limited(l), limitName(x.Resource), most})
		}
	}
	for _, u := range r.GetUses() {
		uses = append(uses, []string{
			readable(u.Principal), strconv.FormatInt(u.Leases, 10),
			strconv.FormatInt(u.LeaseKeys, 10), strconv.FormatInt(u.Bytes, 10),
		})
	}
	ans := alignedAnswer(r, []string{"Of", "What", "Most"}, limits)
	table := ans.simple
	ans.simple = func(p *page) {
		if len(limits) > 0 {
			table(p)
		}
		if len(uses) > 0 {
			p.aligned(append([][]string{{"Principal", "Leases", "Keys on leases", "Bytes"}}, uses...)...)
		}
	}
	return ans
}
