package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The prefixes of the environment variables that stand for flags, most
// important first. A flag on the command line beats both.
var envPrefixes = []string{"LEASEHOLD_", "ETCDCTL_"}

// globalFlags are the flags that every client command takes.
type globalFlags struct {
	endpoints        []string
	cluster          clusterID
	dialTimeout      time.Duration
	commandTimeout   time.Duration
	keepAliveTime    time.Duration
	keepAliveTimeout time.Duration
	maxSend, maxRecv int // bytes

	tls       tlsFlags
	auth      authFlags
	discovery discoveryFlags

	format string
	hex    bool
	debug  bool

	set *pflag.FlagSet // to tell a default from a choice
}

type tlsFlags struct {
	insecure, skipVerify bool
	cert, key, ca        string
}

type authFlags struct {
	user, password, token, tokenFile string
}

type discoveryFlags struct {
	domain, service string
	insecure        bool
}

func (g *globalFlags) register(root *cobra.Command) {
	fs := root.PersistentFlags()
	g.set = fs
	fs.StringSliceVar(&g.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "gRPC endpoints")
	fs.Var(&g.cluster, "cluster-id",
		"ID of the cluster in hexadecimal digits: members of another one refuse the command")
	fs.DurationVar(&g.dialTimeout, "dial-timeout", 2*time.Second,
		"dial timeout for client connections")
	fs.DurationVar(&g.commandTimeout, "command-timeout", 5*time.Second,
		"timeout for short running command (excluding dial timeout)")
	fs.DurationVar(&g.keepAliveTime, "keepalive-time", 2*time.Second,
		"keepalive time for client connections")
	fs.DurationVar(&g.keepAliveTimeout, "keepalive-timeout", 6*time.Second,
		"keepalive timeout for client connections")
	fs.IntVar(&g.maxSend, "max-request-bytes", 0,
		"client-side request send limit in bytes (0 means 2 MiB)")
	fs.IntVar(&g.maxRecv, "max-recv-bytes", 0,
		"client-side response receive limit in bytes (0 means no limit)")
	fs.StringVarP(&g.format, "write-out", "w", "simple",
		"set the output format ("+strings.Join(formats, ", ")+")")
	fs.VarP(writeOut{fs}, "output", "o", "the same as --write-out")
	fs.BoolVar(&g.hex, "hex", false, "print byte strings as hex encoded strings")
	fs.BoolVar(&g.debug, "debug", false, "enable client-side debug logging")
	g.registerSecurity(fs)
	completeFlag(root, "write-out", formats...)
	completeFlag(root, "output", formats...)
}

// writeOut is the value of --output, which is another name of --write-out.
type writeOut struct{ set *pflag.FlagSet }

// String implements pflag.Value.
func (writeOut) String() string { return "" }

// Type implements pflag.Value.
func (writeOut) Type() string { return "string" }

// Set implements pflag.Value.
func (w writeOut) Set(format string) error { return w.set.Set("write-out", format) }

func (g *globalFlags) registerSecurity(fs *pflag.FlagSet) {
	fs.BoolVar(&g.tls.insecure, "insecure-transport", true,
		"disable transport security for client connections")
	fs.BoolVar(&g.tls.skipVerify, "insecure-skip-tls-verify", false,
		"skip server certificate verification (for tests only)")
	fs.StringVar(&g.tls.cert, "cert", "", "identify secure client using this TLS certificate file")
	fs.StringVar(&g.tls.key, "key", "", "identify secure client using this TLS key file")
	fs.StringVar(&g.tls.ca, "cacert", "",
		"verify certificates of TLS-enabled secure servers using this CA bundle")
	fs.StringVar(&g.auth.user, "user", "",
		"username[:password] for authentication (prompt if password is not supplied)")
	fs.StringVar(&g.auth.password, "password", "",
		"password for authentication (then --user must not include it)")
	fs.StringVar(&g.auth.token, "auth-jwt-token", "",
		"JWT token for authentication (instead of --user and --password)")
	fs.StringVar(&g.auth.tokenFile, "token-file", "",
		"file with a token, read at each connection (instead of --user and --password)")
	fs.StringVarP(&g.discovery.domain, "discovery-srv", "d", "",
		"domain name to query for SRV records describing cluster endpoints")
	fs.StringVar(&g.discovery.service, "discovery-srv-name", "",
		"service name to query when using DNS discovery")
	fs.BoolVar(&g.discovery.insecure, "insecure-discovery", true,
		"accept insecure SRV records describing cluster endpoints")
}

// envName is the environment variable that stands for a flag.
func envName(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnv gives each flag that was not on the command line the value of its
// environment variable. Unlike etcdctl it lets a flag override a variable
// instead of refusing both, and a malformed variable is an error.
func (g *globalFlags) fromEnv(fs *pflag.FlagSet, getenv func(string) string) error {
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil {
			return
		}
		for _, prefix := range envPrefixes {
			name := envName(prefix, f.Name)
			v := getenv(name)
			if v == "" {
				continue
			}
			if serr := fs.Set(f.Name, v); serr != nil {
				err = fmt.Errorf("invalid value %q for %s: %w", v, name, serr)
			}
			return
		}
	})
	return err
}

// env returns a variable that is not a flag, such as WATCH_KEY.
func (a *app) env(name string) (value, found string) {
	for _, prefix := range envPrefixes {
		if v := a.getenv(prefix + name); v != "" {
			return v, prefix + name
		}
	}
	return "", envPrefixes[len(envPrefixes)-1] + name
}
