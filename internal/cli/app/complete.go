package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
)

// Limits for completions from the cluster: how many are offered, and how long the user waits for
// them after pressing a key.
const (
	mostWords    = 100
	wordPatience = time.Second
)

// A WordList returns the names in the cluster that begin with the typed text.
type WordList func(ctx context.Context, c *clientv3.Client, typed string) ([]string, error)

// CompleteLive returns a function that completes the arguments of a command by querying the
// cluster.
func (a *App) CompleteLive(lists []WordList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.words(cmd.Root(), lists[min(len(args), len(lists)-1)], typed)
	}
}

// words queries the cluster. It offers nothing if a flag is invalid or a password would have to be
// entered, because messages cannot be shown during completion.
func (a *App) words(
	root *cobra.Command, list WordList, typed string,
) ([]string, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if err := a.Flags.FromEnv(root.PersistentFlags(), a.Getenv); err != nil {
		return nil, nothing
	}
	who := a.Flags.auth
	if who.user != "" && who.password == "" && !strings.Contains(who.user, ":") {
		return nil, nothing
	}
	patience := wordPatience
	if a.Flags.Set.Changed("command-timeout") {
		patience = a.Flags.CommandTimeout
	}
	a.Flags.DialTimeout = min(a.Flags.DialTimeout, patience)
	c, err := a.Open()
	if err != nil {
		return nil, nothing
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := list(ctx, c, typed)
	if err != nil {
		return nil, nothing
	}
	return fitting(found, typed), nothing
}

// fitting returns the words that begin with the typed text and can be typed on a keyboard.
func fitting(words []string, typed string) []string {
	words = slices.DeleteFunc(words, func(w string) bool {
		return w == "" || !strings.HasPrefix(w, typed) || Readable(w) != w
	})
	return words[:min(len(words), mostWords)]
}

// NoWords completes nothing.
func NoWords(context.Context, *clientv3.Client, string) ([]string, error) { return nil, nil }

// KeyWords completes keys.
func KeyWords(ctx context.Context, c *clientv3.Client, typed string) ([]string, error) {
	r, err := c.Get(ctx, typed, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithLimit(mostWords), clientv3.WithSerializable())
	if err != nil {
		return nil, err
	}
	var out []string
	for _, kv := range r.Kvs {
		out = append(out, string(kv.Key))
	}
	return out, nil
}

// LeaseWords returns lease names. If no name matches, or if the server is etcd, it returns lease
// IDs.
func LeaseWords(ctx context.Context, c *clientv3.Client, typed string) ([]string, error) {
	prefix := strings.TrimPrefix(typed, "name:")
	var out []string
	named, err := NativeLeases(c).List(ctx, &pb.ListRequest{NamePrefix: prefix, PageSize: mostWords})
	if err == nil {
		for _, l := range named.Leases {
			name := LeaseArg(l.Name)
			if prefix != typed {
				name = "name:" + l.Name
			}
			if l.Name != "" {
				out = append(out, name)
			}
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	all, err := c.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range all.Leases {
		out = append(out, fmt.Sprintf("%016x", int64(l.ID)))
	}
	return out, nil
}

// MemberWords completes member IDs.
func MemberWords(ctx context.Context, c *clientv3.Client, _ string) ([]string, error) {
	r, err := c.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range r.Members {
		out = append(out, fmt.Sprintf("%x", m.ID))
	}
	return out, nil
}

// UserWords completes user names.
func UserWords(ctx context.Context, c *clientv3.Client, _ string) ([]string, error) {
	r, err := c.UserList(ctx)
	if err != nil {
		return nil, err
	}
	return r.Users, nil
}

// RoleWords completes role names.
func RoleWords(ctx context.Context, c *clientv3.Client, _ string) ([]string, error) {
	r, err := c.RoleList(ctx)
	if err != nil {
		return nil, err
	}
	return r.Roles, nil
}

// CompleteFlag sets the completions for a flag.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	CompleteBy(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteBy sets the completion function for a flag.
func CompleteBy(cmd *cobra.Command, flag string, list cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, list); err != nil {
		panic("cli: completion of a flag that does not exist: " + flag)
	}
}
