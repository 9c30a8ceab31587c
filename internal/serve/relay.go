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

// RelayCommand returns "leasehold relay".
func RelayCommand() *cobra.Command { return relayCommand(os.Environ, runRelay) }

func relayCommand(
	env func() []string, run func(context.Context, relay.Config) error,
) *cobra.Command {
	c := &cobra.Command{
		Use:   "relay [flags]",
		Short: "Run a relay, which many clients connect to in the place of a member",
		// Not parsed by cobra, as those of serve.
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
				_, err = f.readEnv(env()) // others' variables are no concern of a relay
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

// relayFlags is one reading of the command line of a relay.
type relayFlags struct {
	*flags
	relay relay.Config
	// toMembers is the TLS to members, as client commands have it: by its own names.
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
		"The client addresses of the members: HOST:PORT,... or https://HOST:PORT,...")
	fs.StringVar(&t.TrustedCAFile, "cacert", "",
		"Members must show a certificate that one of these vouches for (PEM). Default: the system's.")
	fs.StringVar(&t.CertFile, "cert", "", "The certificate shown to members (PEM).")
	fs.StringVar(&t.KeyFile, "key", "", "That certificate's key (PEM).")
	fs.BoolVar(&f.skipVerify, "insecure-skip-tls-verify", false,
		"Do not look at the certificates of members. For tests only.")
	fs.StringVar(&c.User, "user", "", "Log in as this user, who needs the role relay once access "+
		"control is enabled. A client certificate of one with that role will do as well.")
	fs.StringVar(&f.passwordFile, "password-file", "", "The file with that user's password.")
	fs.StringVar(&c.TokenFile, "token-file", "",
		"The file with a token, in the place of --user. It is read again for each connection.")
}

func (f *relayFlags) addClients() {
	c, t, fs := &f.relay, &f.relay.ListenTLS, f.fs
	fs.Var(urls{&c.Listen}, "listen-client-urls", "Where to listen for clients.")
	fs.StringVar(&t.CertFile, "cert-file", "", "The certificate shown to clients (PEM).")
	fs.StringVar(&t.KeyFile, "key-file", "", "The certificate's key (PEM).")
	fs.StringVar(&t.TrustedCAFile, "trusted-ca-file", "",
		"Clients must show a certificate that one of these vouches for (PEM).")
	fs.BoolVar(&t.ClientCertAuth, "client-cert-auth", false, "Clients must show a certificate.")
	fs.StringVar(&t.CRLFile, "client-crl-file", "", "Client certificates that were revoked.")
	fs.Var(list{&t.AllowedCNs}, "client-cert-allowed-cn",
		"A client certificate must bear one of these common names.")
	fs.Var(list{&t.AllowedHostnames}, "client-cert-allowed-hostname",
		"A client certificate must be for one of these hosts.")
	fs.Var(list{&t.CipherSuites}, "cipher-suites", "The cipher suites of TLS 1.2. Default: Go's.")
	t.MinVersion = "TLS1.2"
	fs.StringVar(&t.MinVersion, "tls-min-version", t.MinVersion, "'TLS1.2' or 'TLS1.3'.")
	fs.StringVar(&t.MaxVersion, "tls-max-version", "",
		"'TLS1.2' or 'TLS1.3'. Default: the newest.")
	c.MaxRequestBytes = 3 << 19
	fs.IntVar(&c.MaxRequestBytes, "max-request-bytes", c.MaxRequestBytes,
		"The largest request, in bytes: that of the members.")
}

func (f *relayFlags) addRelayHTTP() {
	f.addMetrics(&f.relay.ListenMetrics)
	h := &f.relay.HTTP
	*h = web.DefaultSettings()
	f.addGateway(&h.Gateway, &h.UI, &h.CORS, &h.HostWhitelist)
}

// help writes all flags.
func (f *relayFlags) help(w io.Writer) {
	fmt.Fprint(w, "Run a relay, until a signal ends it. Many clients connect to it in the place of\n"+
		"a member, and it carries what they ask for to the member that leads, over one stream. It\n"+
		"keeps nothing: run two or more, and give clients the addresses of all.\n\n"+
		"Usage:\n  leasehold relay [flags]\n\n"+
		"Every flag may be given as a variable: LEASEHOLD_ENDPOINTS for --endpoints.\n")
	f.helpSections(w)
}

// config returns what the flags say.
func (f *relayFlags) config() (relay.Config, error) {
	c := f.relay
	switch {
	case (c.User == "") != (f.passwordFile == ""):
		return c, usageError("--user and --password-file go together")
	case c.User != "" && c.TokenFile != "":
		return c, usageError("--user and --token-file exclude each other")
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
		at, _ := endpoint.Parse(e) // the flag has checked it
		encrypted = encrypted || at.Secure()
	}
	if !encrypted && (f.toMembers.Asked() || f.skipVerify) {
		return c, usageError("there are TLS settings for members, but none of --endpoints is " +
			"https://; give one, or leave the settings out")
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
		return &UsageError{err.Error()}
	}
	go notify(ctx, r.Ready(), nil)
	return r.Run(ctx)
}
