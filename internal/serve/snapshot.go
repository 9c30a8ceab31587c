package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/rewind"
	"leasehold.dev/internal/table"
	"leasehold.dev/internal/version"
	"leasehold.dev/server"
)

// SnapshotCommand returns the commands for files written by "leasehold snapshot save": restore and
// status, as in etcdutl, and dump. They do not need a server.
func SnapshotCommand() *cobra.Command {
	c := &cobra.Command{Use: "snapshot <subcommand>", Short: "Restore and inspect snapshots"}
	c.AddCommand(restoreCommand(), statusCommand(), snapshotDumpCommand())
	return c
}

func restoreCommand() *cobra.Command {
	var f restoreFlags
	var fromEtcd bool
	c := &cobra.Command{
		Use:   "restore <filename> --data-dir {output dir} [options]",
		Short: "Restore a snapshot to a new data directory",
		Long: `Restore a snapshot, written by "leasehold snapshot save", to a new data directory, from
which "leasehold serve" starts the first member of a new cluster.

With --from-etcd, the file is a snapshot written by "etcdctl snapshot save". Keys keep their values,
leases, versions and revisions, and leases keep their IDs and TTLs. Users, roles and the history of
keys are not restored.`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("snapshot restore requires exactly one argument")
			}
			if err := f.complete(c.Flags().Changed); err != nil {
				return err
			}
			restore := restoreFile
			if fromEtcd {
				restore = restoreEtcd
			}
			if err := restore(c.ErrOrStderr(), args[0], f.cfg, f.options); err != nil {
				return err
			}
			printRestored(c.ErrOrStderr(), args[0], f.cfg)
			return nil
		},
	}
	fs := c.Flags()
	f.register(fs)
	fs.BoolVar(&f.options.SkipHash, "skip-hash-check", false,
		"accept a snapshot whose SHA-256 is missing or wrong")
	fs.BoolVar(&fromEtcd, "from-etcd", false, "restore a snapshot of an etcd cluster")
	for _, name := range []string{"wal-dir", "initial-memory-map-size"} {
		fs.String(name, "", "")
		// These calls fail only if the flag does not exist.
		_ = fs.MarkHidden(name)
		_ = fs.MarkDeprecated(name, "it has no effect in leasehold and is ignored")
	}
	return c
}

// restoreFlags are the flags shared by all commands that create a data directory from a backup.
type restoreFlags struct {
	cfg      server.Config
	options  server.RestoreOptions
	revision revisionFlags
}

func (f *restoreFlags) register(fs *pflag.FlagSet) {
	f.cfg = server.DefaultConfig()
	c := &f.cfg
	fs.StringVar(&c.DataDir, "data-dir", "", "path to the output data directory "+
		"(default NAME.leasehold)")
	fs.StringVar(&c.Name, "name", c.Name, "human-readable name for this member")
	addValue(fs, members{&c.Cluster.Initial}, "initial-cluster",
		"members of the new cluster, NAME=URL (default this member alone)")
	addValue(fs, urls{&c.URLs.AdvertisePeer}, "initial-advertise-peer-urls",
		"this member's peer URLs, to advertise to the rest of the cluster")
	fs.StringVar(&c.Cluster.Token, "initial-cluster-token", c.Cluster.Token,
		"token of the new cluster")
	fs.Uint64Var(&f.revision.bump, "bump-revision", 0, "how much to add to the latest revision; "+
		"0 keeps it and the history (default enough to exceed every revision that clients may have "+
		"seen)")
	fs.BoolVar(&f.revision.mark, "mark-compacted", false, "compact at the increased revision, so "+
		"that watches restart (done whenever the revision is increased)")
}

// complete sets defaults, and returns an error if flags contradict each other.
func (f *restoreFlags) complete(given func(name string) bool) error {
	if f.cfg.DataDir == "" {
		f.cfg.DataDir = f.cfg.Name + ".leasehold"
	}
	return f.revision.apply(&f.options, given)
}

// printRestored prints what was restored and what to do next. The addresses are stored in the data,
// so flags given when the member starts do not change them.
func printRestored(w io.Writer, file string, cfg server.Config) {
	urls := listen.JoinURLs(cfg.URLs.AdvertisePeer)
	fmt.Fprintf(w, "restored %s to %s\n", file, cfg.DataDir)
	fmt.Fprintf(w, "It is a single-member cluster that others reach at %s. Start it with\n"+
		"  leasehold serve --name %s --data-dir %s --initial-advertise-peer-urls %s ...\n"+
		"With --backup-to, use a different directory or prefix than the previous cluster.\n",
		urls, cfg.Name, cfg.DataDir, urls)
	if !slices.ContainsFunc(cfg.URLs.AdvertisePeer, func(u url.URL) bool { return !isLoopback(u) }) {
		fmt.Fprintf(w, "Members on other machines cannot reach it there. To let them join, remove "+
			"%s\nand restore again with --initial-advertise-peer-urls.\n", cfg.DataDir)
	}
}

// revisionFlags are etcdutl's flags that concern the revision.
type revisionFlags struct {
	bump uint64
	mark bool
}

// apply sets the options. If no flags are given, the options are the safe ones.
func (r *revisionFlags) apply(o *server.RestoreOptions, given func(name string) bool) error {
	o.BumpRevision = int64(r.bump)
	o.KeepRevision = given("bump-revision") && r.bump == 0
	switch {
	case r.bump > math.MaxInt64:
		return badArgs("--bump-revision is out of range")
	case given("mark-compacted") && r.mark == o.KeepRevision:
		return badArgs("--mark-compacted is required if the revision is increased, and " +
			"not allowed with --bump-revision=0, which keeps the revision and the history")
	}
	return nil
}

// pflagValue adapts a flag.Value to pflag.
type pflagValue struct {
	value interface {
		String() string
		Set(string) error
	}
}

func (v pflagValue) String() string     { return v.value.String() }
func (v pflagValue) Set(s string) error { return v.value.Set(s) }
func (v pflagValue) Type() string       { return "string" }

func addValue(fs *pflag.FlagSet, v interface {
	String() string
	Set(string) error
}, name, usage string,
) {
	fs.Var(pflagValue{v}, name, usage)
}

func restoreFile(_ io.Writer, path string, cfg server.Config, o server.RestoreOptions) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return notRestored(path, server.Restore(f, cfg, o), cfg)
}

// restoreEtcd restores an etcd snapshot, and prints to w what it omitted.
func restoreEtcd(w io.Writer, path string, cfg server.Config, o server.RestoreOptions) error {
	sum, err := rewind.RestoreEtcd(path, cfg, o)
	if err != nil {
		return notRestored(path, err, cfg)
	}
	fmt.Fprintf(w, "%d keys and %d leases, as of etcd's revision %d\n",
		sum.Keys, sum.Leases, sum.Revision)
	if sum.Orphans > 0 {
		fmt.Fprintf(w, "%d keys refer to leases that do not exist; they were restored without a lease\n",
			sum.Orphans)
	}
	if sum.Users > 0 {
		fmt.Fprintf(w, "not restored: users (%d) and roles; access control is off until you create them "+
			"again\n", sum.Users)
	}
	return nil
}

// notRestored explains why a backup could not be restored.
func notRestored(from string, err error, cfg server.Config) error {
	switch {
	case errors.Is(err, server.ErrBackup), errors.Is(err, encoding.ErrNewer):
		return unreadable(from, err)
	case errors.Is(err, server.ErrNotEmpty):
		return fmt.Errorf("data-dir %q not empty or could not be read", cfg.DataDir)
	}
	return err
}

// unreadable explains why a backup cannot be read. If another release can read the backup, the
// explanation says so.
func unreadable(path string, err error) error {
	if errors.Is(err, encoding.ErrNewer) {
		err = fmt.Errorf("a newer release wrote this backup: restore it with that release or a "+
			"later one (this is release %s, for cluster versions %v): "+
			"%w", version.Version, version.Spoken, err)
	}
	return withExitCode(fmt.Errorf("%s: %w", path, err))
}

func statusCommand() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "status <filename>",
		Short: "Print the status of a snapshot file",
		Long: `Check every byte of a snapshot file and its SHA-256, and print its status.

With --write-out simple, the fields are hash, revision, keys, size, version, leases, compacted
revision, members, the cluster's ID, and the cluster version. The hash covers the whole state:
snapshots with equal hashes have the same content. The number of keys does not include their
history. "leasehold snapshot dump" prints everything.`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return badArgs("snapshot status requires exactly one argument")
			}
			show, ok := statusFormats[format]
			if !ok {
				return badFormat(format)
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := server.BackupStatus(f)
			if err != nil {
				return unreadable(args[0], err)
			}
			return show(c.OutOrStdout(), info)
		},
	}
	c.Flags().StringVarP(&format, "write-out", "w", "simple",
		"set the output format (fields, json, simple, table)")
	return c
}

// statusFormats maps the values of --write-out for status. The values that etcdutl also accepts
// come first.
var statusFormats = map[string]func(io.Writer, server.BackupInfo) error{
	"simple": func(w io.Writer, i server.BackupInfo) error {
		_, err := fmt.Fprintf(w, "%x, %d, %d, %s, %s, %d, %d, %d, %016x, %s\n",
			i.Hash, i.Revision, i.Keys, humanize.Bytes(uint64(i.Bytes)), i.Version, i.Leases, i.Compacted,
			i.Members, i.Cluster, i.ClusterVersion)
		return err
	},
	"fields": func(w io.Writer, i server.BackupInfo) error {
		_, err := fmt.Fprintf(w, "\"Hash\" : %d\n\"Revision\" : %d\n\"Keys\" : %d\n\"Size\" : %d\n"+
			"\"Version\" : %s\n\"Leases\" : %d\n\"Compacted\" : %d\n\"Members\" : %d\n"+
			"\"Cluster\" : %016x\n\"ClusterVersion\" : %s\n",
			i.Hash, i.Revision, i.Keys, i.Bytes, i.Version, i.Leases, i.Compacted, i.Members, i.Cluster,
			i.ClusterVersion)
		return err
	},
	"json": func(w io.Writer, i server.BackupInfo) error {
		return json.NewEncoder(w).Encode(struct {
			Hash         uint32 `json:"hash"`
			Revision     int64  `json:"revision"`
			TotalKey     int    `json:"totalKey"`
			TotalSize    int64  `json:"totalSize"`
			Version      string `json:"version"`
			TotalLeases  int    `json:"totalLeases"`
			Compacted    int64  `json:"compactedRevision"`
			TotalMembers int    `json:"totalMembers"`
			Cluster      string `json:"cluster"`
			Spoken       string `json:"clusterVersion"`
		}{
			i.Hash, i.Revision, i.Keys, i.Bytes, i.Version, i.Leases, i.Compacted, i.Members,
			fmt.Sprintf("%016x", i.Cluster), i.ClusterVersion,
		})
	},
	"table": func(w io.Writer, i server.BackupInfo) error {
		return table.Write(w, []string{
			"hash", "revision", "total keys", "total size", "version", "total leases", "compacted",
			"members", "cluster", "cluster version",
		}, [][]string{{
			fmt.Sprintf("%x", i.Hash), fmt.Sprint(i.Revision), fmt.Sprint(i.Keys),
			humanize.Bytes(uint64(i.Bytes)), i.Version, fmt.Sprint(i.Leases), fmt.Sprint(i.Compacted),
			fmt.Sprint(i.Members), fmt.Sprintf("%016x", i.Cluster), i.ClusterVersion,
		}})
	},
}
