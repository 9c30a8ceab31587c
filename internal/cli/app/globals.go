package app

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// EnvPrefixes are the prefixes of environment variables that set flags, in order of precedence.
// Flags on the command line override both.
var EnvPrefixes = []string{"LEASEHOLD_", "ETCDCTL_"}

// globalFlags are the flags of all client commands.
type globalFlags struct {
	endpoints        []string
	Cluster          clusterID
	DialTimeout      time.Duration
	CommandTimeout   time.Duration
	keepAliveTime    time.Duration
	keepAliveTimeout time.Duration
	maxSend, maxRecv int // bytes

	tls       tlsFlags
	auth      authFlags
	discovery discoveryFlags

	Format string
	hex    bool
	debug  bool

	Set *pflag.FlagSet // to distinguish defaults from choices
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

func (g *globalFlags) Register(root *cobra.Command) {
	fs := root.PersistentFlags()
	g.Set = fs
	fs.StringSliceVar(&g.endpoints, "endpoints", []string{"127.0.0.1:2379"},
		"client addresses of members, separated by commas")
	fs.Var(&g.Cluster, "cluster-id",
		"ID of the cluster, in hexadecimal; members of a different cluster reject the command")
	fs.DurationVar(&g.DialTimeout, "dial-timeout", 2*time.Second,
		"time limit for connecting and logging in")
	fs.DurationVar(&g.CommandTimeout, "command-timeout", 5*time.Second,
		"time limit for a short command, excluding connecting")
	fs.DurationVar(&g.keepAliveTime, "keepalive-time", 2*time.Second,
		"time after which a silent connection is pinged")
	fs.DurationVar(&g.keepAliveTimeout, "keepalive-timeout", 6*time.Second,
		"time after which a connection without a response to a ping is closed")
	fs.IntVar(&g.maxSend, "max-request-bytes", 0,
		"maximum size of a request in bytes (0: 2 MiB)")
	fs.IntVar(&g.maxRecv, "max-recv-bytes", 0,
		"maximum size of a response in bytes (0: no limit)")
	fs.StringVarP(&g.Format, "write-out", "w", "simple",
		"output format ("+strings.Join(formats, ", ")+")")
	fs.VarP(writeOut{fs}, "output", "o", "same as --write-out")
	fs.BoolVar(&g.hex, "hex", false, "print keys, values and IDs in hexadecimal")
	fs.BoolVar(&g.debug, "debug", false, "log what the client does")
	g.registerSecurity(fs)
	CompleteFlag(root, "write-out", formats...)
	CompleteFlag(root, "output", formats...)
}

// writeOut implements --output, an alias for --write-out.
type writeOut struct{ set *pflag.FlagSet }

// String implements pflag.Value.
func (writeOut) String() string { return "" }

// Type implements pflag.Value.
func (writeOut) Type() string { return "string" }

// Set implements pflag.Value.
func (w writeOut) Set(format string) error { return w.set.Set("write-out", format) }

func (g *globalFlags) registerSecurity(fs *pflag.FlagSet) {
	fs.BoolVar(&g.tls.insecure, "insecure-transport", true,
		"do not use TLS unless an endpoint or a certificate requires it")
	fs.BoolVar(&g.tls.skipVerify, "insecure-skip-tls-verify", false,
		"do not verify server certificates (for tests only)")
	fs.StringVar(&g.tls.cert, "cert", "", "file with the client's TLS certificate")
	fs.StringVar(&g.tls.key, "key", "", "file with the private key of --cert")
	fs.StringVar(&g.tls.ca, "cacert", "",
		"file with the CA certificates for verifying server certificates")
	fs.StringVar(&g.auth.user, "user", "",
		"user to log in as, USER or USER:PASSWORD; without a password, prompt for it")
	fs.StringVar(&g.auth.password, "password", "",
		"password of --user, instead of USER:PASSWORD")
	fs.StringVar(&g.auth.token, "auth-jwt-token", "",
		"token to log in with, instead of --user and --password")
	fs.StringVar(&g.auth.tokenFile, "token-file", "",
		"file with a token, read at each connection, instead of --user and --password")
	fs.StringVarP(&g.discovery.domain, "discovery-srv", "d", "",
		"domain whose SRV records name the endpoints")
	fs.StringVar(&g.discovery.service, "discovery-srv-name", "",
		"service name in the SRV records")
	fs.BoolVar(&g.discovery.insecure, "insecure-discovery", true,
		"accept endpoints without TLS from the SRV records")
}

// envName returns the environment variable for a flag.
func envName(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnv sets each flag that is not on the command line from its environment variable. Unlike in
// etcdctl, a flag overrides a variable instead of conflicting with it, and an invalid variable
// causes an error.
func (g *globalFlags) FromEnv(fs *pflag.FlagSet, getenv func(string) string) error {
	var err error
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil {
			return
		}
		for _, prefix := range EnvPrefixes {
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

// Variable returns the value of an environment variable that has no flag, such as WATCH_KEY, and
// the full name under which it was found.
func (a *App) Variable(name string) (value, found string) {
	for _, prefix := range EnvPrefixes {
		if v := a.Getenv(prefix + name); v != "" {
			return v, prefix + name
		}
	}
	return "", EnvPrefixes[len(EnvPrefixes)-1] + name
}
