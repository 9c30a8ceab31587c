package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/client"
)

// A command describes a command of the command line. One of call, rpc, native and run does its
// work.
type command struct {
	use     string // the name and the arguments
	short   string
	long    string
	example string // a call a line, without "leasehold"

	min, max int        // number of arguments; any number if max is below 0
	program  programArg // after --
	words    []wordList // completions of the arguments; the last is for all further ones
	flags    func(fs *pflag.FlagSet)
	check    func(args []string) error // before anything is sent
	patient  bool                      // call and rpc have no time limit unless the user sets one

	call   etcdCall
	rpc    rpcCall
	native nativeCall
	run    func(cmd *cobra.Command, args, program []string) error
}

type (
	// An etcdCall makes one call of etcd's API.
	etcdCall func(ctx context.Context, c *clientv3.Client, args []string) (answer, error)
	// An rpcCall makes one unary call of leasehold.v1. See nativeError for what becomes of its
	// errors.
	rpcCall func(ctx context.Context, c grpc.ClientConnInterface, args []string) (answer, error)
	// A nativeCall uses the client of leasehold.v1.
	nativeCall func(ctx context.Context, c *client.Client, args []string) (answer, error)
)

// A programArg says whether a command runs a program, given after "--".
type programArg int

const (
	noProgram programArg = iota
	mayRun
	mustRun
)

// make returns the command for the library.
func (a *app) make(d command) *cobra.Command {
	cmd := &cobra.Command{
		Use: d.use, Short: d.short, Long: d.long, DisableFlagsInUseLine: true,
	}
	if d.flags != nil && !strings.Contains(d.use, "[flags]") {
		name, args, _ := strings.Cut(d.use, " ")
		cmd.Use = strings.TrimSpace(name + " [flags] " + args)
	}
	if d.example != "" {
		cmd.Example = "  leasehold " + strings.ReplaceAll(d.example, "\n", "\n  leasehold ")
	}
	if d.flags != nil {
		d.flags(cmd.Flags())
	}
	if d.words != nil {
		cmd.ValidArgsFunction = a.completeLive(d.words)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var program []string
		if d.program != noProgram {
			args, program = splitProgram(cmd, args)
		}
		if len(args) < d.min || d.max >= 0 && len(args) > d.max ||
			d.program == mustRun && program == nil {
			return badArgs("usage: %s", cmd.UseLine())
		}
		if d.check != nil {
			if err := d.check(args); err != nil {
				return err
			}
		}
		return a.do(&d, cmd, args, program)
	}
	return cmd
}

func (a *app) do(d *command, cmd *cobra.Command, args, program []string) error {
	limit := a.commandContext
	if d.patient {
		limit = a.patientContext
	}
	switch {
	case d.call != nil:
		return a.ask(limit, func(ctx context.Context, c *clientv3.Client) (answer, error) {
			return d.call(ctx, c, args)
		})
	case d.rpc != nil:
		return a.ask(limit, func(ctx context.Context, c *clientv3.Client) (answer, error) {
			ans, err := d.rpc(ctx, c.ActiveConnection(), args)
			return ans, nativeError(err)
		})
	case d.native != nil:
		return a.callNative(func(ctx context.Context, c *client.Client) (answer, error) {
			return d.native(ctx, c, args)
		})
	}
	return d.run(cmd, args, program)
}

// family returns a command whose subcommands are described by list.
func (a *app) family(use, short string, list ...command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " <subcommand>", Short: short, Args: cobra.ArbitraryArgs, RunE: unknownCommand,
	}
	for _, d := range list {
		cmd.AddCommand(a.make(d))
	}
	return cmd
}

// splitProgram splits off the program that comes after "--".
func splitProgram(cmd *cobra.Command, args []string) (own, program []string) {
	if n := cmd.ArgsLenAtDash(); n >= 0 && n < len(args) {
		return args[:n], args[n:]
	} else if n >= 0 {
		return args[:n], nil
	}
	return args, nil
}
