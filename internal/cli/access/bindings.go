package access

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

// boundAt holds the bindings of the member at an endpoint.
type boundAt struct {
	Endpoint string                   `json:"endpoint"`
	Bindings json.RawMessage          `json:"bindings"`
	decoded  *pb.ListBindingsResponse // Bindings after decoding
}

func (a commands) authBindings() app.Command {
	var cluster bool
	return app.Command{
		Use: "bindings", Short: "List the bindings of external identities to users and roles",
		Long: `List the issuers and bindings of --auth-config in effect at each endpoint and, if the
current file was rejected, the reason. Each member reads its own file; equal digests mean equal
files.`,
		Example: "auth bindings --cluster --user root",
		Flags:   func(fs *pflag.FlagSet) { app.ClusterFlag(fs, &cluster) },
		Run: func(*cobra.Command, []string, []string) error {
			var list []boundAt
			failure, err := a.EachEndpoint(cluster, "bindings",
				func(ctx context.Context, c *clientv3.Client, ep string) error {
					r, err := pb.NewAccessServiceClient(c.ActiveConnection()).ListBindings(ctx,
						&pb.ListBindingsRequest{})
					if err != nil {
						return app.NativeError(err)
					}
					list = append(list, boundAt{ep, app.ProtoJSON(r), r})
					return nil
				})
			if err == nil && len(list) > 0 {
				err = a.Show(showBindings(list))
			}
			if err != nil {
				return err
			}
			if !allEqual(list) {
				a.Warnf("The members have different bindings: put the same file on each of them\n")
			}
			if failure != nil {
				return app.Reported(app.ExitConnection)
			}
			return nil
		},
	}
}

// allEqual reports whether all members have the same bindings.
func allEqual(list []boundAt) bool {
	return !slices.ContainsFunc(list, func(b boundAt) bool {
		return b.decoded.Sha256 != list[0].decoded.Sha256
	})
}

var bindingsHead = []string{
	"Endpoint", "Member", "File", "Digest", "Loaded", "Issuers", "Bindings", "Refused",
}

func bindingsRow(b boundAt) []string {
	r := b.decoded
	row := []string{b.Endpoint, fmt.Sprintf("%x", r.Header.GetMemberId()), "none"}
	if r.File != "" {
		row = append(row[:2], r.File, r.Sha256[:min(12, len(r.Sha256))],
			time.UnixMilli(r.LoadedUnixMs).UTC().Format(time.RFC3339),
			strconv.Itoa(len(r.Issuers)), strconv.Itoa(len(r.Bindings)), r.LoadError)
	}
	return app.ReadableAll(row)
}

// ruleRows returns one row per issuer and binding.
func ruleRows(r *pb.ListBindingsResponse) (rows [][]string) {
	for _, s := range r.Issuers {
		rows = append(rows, app.ReadableAll([]string{
			"tokens of " + s.Url, "for " + strings.Join(s.Audiences, ", "),
			"belong to issuer " + s.Name + ", named by claim " + s.NameClaim,
		}))
	}
	for _, b := range r.Bindings {
		who, is := b.Spiffe, "is user "+b.User
		switch {
		case b.Dns != "":
			who = "dns:" + b.Dns
		case b.Issuer != "":
			who = b.Issuer + ":*"
		}
		if b.User == "" {
			is = "has " + strings.Join(b.Roles, ", ")
		}
		var claims []string
		for k, v := range b.Claims {
			claims = append(claims, k+"="+v)
		}
		slices.Sort(claims)
		rows = append(rows, app.ReadableAll([]string{who, strings.Join(claims, ", "), is}))
	}
	return rows
}

func showBindings(list []boundAt) app.Answer {
	var rows [][]string
	for _, b := range list {
		rows = append(rows, bindingsRow(b))
	}
	return app.Answer{JSON: list, Simple: func(p *app.Page) {
		p.Aligned(append([][]string{bindingsHead}, rows...)...)
		shown := map[string]bool{"": true} // digest of a member without a bindings file
		for _, b := range list {
			if sum := b.decoded.Sha256; !shown[sum] {
				shown[sum] = true
				p.Printf("\nDigest %s\n", app.Readable(sum))
				p.Aligned(ruleRows(b.decoded)...)
			}
		}
	}, Table: func() ([]string, [][]string) { return bindingsHead, rows }}
}
