package app

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/client"
)

// A Command describes a command. Exactly one of call, rpc, native and run implements it.
type Command struct {
	Use     string // name and arguments
	Short   string
	Long    string
	Example string // one invocation per line, without "leasehold"

	Min, Max int        // number of arguments; a negative Max means no limit
	Program  programArg // after --
	Words    []WordList // completions by argument; the last one applies to all further arguments
	Flags    func(fs *pflag.FlagSet)
	Check    func(args []string) error // called before anything is sent
	Patient  bool                      // call and rpc have no timeout unless the user sets one

	Call   etcdCall
	RPC    rpcCall
	Native nativeCall
	Run    func(cmd *cobra.Command, args, program []string) error
}

type (
	// An etcdCall makes one etcd API call.
	etcdCall func(ctx context.Context, c *clientv3.Client, args []string) (Answer, error)
	// An rpcCall makes one unary leasehold.v1 call. Its errors are converted by NativeError.
	rpcCall func(ctx context.Context, c grpc.ClientConnInterface, args []string) (Answer, error)
	// A nativeCall uses the leasehold.v1 client.
	nativeCall func(ctx context.Context, c *client.Client, args []string) (Answer, error)
)

// A programArg specifies whether a command accepts or requires a program after "--".
type programArg int

const (
	noProgram programArg = iota
	MayRun               // MayRun is for commands that can run a program.
	MustRun              // MustRun is for commands that require a program.
)

// Make returns the command as a cobra command.
func (a *App) Make(d Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: d.Use, Short: d.Short, Long: d.Long, DisableFlagsInUseLine: true,
	}
	if d.Flags != nil && !strings.Contains(d.Use, "[flags]") {
		name, args, _ := strings.Cut(d.Use, " ")
		cmd.Use = strings.TrimSpace(name + " [flags] " + args)
	}
	if d.Example != "" {
		cmd.Example = "  leasehold " + strings.ReplaceAll(d.Example, "\n", "\n  leasehold ")
	}
	if d.Flags != nil {
		d.Flags(cmd.Flags())
	}
	if d.Words != nil {
		cmd.ValidArgsFunction = a.CompleteLive(d.Words)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var program []string
		if d.Program != noProgram {
			args, program = splitProgram(cmd, args)
		}
		if len(args) < d.Min || d.Max >= 0 && len(args) > d.Max ||
			d.Program == MustRun && program == nil {
			return BadArgs("usage: %s", cmd.UseLine())
		}
		if d.Check != nil {
			if err := d.Check(args); err != nil {
				return err
			}
		}
		return a.do(&d, cmd, args, program)
	}
	return cmd
}

func (a *App) do(d *Command, cmd *cobra.Command, args, program []string) error {
	limit := a.CommandContext
	if d.Patient {
		limit = a.PatientContext
	}
	switch {
	case d.Call != nil:
		return a.Ask(limit, func(ctx context.Context, c *clientv3.Client) (Answer, error) {
			return d.Call(ctx, c, args)
		})
	case d.RPC != nil:
		return a.Ask(limit, func(ctx context.Context, c *clientv3.Client) (Answer, error) {
			ans, err := d.RPC(ctx, c.ActiveConnection(), args)
			return ans, NativeError(err)
		})
	case d.Native != nil:
		return a.CallNative(func(ctx context.Context, c *client.Client) (Answer, error) {
			return d.Native(ctx, c, args)
		})
	}
	return d.Run(cmd, args, program)
}

// Family returns a command with the subcommands in list.
func (a *App) Family(use, short string, list ...Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use + " <subcommand>", Short: short, Args: cobra.ArbitraryArgs, RunE: UnknownCommand,
	}
	for _, d := range list {
		cmd.AddCommand(a.Make(d))
	}
	return cmd
}

// splitProgram separates the program after "--".
func splitProgram(cmd *cobra.Command, args []string) (own, program []string) {
	if n := cmd.ArgsLenAtDash(); n >= 0 && n < len(args) {
		return args[:n], args[n:]
	} else if n >= 0 {
		return args[:n], nil
	}
	return args, nil
}
