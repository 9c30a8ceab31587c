package serve

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/binding"
	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

const configLong = `Read settings as "leasehold serve" does, without starting a member. This does
not open the files or listen on the addresses in the settings, except that check reads the file
named by --auth-config.

A setting is a flag of serve, a variable (LEASEHOLD_DATA_DIR or ETCD_DATA_DIR for --data-dir), or
a line in the file named by --config-file. Flags override variables, LEASEHOLD_ overrides ETCD_,
variables override the file, and the file overrides the defaults. (etcd ignores flags and variables
if there is a file.)

The file is YAML and uses the names of the flags. etcd's file works unchanged, with its sections
client-transport-security and peer-transport-security. Unknown names, repeated names and values of
the wrong type are rejected; the error names the line.

  name: a
  data-dir: /var/lib/leasehold
  listen-client-urls: https://10.0.0.1:2379        # or a list: [URL, URL]
  election-timeout: 1s                             # or, as in etcd, milliseconds
  client-transport-security:
    cert-file: /etc/leasehold/tls/tls.crt
    key-file: /etc/leasehold/tls/tls.key

On SIGHUP, a running member reads the file again. Changes to log-level and log-format take effect
immediately; other changes are logged and take effect at the next start.`

// ConfigCommand returns the command "leasehold config". It reads settings in the same way as serve.
func ConfigCommand() *cobra.Command { return configCommand(os.Environ, hostname) }

// withSettings completes a command that uses the same settings as serve. They are read from the
// arguments of the command. The first argument can be a file.
func withSettings(
	c *cobra.Command, env func() []string, hostname func() string,
	do func(io.Writer, *flags, server.Config, []string) error,
) *cobra.Command {
	c.Use += " [FILE] [flags of serve]"
	c.DisableFlagParsing, c.SilenceErrors, c.SilenceUsage = true, true, true
	c.ValidArgsFunction = complete
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			args = append([]string{"--config-file", args[0]}, args[1:]...)
		}
		f := newFlags()
		cfg, warnings, err := f.load(args, env(), hostname())
		if errors.Is(err, errHelp) {
			return c.Help()
		}
		if err != nil {
			return err
		}
		return do(c.OutOrStdout(), f, cfg, warnings)
	}
	return c
}

func configCommand(env func() []string, hostname func() string) *cobra.Command {
	sub := func(
		use, short, example string, do func(io.Writer, *flags, server.Config, []string) error,
	) *cobra.Command {
		return withSettings(
			&cobra.Command{Use: use, Short: short, Long: configLong, Example: example},
			env, hostname, do)
	}
	c := &cobra.Command{
		Use: "config <subcommand>", Short: "Check or show the settings of a member",
		Long: configLong,
	}
	c.AddCommand(
		sub("check", "Find errors in the settings of a member",
			"  leasehold config check /etc/leasehold/leasehold.yaml\n"+
				"  leasehold config check /etc/leasehold/leasehold.yaml --name b --log-level debug",
			checkConfig),
		sub("show", "Print every setting, and where its value comes from",
			"  leasehold config show /etc/leasehold/leasehold.yaml\n"+
				"  LEASEHOLD_NAME=b leasehold config show | grep -v '# default'", showConfig),
	)
	return c
}

// checkConfig checks the settings and prints a summary.
func checkConfig(w io.Writer, f *flags, cfg server.Config, warnings []string) error {
	if path := cfg.Access.BindingsFile; path != "" {
		if err := binding.Check(path); err != nil {
			return usageError("%v", err)
		}
	}
	for _, line := range warnings {
		fmt.Fprintf(w, "warning: %s\n", line)
	}
	count := make(map[string]int)
	for name, from := range f.from {
		if name == "config-file" {
			continue
		}
		kind, _, _ := strings.Cut(from, " ")
		count[kind]++
	}
	fmt.Fprintf(w, "ok: member %s, data in %s; "+
		"settings: %d from the file, %d from variables, %d from flags\n",
		cfg.Name, cfg.DataDir, count["file"], count["variable"], count["flag"])
	return nil
}

// showConfig prints a configuration file that has the same settings.
func showConfig(w io.Writer, f *flags, cfg server.Config, warnings []string) error {
	for _, line := range warnings {
		fmt.Fprintf(w, "# warning: %s\n", line)
	}
	for _, s := range f.sections {
		fmt.Fprintf(w, "# %s\n", s.title)
		for _, name := range s.names {
			if slices.Contains(notInFile, name) {
				continue
			}
			x := f.fs.Lookup(name)
			from := f.from[name]
			value := x.Value.String()
			if !f.given[name] {
				from = "default"
				value = chosen(name, value, cfg)
			}
			fmt.Fprintf(w, "%-48s # %s\n", name+": "+inFileText(x, value), from)
		}
	}
	return nil
}

// chosen returns the effective value of a flag that was not set and whose default depends on other
// flags.
func chosen(name, value string, cfg server.Config) string {
	switch name {
	case "data-dir":
		return cfg.DataDir
	case "advertise-client-urls":
		return listen.JoinURLs(cfg.URLs.AdvertiseClient)
	case "initial-advertise-peer-urls":
		return listen.JoinURLs(cfg.URLs.AdvertisePeer)
	case "quota-backend-bytes":
		return strconv.FormatInt(cfg.Limits.QuotaBackendBytes, 10)
	case "auto-compaction-retention":
		return "" // combines two numbers, but a file can contain only one of them
	case "heartbeat-interval", "election-timeout":
		if cfg.Raft.Adaptive {
			return "" // setting it would also disable adaptation
		}
	}
	return value
}

// inFileText formats a value for a configuration file. Numbers and booleans are bare, and text is
// quoted. It returns "" for a flag without a value.
func inFileText(x *flag.Flag, value string) string {
	if value == "" {
		return ""
	}
	var kind any
	if g, ok := x.Value.(flag.Getter); ok {
		kind = g.Get()
	}
	switch kind.(type) {
	case bool, int, int64, uint, uint64, time.Duration:
		return value
	}
	switch x.Value.(type) {
	case millis:
		return value
	case streams:
		if value == "math.MaxUint32" {
			return "4294967295"
		}
		return value
	}
	return strconv.Quote(value)
}
