package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/srv"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/listen"
)

// Prepare evaluates the connection and output flags. Commands call it after they have checked their
// own arguments. So if both are invalid, the user sees the same error as with etcdctl.
func (a *App) Prepare() (*clientv3.ConfigSpec, error) {
	a.startLogging()
	eps, err := a.discover()
	if err != nil {
		return nil, err
	}
	secure, err := a.secure()
	if err != nil {
		return nil, err
	}
	auth, err := a.auth()
	if err != nil {
		return nil, err
	}
	a.Printer, err = newPrinter(a.Flags.Format, a.Flags.hex)
	if err != nil {
		return nil, err
	}
	return &clientv3.ConfigSpec{
		Endpoints:          eps,
		DialTimeout:        a.Flags.DialTimeout,
		KeepAliveTime:      a.Flags.keepAliveTime,
		KeepAliveTimeout:   a.Flags.keepAliveTimeout,
		MaxCallSendMsgSize: a.Flags.maxSend,
		MaxCallRecvMsgSize: a.Flags.maxRecv,
		Secure:             secure,
		Auth:               auth,
	}, nil
}

// startLogging sets up gRPC's log. By default, the log omits warnings because most users do not
// need to see every lost connection.
func (a *App) startLogging() {
	if a.Shared {
		return
	}
	log := GrpcLog()
	a.StopLogging = func() { log.setErrors(nil) }
	if !a.Flags.debug {
		log.setErrors(stderrWriter{a})
		return
	}
	log.setAll(stderrWriter{a})
	a.Flags.Set.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if (f.Name == "password" || f.Name == "auth-jwt-token") && value != "" {
			value = "***" // etcdctl prints the value, but other people might see the terminal
		}
		a.Warnf("%s=%s\n", envName(EnvPrefixes[0], f.Name), value)
	})
}

// discover returns the endpoints found in DNS, or else the endpoints given by --endpoints.
func (a *App) discover() ([]string, error) {
	d := a.Flags.discovery
	var eps []string
	if d.domain != "" {
		found, err := srv.GetClient("etcd-client", d.domain, d.service)
		if err != nil {
			return nil, err
		}
		for _, ep := range found.Endpoints {
			if !d.insecure && strings.HasPrefix(ep, "http://") {
				a.Warnf("ignoring discovered insecure endpoint %q\n", ep)
				continue
			}
			eps = append(eps, ep)
		}
	}
	if len(eps) == 0 {
		eps = a.Flags.endpoints
	}
	eps, err := endpoint.Normalize(eps)
	if err != nil {
		return nil, BadArgs("%w", err)
	}
	return eps, nil
}

func (a *App) secure() (*clientv3.SecureConfig, error) {
	t := a.Flags.tls
	for _, name := range []string{"cert", "key", "cacert"} {
		// Otherwise, an unset shell variable would silently disable TLS.
		if f := a.Flags.Set.Lookup(name); f.Changed && f.Value.String() == "" {
			return nil, BadArgs("empty string is passed to --%s option", name)
		}
	}
	c := &clientv3.SecureConfig{
		Cert: t.cert, Key: t.key, Cacert: t.ca,
		InsecureTransport: t.insecure, InsecureSkipVerify: t.skipVerify,
	}
	if !a.Flags.discovery.insecure {
		c.ServerName = a.Flags.discovery.domain
	}
	return c, nil
}

func (a *App) auth() (*clientv3.AuthConfig, error) {
	f := a.Flags.auth
	switch {
	case f.tokenFile != "" && (f.token != "" || f.user != ""):
		return nil, BadArgs("--token-file cannot be used with --user or --auth-jwt-token")
	case f.tokenFile != "":
		b, err := os.ReadFile(f.tokenFile)
		token := strings.TrimSpace(string(b))
		if err == nil && token == "" {
			err = fmt.Errorf("%s is empty", f.tokenFile)
		}
		if err != nil {
			return nil, BadArgs("--token-file: %w", err)
		}
		return &clientv3.AuthConfig{Token: token}, nil
	case f.token != "":
		return &clientv3.AuthConfig{Token: f.token}, nil
	case f.user == "":
		return nil, nil
	case f.password != "":
		return &clientv3.AuthConfig{Username: f.user, Password: f.password}, nil
	}
	user, password, ok := strings.Cut(f.user, ":")
	if !ok {
		var err error
		if password, err = a.AskPassword("Password: "); err != nil {
			return nil, err
		}
	}
	return &clientv3.AuthConfig{Username: user, Password: password}, nil
}

// Dial returns a client, which sends nothing before its first call. If the command fails because no
// connection could be made, the reason is printed.
func (a *App) Dial(spec *clientv3.ConfigSpec) (*clientv3.Client, error) {
	return a.DialReporting(spec, &a.DialError)
}

// DialReporting is like Dial, but stores the reason for a failed connection in why.
func (a *App) DialReporting(
	spec *clientv3.ConfigSpec, why *DialError,
) (*clientv3.Client, error) {
	lg, err := a.logger(why)
	if err != nil {
		return nil, err
	}
	cfg, err := clientv3.NewClientConfig(spec, lg)
	if err != nil {
		return nil, WithCode(ExitBadArgs, err)
	}
	cfg.Logger = lg // otherwise the library creates its own logger
	cfg.DialOptions = append(a.Flags.Cluster.options(), why.watch())
	if ca := a.Flags.tls.ca; ca != "" && cfg.TLS != nil && len(cfg.Endpoints) > 0 {
		// Unless the scheme of the first endpoint is http, the library uses TLS for all endpoints.
		if first, _ := endpoint.Parse(cfg.Endpoints[0]); first.Scheme != "http" {
			cfg.DialOptions = append(cfg.DialOptions,
				grpc.WithTransportCredentials(listen.Reloading(cfg.TLS, ca)))
		}
	}
	c, err := clientv3.New(*cfg)
	if err != nil {
		return nil, WithCode(ExitConnection, err)
	}
	return c, nil
}

// DialOne returns a client for a single endpoint.
func (a *App) DialOne(spec *clientv3.ConfigSpec, endpoint string) (*clientv3.Client, error) {
	return a.Dial(Only(spec, endpoint))
}

// Only returns the specification for a single endpoint.
func Only(spec *clientv3.ConfigSpec, endpoint string) *clientv3.ConfigSpec {
	one := spec.Clone()
	one.Endpoints = []string{endpoint}
	return one
}

// Open returns the client for a command.
func (a *App) Open() (*clientv3.Client, error) {
	spec, err := a.Prepare()
	if err != nil {
		return nil, err
	}
	return a.Dial(spec)
}

// CommandContext returns a context for a short call. It ends after the command timeout.
func (a *App) CommandContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.Background(), a.Flags.CommandTimeout)
}

// PatientContext returns a context for calls that can take a long time. It has no timeout unless
// the user sets one.
func (a *App) PatientContext() (context.Context, context.CancelFunc) {
	if a.Flags.Set.Changed("command-timeout") {
		return a.CommandContext()
	}
	return context.WithCancel(a.Background())
}

// A call sends a request to the cluster.
type call func(ctx context.Context, c *clientv3.Client) (Answer, error)

// Ask opens a client, makes a call within the limit, and prints the answer.
func (a *App) Ask(limit func() (context.Context, context.CancelFunc), do call) error {
	c, err := a.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	go a.ReportLost(c) // the call might have no timeout
	ctx, cancel := limit()
	defer cancel()
	ans, err := do(ctx, c)
	if err == nil {
		err = a.Show(ans)
	}
	if err == nil && ans.Code != 0 {
		err = Reported(ans.Code)
	}
	return err
}

// ClusterFlag adds the flag --cluster. See EveryEndpoint.
func ClusterFlag(fs *pflag.FlagSet, cluster *bool) {
	fs.BoolVar(cluster, "cluster", false, "query all members in the member list")
}

// EveryEndpoint returns the endpoints to query one by one. With --cluster, they are the endpoints
// of all members. Otherwise, they come from the flags.
func (a *App) EveryEndpoint(spec *clientv3.ConfigSpec, cluster bool) ([]string, error) {
	if !cluster {
		return spec.Endpoints, nil
	}
	c, err := a.Dial(spec)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := a.CommandContext()
	defer cancel()
	members, err := c.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf(
			"failed to fetch endpoints from etcd cluster member list: %w", err)
	}
	var eps []string
	for _, m := range members.Members {
		eps = append(eps, m.ClientURLs...)
	}
	return eps, nil
}

// ArgOrStdin returns argument i, or all of standard input if that argument is missing.
func ArgOrStdin(args []string, i int, stdin io.Reader) (string, error) {
	if i < len(args) {
		return args[i], nil
	}
	b, err := io.ReadAll(stdin)
	if err != nil || len(b) == 0 {
		return "", errors.New("no available argument and stdin")
	}
	return string(b), nil
}

// Answers checks that a server responds before any load is generated.
func (a *App) Answers(c *clientv3.Client, endpoint string) error {
	ctx, cancel := a.CommandContext()
	defer cancel()
	if _, err := c.Status(ctx, endpoint); err != nil {
		return WithCode(ExitConnection, fmt.Errorf("no response from %s: %w", endpoint, err))
	}
	return nil
}

// EachEndpoint calls do for each endpoint in turn, and prints the endpoints that did not respond.
// It returns the last error.
func (a *App) EachEndpoint(
	cluster bool, what string, do func(context.Context, *clientv3.Client, string) error,
) (failure, err error) {
	spec, err := a.Prepare()
	if err != nil {
		return nil, err
	}
	eps, err := a.EveryEndpoint(spec, cluster)
	if err != nil {
		return nil, err
	}
	one := func(ep string) error {
		c, err := a.DialOne(spec, ep)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := a.CommandContext()
		defer cancel()
		return do(ctx, c, ep)
	}
	for _, ep := range eps {
		if err := one(ep); err != nil {
			failure = err
			a.Warnf("Failed to get the %s of endpoint %s (%v)\n", what, ep, err)
		}
	}
	return failure, nil
}
