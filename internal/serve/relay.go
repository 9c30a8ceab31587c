package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/relay"
)

// RelayCommand returns the command "leasehold relay".
func RelayCommand() *cobra.Command { return relayCommand(os.Environ, runRelay) }

func relayCommand(
	env func() []string, run func(context.Context, relay.Config) error,
) *cobra.Command {
	c := &cobra.Command{
		Use:   "relay [flags]",
		Short: "Run a relay, which many clients can connect to instead of a member",
		// Flags are not parsed by cobra, as in serve.
		DisableFlagParsing: true,
		SilenceErrors:      true,
		SilenceUsage:       true,
		ValidArgsFunction: func(
			_ *cobra.Command, _ []string, typed string,
		) ([]string, cobra.ShellCompDirective) {
			return newRelayFlags().complete(typed)
		},
		RunE: func(c *cobra.Command, args []string) error {
			f := newRelayFlags()
			err := f.parse(args)
			if errors.Is(err, errHelp) {
				f.help(c.OutOrStdout())
				return nil
			}
			if err == nil {
				// ignore warnings, since variables for other programs are not a mistake
				_, err = f.readEnv(env())
			}
			if err != nil {
				return err
			}
			return f.run(c, run)
		},
	}
	c.SetHelpFunc(func(c *cobra.Command, _ []string) { newRelayFlags().help(c.OutOrStdout()) })
	return c
}

// relayFlags holds the values of a relay's command line.
type relayFlags struct {
	*flags
	relay relay.Config
	// toMembers configures TLS for connections to members. Its flags have the same names as in
	// client commands.
	toMembers    listen.TLS
	skipVerify   bool
	passwordFile string
}

func newRelayFlags() *relayFlags {
	f := &relayFlags{flags: emptyFlags("relay")}
	f.addSections([]addSection{
		{"Members", f.addMembers},
		{"Clients", f.addClients},
		{"HTTP and metrics", f.addRelayHTTP},
		{"Logging", f.addLog},
	})
	return f
}

func (f *relayFlags) addMembers() {
	c, t, fs := &f.relay, &f.toMembers, f.fs
	fs.Var(endpoints{list{&c.Endpoints}}, "endpoints",
		"Client addresses of the members: HOST:PORT,... or https://HOST:PORT,...")
	fs.StringVar(&t.TrustedCAFile, "cacert", "",
		"CA certificates for verifying members' certificates (PEM, default: the system's)")
	fs.StringVar(&t.CertFile, "cert", "", "Certificate for connections to members (PEM)")
	fs.StringVar(&t.KeyFile, "key", "", "Private key of --cert (PEM)")
	fs.BoolVar(&f.skipVerify, "insecure-skip-tls-verify", false,
		"Do not verify members' certificates; for tests only")
	fs.StringVar(&c.User, "user", "", "User to log in as. The user needs the relay role once access "+
		"control is enabled. A client certificate of such a user works too")
	fs.StringVar(&f.passwordFile, "password-file", "", "File that contains the password for --user")
	fs.StringVar(&c.TokenFile, "token-file", "",
		"File with a token, instead of --user. It is reread for each connection")
}

func (f *relayFlags) addClients() {
	c, t, fs := &f.relay, &f.relay.ListenTLS, f.fs
	fs.Var(urls{&c.Listen}, "listen-client-urls", "URLs to listen on for clients")
	fs.StringVar(&t.CertFile, "cert-file", "", "Certificate for clients (PEM)")
	fs.StringVar(&t.KeyFile, "key-file", "", "Private key of --cert-file (PEM)")
	fs.StringVar(&t.TrustedCAFile, "trusted-ca-file", "",
		"CA certificates for verifying client certificates (PEM)")
	fs.BoolVar(&t.ClientCertAuth, "client-cert-auth", false, "Require a certificate from clients")
	fs.StringVar(&t.CRLFile, "client-crl-file", "", "List of revoked client certificates")
	fs.Var(list{&t.AllowedCNs}, "client-cert-allowed-cn",
		"Allowed common names in client certificates")
	fs.Var(list{&t.AllowedHostnames}, "client-cert-allowed-hostname",
		"Allowed host names in client certificates")
	fs.Var(list{&t.CipherSuites}, "cipher-suites", "TLS 1.2 cipher suites (default: Go's)")
	t.MinVersion = "TLS1.2"
	fs.StringVar(&t.MinVersion, "tls-min-version", t.MinVersion, "'TLS1.2' or 'TLS1.3'")
	fs.StringVar(&t.MaxVersion, "tls-max-version", "",
		"'TLS1.2' or 'TLS1.3' (default: the newest)")
	c.MaxRequestBytes = 3 << 19
	fs.IntVar(&c.MaxRequestBytes, "max-request-bytes", c.MaxRequestBytes,
		"Maximum size of a request in bytes; use the same value as on the members")
}

func (f *relayFlags) addRelayHTTP() {
	f.addMetrics(&f.relay.ListenMetrics)
	h := &f.relay.HTTP
	*h = web.DefaultSettings()
	f.addGateway(&h.Gateway, &h.UI, &h.CORS, &h.HostWhitelist)
}

// help prints all flags.
func (f *relayFlags) help(w io.Writer) {
	fmt.Fprint(w, "Run a relay until a signal stops it. Many clients connect to a relay instead of a\n"+
		"member, and it forwards their requests to the leader over one stream. It has no state:\n"+
		"run two or more, and give clients the addresses of all of them.\n\n"+
		"Usage:\n  leasehold relay [flags]\n\n"+
		"Each flag can also be set by an environment variable: LEASEHOLD_ENDPOINTS for --endpoints.\n")
	f.helpSections(w)
}

// config returns the configuration specified by the flags.
func (f *relayFlags) config() (relay.Config, error) {
	c := f.relay
	switch {
	case (c.User == "") != (f.passwordFile == ""):
		return c, usageError("--user and --password-file must be set together")
	case c.User != "" && c.TokenFile != "":
		return c, usageError("--user and --token-file are mutually exclusive")
	}
	if err := c.Validate(); err != nil {
		return c, f.located(err)
	}
	if f.passwordFile != "" {
		b, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return c, usageError("--password-file: %v", err)
		}
		c.Password = strings.TrimRight(string(b), "\r\n")
	}
	encrypted := false
	for _, e := range c.Endpoints {
		at, _ := endpoint.Parse(e) // valid: checked when the flag was set
		encrypted = encrypted || at.Secure()
	}
	if !encrypted && (f.toMembers.Asked() || f.skipVerify) {
		return c, usageError("TLS settings for members are set, but none of --endpoints uses " +
			"https://; use https:// or remove the settings")
	}
	if encrypted {
		conf, err := f.toMembers.Client()
		if err != nil {
			return c, usageError("--cert, --key, --cacert: %v", err)
		}
		conf.InsecureSkipVerify = f.skipVerify //nolint:gosec // asked for
		c.TLS, c.RootCAFile = conf, f.toMembers.TrustedCAFile
	}
	return c, nil
}

// run runs the relay.
func (f *relayFlags) run(
	c *cobra.Command, run func(context.Context, relay.Config) error,
) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	lg, err := f.log.open(c.OutOrStdout(), c.ErrOrStderr())
	if err != nil {
		return f.located(err)
	}
	defer lg.close() //nolint:errcheck // the process ends; there is nowhere left to say so
	cfg.Logger, cfg.Collectors = lg.Logger, lg.collectors()
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := untilSignal(ctx, lg, false)
	defer stop()
	return lg.fatal(run(ctx, cfg))
}

// runRelay runs a relay until the context ends.
func runRelay(ctx context.Context, cfg relay.Config) error {
	quietGRPC()
	r, err := relay.New(cfg)
	if err != nil {
		return usageError("%w", err)
	}
	go notify(ctx, r.Ready(), nil)
	return r.Run(ctx)
}
