package keys

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/internal/subprocess"
)

func (a commands) watchCommand() *cobra.Command {
	var f watchFlags
	var why bool
	return a.Make(app.Command{
		Use:   "watch [key or prefix] [range_end] [--] [exec-command arg1 arg2 ...]",
		Short: "Watch keys or prefixes",
		Long: `Print the events of keys or prefixes.

The key and range_end may also come from the variables LEASEHOLD_WATCH_KEY and
LEASEHOLD_WATCH_RANGE_END (or ETCDCTL_...). A command after '--' runs once for
each event, with ETCD_WATCH_REVISION, ETCD_WATCH_EVENT_TYPE, ETCD_WATCH_KEY and
ETCD_WATCH_VALUE in its environment.

With -i, each line of standard input starts a watch ("watch [options] key ...")
or requests the revision that the watches have reached ("progress").

With --why, the line DELETE is followed by the reason (deleted, expired or revoked), and by the
lease if its end deleted the key. The command gets them in LEASEHOLD_WATCH_WHY and
LEASEHOLD_WATCH_LEASE. JSON output uses the leasehold.v1 format. To see who revoked a lease or whom
it was handed over to, use leasehold lease watch.`,
		Example: "watch config/ --prefix --why\nwatch config/a --rev 1200\n" +
			"watch config/ --prefix -- ./reload.sh",
		Max: -1, Words: []app.WordList{app.KeyWords, app.KeyWords, app.NoWords},
		Flags: func(fs *pflag.FlagSet) {
			f.register(fs)
			fs.BoolVar(&why, "why", false, "print why keys were deleted, and by which lease")
		},
		Run: func(cmd *cobra.Command, args, _ []string) error {
			keys, err := a.watchKeysFromEnv()
			if err != nil {
				return err
			}
			if f.interactive {
				if why {
					return app.BadArgs("--why and --interactive are mutually exclusive")
				}
				return a.watchInteractive(keys)
			}
			w, err := splitWatchArgs(args, cmd.ArgsLenAtDash(), keys)
			if err != nil {
				return app.WithCode(app.ExitBadArgs, err)
			}
			if why {
				return a.watchWithCauses(f, w)
			}
			return a.watch(f, w)
		},
	})
}

// watchKeysFromEnv returns the key and the range end from the environment, if they are set.
func (a commands) watchKeysFromEnv() ([]string, error) {
	key, keyName := a.Variable("WATCH_KEY")
	end, endName := a.Variable("WATCH_RANGE_END")
	switch {
	case key == "" && end == "":
		return nil, nil
	case key == "":
		return nil, app.BadArgs("%s is empty but got %s=%q", keyName, endName, end)
	case end == "":
		return []string{key}, nil
	}
	return []string{key, end}, nil
}

// watch runs one watch until the server or the user ends it.
func (a commands) watch(f watchFlags, w watchArgs) error {
	c, err := a.Open()
	if err != nil {
		return err
	}
	opts, err := f.options(w)
	if err != nil {
		return app.WithCode(app.ExitBadArgs, err)
	}
	go a.ReportLost(c)
	ctx := clientv3.WithRequireLeader(a.Background())
	if err := a.follow(c, c.Watch(ctx, w.keys[0], opts...), w.exec); err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return app.WithCode(app.ExitConnection, err)
	}
	return app.WithCode(app.ExitInterrupted, errors.New("watch is canceled by the server"))
}

// follow prints the events of a watch, and runs the user's command for each event.
func (a commands) follow(c *clientv3.Client, ch clientv3.WatchChan, command []string) error {
	for resp := range ch {
		if resp.Canceled {
			a.Warnf("watch was canceled (%v)\n", resp.Err())
		}
		if resp.IsProgressNotify() {
			a.Say("progress notify: %d\n", resp.Header.GetRevision())
		}
		if err := a.Show(showWatch(&resp)); err != nil {
			return err
		}
		if len(command) == 0 {
			continue
		}
		for _, ev := range resp.Events {
			env := watchEnv(resp.Header.GetRevision(), ev.Type.String(), ev.Kv.Key, ev.Kv.Value)
			if err := a.runForEvent(c.Ctx(), command, env); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a commands) runForEvent(ctx context.Context, command, env []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = slices.Concat(a.Env, env)
	cmd.Stdout, cmd.Stderr = a.Stdout, a.Stderr
	err := subprocess.Start(cmd)
	if err == nil {
		err = subprocess.Wait(cmd)
	}
	if err != nil {
		a.Warnf("command %q error (%v)\n", command, err)
		return app.Reported(app.ExitFailure)
	}
	return nil
}

// watchInteractive starts a watch for each line of standard input.
func (a commands) watchInteractive(envKeys []string) error {
	c, err := a.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	go a.ReportLost(c)
	lines, failed := make(chan string), make(chan error)
	go func() {
		in := bufio.NewReader(a.Stdin)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				failed <- app.BadInput("error reading watch request line: %w", err)
				return
			}
			lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	for {
		select {
		case err := <-failed: // from the reader or any watch
			return err
		case line := <-lines:
			if err := a.watchLine(c, line, envKeys, failed); err != nil {
				return err
			}
		}
	}
}

// watchLine handles one line of an interactive watch. If it starts a watch that fails later, the
// error is sent to failed.
func (a commands) watchLine(
	c *clientv3.Client, line string, envKeys []string, failed chan<- error,
) error {
	words, err := splitWords(line)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		a.Warnf("Invalid command: %s (watch and progress supported)\n", line)
		return nil
	}
	ctx := clientv3.WithRequireLeader(a.Background())
	switch words[0] {
	case "progress":
		return c.RequestProgress(ctx)
	case "watch":
	default:
		a.Warnf("Invalid command %s (only support watch)\n", line)
		return nil
	}
	if len(words) < 2 && len(envKeys) == 0 {
		a.Warnf("Invalid command %s (command type or key is not provided)\n", line)
		return nil
	}
	f, w, err := parseWatchLine(words[1:], envKeys)
	if err != nil {
		return app.WithCode(app.ExitBadArgs, err)
	}
	opts, err := f.options(w)
	if err != nil {
		a.Warnf("Invalid command %s (%v)\n", line, err)
		return nil
	}
	ch := c.Watch(ctx, w.keys[0], opts...)
	go func() {
		if err := a.follow(c, ch, w.exec); err != nil {
			failed <- err
		}
	}()
	return nil
}
