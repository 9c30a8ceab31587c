package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/endpoint"
	"leasehold.dev/server"
)

// InitCommand returns the command "leasehold init", which founds a cluster without running it.
func InitCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "init [flags of serve]",
		Short: "Create a new cluster in an empty data directory",
		Long: "Create a new single-member cluster in an empty data directory, and exit. The flags are\n" +
			"those of \"leasehold serve\". Then start this member, and later all others, with\n" +
			"\"leasehold serve --join ADDRESSES\", which never creates a cluster: if the member's\n" +
			"disk is lost, it fails instead of creating a second cluster. With --join, init fails if\n" +
			"a cluster already responds at one of the addresses.",
		DisableFlagParsing: true,
		SilenceErrors:      true,
		SilenceUsage:       true,
		ValidArgsFunction:  complete,
	}
	c.RunE = func(c *cobra.Command, args []string) error { return initCluster(c, args) }
	return c
}

// initProbeTimeout is how long to wait for a response from a cluster at the addresses given by
// --join.
const initProbeTimeout = 5 * time.Second

func initCluster(c *cobra.Command, args []string) error {
	f := newFlags()
	switch _, err := f.read(args, os.Environ()); {
	case errors.Is(err, errHelp):
		fmt.Fprintf(c.OutOrStdout(), "%s\n\nUsage:\n  leasehold %s\n\n", c.Long, c.Use)
		f.help(c.OutOrStdout())
		return nil
	case err != nil:
		return err
	}
	cfg, _, err := f.config(hostname())
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		return f.located(err)
	}
	if err := noCluster(f.join.endpoints, cfg); err != nil {
		return err
	}
	cluster, member, err := server.Found(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "created cluster %x in %s with member %x (%s)\n",
		cluster, cfg.DataDir, member, cfg.Name)
	return nil
}

// noCluster returns an error if a cluster responds at one of the addresses.
func noCluster(endpoints []string, cfg server.Config) error {
	for _, e := range endpoints {
		if err := checkUnused(e, cfg); err != nil {
			return fmt.Errorf("--join %s: %w", e, err)
		}
	}
	return nil
}

func checkUnused(at string, cfg server.Config) error {
	c, err := dialCluster([]string{at}, joinLogin{}, cfg)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is lost
	ctx, cancel := context.WithTimeout(context.Background(), initProbeTimeout)
	defer cancel()
	switch err := c.Ours(ctx); {
	case err == nil:
		return errors.New("a cluster already responds there, so init did not create one; start this " +
			"member with leasehold serve --join (and --replace if its disk was lost)")
	case !isTemporary(err):
		return err
	case isListening(at):
		return fmt.Errorf("something is listening there, possibly a member, so init did not create "+
			"a cluster: %w", err)
	}
	return nil
}

// isListening reports whether an endpoint accepts connections. If it does, there might be a member
// that unexpectedly uses TLS, or a member without a quorum.
func isListening(at string) bool {
	e, _ := endpoint.Parse(at) // valid: checked when the flag was set
	network, address := e.Network()
	c, err := net.DialTimeout(network, address, initProbeTimeout)
	if err != nil {
		return false
	}
	_ = c.Close() // opened only as a test
	return true
}
