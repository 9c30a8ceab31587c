package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"leasehold.dev/internal/rewind"
	"leasehold.dev/internal/table"
)

// BackupCommand returns the commands for the backups that members write with --backup-to. These
// commands do not need a server.
func BackupCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "backup <subcommand>", GroupID: "maintenance",
		Short: "List, check and restore the backups that members make",
		Long: `Read the backups that members write with --backup-to: full backups, and a copy of the log
after each. Together they can restore the state at any time since the oldest full backup. No member
needs to be running.`,
	}
	c.AddCommand(backupListCommand(), backupVerifyCommand(), backupRestoreCommand())
	return c
}

// backupFrom contains the flags that specify where the backups are.
type backupFrom struct{ to, credentials string }

// command finishes setting up a command that reads backups with do.
func (f *backupFrom) command(
	c *cobra.Command, do func(context.Context, *rewind.Backups) error,
) *cobra.Command {
	fs := c.Flags()
	fs.StringVar(&f.to, "from", "", "location of the backups, as in the members' --backup-to")
	fs.StringVar(&f.credentials, "credentials-file", "",
		"file with the credentials for a bucket (default AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "+
			"or the role of the machine in AWS)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 || f.to == "" {
			return badArgs("backup %s takes no arguments and needs --from TARGET", c.Name())
		}
		b, err := rewind.Open(f.to, f.credentials)
		if err != nil {
			return badArgs("--from: %w", err)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return do(ctx, b)
	}
	return c
}

func backupListCommand() *cobra.Command {
	var from backupFrom
	var format string
	c := &cobra.Command{
		Use: "list --from TARGET", Short: "List the backups and what they can restore",
		Long: `List the full backups, oldest first, each with the latest revision and time
that can be restored from it with the copied log. This reads only names; "leasehold backup verify"
reads everything.`,
		Example: "  leasehold backup list --from /mnt/backups\n" +
			"  leasehold backup list --from 's3://bucket/prod?endpoint=https://s3.example:9000' -w json",
	}
	c.Flags().StringVarP(&format, "write-out", "w", "table", "set the output format (json, table)")
	return from.command(c, func(ctx context.Context, b *rewind.Backups) error {
		if format != "table" && format != "simple" && format != "json" {
			return badFormat(format)
		}
		list, err := b.List(ctx)
		if err != nil {
			return withExitCode(err)
		}
		if format == "json" {
			return writeBackupsJSON(c.OutOrStdout(), &list)
		}
		return writeBackups(c.OutOrStdout(), &list)
	})
}

func writeBackups(w io.Writer, list *rewind.List) error {
	var rows [][]string
	for _, f := range list.Fulls {
		rows = append(rows, []string{
			rewind.TimeText(f.Time), fmt.Sprint(f.Revision), rewind.TimeText(f.ToTime),
			fmt.Sprint(f.ToRevision), humanize.Bytes(uint64(f.Bytes)), f.Name,
		})
	}
	err := table.Write(w, []string{
		"time", "revision", "log until", "to revision", "size", "name",
	}, rows)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Backups of %v: %d full, %d log pieces, %s.\n",
		list.History, len(list.Fulls), list.Pieces, humanize.Bytes(uint64(list.Bytes)))
	return err
}

func writeBackupsJSON(w io.Writer, list *rewind.List) error {
	type full struct {
		Name       string `json:"name"`
		Bytes      int64  `json:"bytes"`
		Revision   int64  `json:"revision"`
		Time       string `json:"time"`
		ToRevision int64  `json:"toRevision"`
		ToTime     string `json:"toTime"`
	}
	fulls := []full{}
	for _, f := range list.Fulls {
		fulls = append(fulls, full{
			f.Name, f.Bytes, f.Revision, rewind.TimeText(f.Time), f.ToRevision, rewind.TimeText(f.ToTime),
		})
	}
	restore := ""
	if list.Restore != 0 {
		restore = fmt.Sprintf("%016x", list.Restore)
	}
	return json.NewEncoder(w).Encode(struct {
		Cluster string `json:"cluster"`
		Restore string `json:"restore,omitempty"`
		Fulls   []full `json:"fulls"`
		Pieces  int    `json:"logPieces"`
		Bytes   int64  `json:"bytes"`
	}{fmt.Sprintf("%016x", list.Cluster), restore, fulls, list.Pieces, list.Bytes})
}

func backupVerifyCommand() *cobra.Command {
	var from backupFrom
	var all bool
	c := &cobra.Command{
		Use: "verify --from TARGET", Short: "Read all backups and list the damaged ones",
		Long: `Read every backup to its end, and check its SHA-256, its records, and that the log has
no gap between two full backups. If anything is wrong, print it and exit with 1. This needs enough
memory for the whole state.`,
		Example: "  leasehold backup verify --from /mnt/backups",
	}
	c.Flags().BoolVarP(&all, "verbose", "v", false, "list intact backups too")
	return from.command(c, func(ctx context.Context, b *rewind.Backups) error {
		good := 0
		bad, err := b.Verify(ctx, func(name string, err error) {
			if err == nil {
				good++
			}
			if err != nil {
				fmt.Fprintf(c.OutOrStdout(), "bad  %s: %v\n", name, err)
			} else if all {
				fmt.Fprintf(c.OutOrStdout(), "good %s\n", name)
			}
		})
		if err != nil {
			return withExitCode(err)
		}
		fmt.Fprintf(c.OutOrStdout(), "%d good, %d bad\n", good, bad)
		if bad > 0 {
			return fmt.Errorf("%d of the backups are damaged or incomplete", bad)
		}
		return nil
	})
}

func backupRestoreCommand() *cobra.Command {
	var from backupFrom
	var f restoreFlags
	var revision, at string
	c := &cobra.Command{
		Use:   "restore --from TARGET --data-dir {output dir} [options]",
		Short: "Restore the newest or an earlier state to a new data directory",
		Long: `Restore the newest state, or the state as of a revision or a time, to a new data directory,
from which "leasehold serve" starts the first member of a new cluster. This takes the newest full
backup before that point, and the copied log up to it. Times are those of the member that copied the
log, accurate to --backup-log-interval.`,
		Example: "  leasehold backup restore --from /mnt/backups --data-dir /var/lib/leasehold\n" +
			"  leasehold backup restore --from /mnt/backups --to-time 15m --data-dir DIR\n" +
			"  leasehold backup restore --from /mnt/backups --data-dir DIR " +
			"--to-time 2026-01-31T12:00:00Z\n" +
			"  leasehold backup restore --from /mnt/backups --to-revision 4711 --data-dir DIR",
	}
	fs := c.Flags()
	f.register(fs)
	fs.StringVar(&revision, "to-revision", "", "last revision to restore")
	fs.StringVar(&at, "to-time", "", "time up to which to restore, or how long ago it was")
	return from.command(c, func(ctx context.Context, b *rewind.Backups) error {
		to, err := restorePoint(revision, at)
		if err == nil {
			err = f.complete(c.Flags().Changed)
		}
		if err != nil {
			return err
		}
		w := c.ErrOrStderr()
		done, err := b.Restore(ctx, to, f.cfg, f.options, func(line string) {
			fmt.Fprintln(w, "warning: "+line)
		})
		if err != nil {
			return notRestored(from.to, err, f.cfg)
		}
		fmt.Fprintf(w, "%s, and %d log entries after it: revision %d, %s\n", done.Full,
			done.Entries, done.Revision, rewind.TimeText(done.Time))
		printRestored(w, from.to, f.cfg)
		return nil
	})
}

// restorePoint parses the moment to restore to.
func restorePoint(revision, at string) (to rewind.Moment, err error) {
	switch {
	case revision != "" && at != "":
		return to, badArgs("--to-revision and --to-time are mutually exclusive")
	case revision != "":
		if to.Revision, err = strconv.ParseInt(revision, 10, 64); err != nil || to.Revision < 1 {
			return to, badArgs("--to-revision: %q is not a revision; use a number from 1", revision)
		}
	case at != "":
		if to.Time, err = rewind.ParseTime(at, time.Now()); err != nil {
			return to, badArgs("--to-time: %w", err)
		}
	}
	return to, nil
}
