package cli

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

// prepare reads the flags that say how to reach the cluster and how to print.
// A command calls it after it has checked its own arguments, as etcdctl does,
// so that of two mistakes both report the same one.
func (a *app) prepare() (*clientv3.ConfigSpec, error) {
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
	a.printer, err = newPrinter(a.flags.format, a.flags.hex)
	if err != nil {
		return nil, err
	}
	return &clientv3.ConfigSpec{
		Endpoints:          eps,
		DialTimeout:        a.flags.dialTimeout,
		KeepAliveTime:      a.flags.keepAliveTime,
		KeepAliveTimeout:   a.flags.keepAliveTimeout,
		MaxCallSendMsgSize: a.flags.maxSend,
		MaxCallRecvMsgSize: a.flags.maxRecv,
		Secure:             secure,
		Auth:               auth,
	}, nil
}

// startLogging sets up what gRPC logs. Its warnings are left out unless asked
// for: a connection that comes and goes is not news to a user.
func (a *app) startLogging() {
	if a.Shared {
		return
	}
	log := grpcLog()
	a.stopLogging = func() { log.setErrors(nil) }
	if !a.flags.debug {
		log.setErrors(complaints{a})
		return
	}
	log.setAll(complaints{a})
	a.flags.set.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if (f.Name == "password" || f.Name == "auth-jwt-token") && value != "" {
			value = "***" // etcdctl prints it, and terminals are shared
		}
		a.complain("%s=%s\n", envName(envPrefixes[0], f.Name), value)
	})
}

// discover returns the endpoints to talk to: those that DNS names, or those of
// the --endpoints flag.
func (a *app) discover() ([]string, error) {
	d := a.flags.discovery
	var eps []string
	if d.domain != "" {
		found, err := srv.GetClient("etcd-client", d.domain, d.service)
		if err != nil {
			return nil, err
		}
		for _, ep := range found.Endpoints {
			if !d.insecure && strings.HasPrefix(ep, "http://") {
				a.complain("ignoring discovered insecure endpoint %q\n", ep)
				continue
			}
			eps = append(eps, ep)
		}
	}
	if len(eps) == 0 {
		eps = a.flags.endpoints
	}
	eps, err := endpoint.Normalize(eps)
	if err != nil {
		return nil, badArgs("%w", err)
	}
	return eps, nil
}

func (a *app) secure() (*clientv3.SecureConfig, error) {
	t := a.flags.tls
	for _, name := range []string{"cert", "key", "cacert"} {
		// An unset shell variable must not silently turn TLS off.
		if f := a.flags.set.Lookup(name); f.Changed && f.Value.String() == "" {
			return nil, badArgs("empty string is passed to --%s option", name)
		}
	}
	c := &clientv3.SecureConfig{
		Cert: t.cert, Key: t.key, Cacert: t.ca,
		InsecureTransport: t.insecure, InsecureSkipVerify: t.skipVerify,
	}
	if !a.flags.discovery.insecure {
		c.ServerName = a.flags.discovery.domain
	}
	return c, nil
}

func (a *app) auth() (*clientv3.AuthConfig, error) {
	f := a.flags.auth
	switch {
	case f.tokenFile != "" && (f.token != "" || f.user != ""):
		return nil, badArgs("--token-file excludes --user and --auth-jwt-token")
	case f.tokenFile != "":
		b, err := os.ReadFile(f.tokenFile)
		token := strings.TrimSpace(string(b))
		if err == nil && token == "" {
			err = fmt.Errorf("%s is empty", f.tokenFile)
		}
		if err != nil {
			return nil, badArgs("--token-file: %w", err)
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
		if password, err = a.askPassword("Password: "); err != nil {
			return nil, err
		}
	}
	return &clientv3.AuthConfig{Username: user, Password: password}, nil
}

// dial makes a client. Nothing is sent before the first call on it. Why it had no connection is
// printed when the command has failed.
func (a *app) dial(spec *clientv3.ConfigSpec) (*clientv3.Client, error) {
	return a.dialTelling(spec, &a.dialError)
}

// dialTelling is dial, and why has the reason for which there was no connection.
func (a *app) dialTelling(
	spec *clientv3.ConfigSpec, why *dialError,
) (*clientv3.Client, error) {
	lg, err := a.logger(why)
	if err != nil {
		return nil, err
	}
	cfg, err := clientv3.NewClientConfig(spec, lg)
	if err != nil {
		return nil, withCode(exitBadArgs, err)
	}
	cfg.Logger = lg // or the library makes one of its own
	cfg.DialOptions = append(a.flags.cluster.options(), why.watch())
	if ca := a.flags.tls.ca; ca != "" && cfg.TLS != nil && len(cfg.Endpoints) > 0 {
		// The library uses TLS for all endpoints unless the first has http.
		if first, _ := endpoint.Parse(cfg.Endpoints[0]); first.Scheme != "http" {
			cfg.DialOptions = append(cfg.DialOptions,
				grpc.WithTransportCredentials(listen.Reloading(cfg.TLS, ca)))
		}
	}
	c, err := clientv3.New(*cfg)
	if err != nil {
		return nil, withCode(exitConnection, err)
	}
	return c, nil
}

// dialOne makes a client that talks to one endpoint only.
func (a *app) dialOne(spec *clientv3.ConfigSpec, endpoint string) (*clientv3.Client, error) {
	return a.dial(only(spec, endpoint))
}

// only is a specification of one endpoint.
func only(spec *clientv3.ConfigSpec, endpoint string) *clientv3.ConfigSpec {
	one := spec.Clone()
	one.Endpoints = []string{endpoint}
	return one
}

// open makes the client of a command.
func (a *app) open() (*clientv3.Client, error) {
	spec, err := a.prepare()
	if err != nil {
		return nil, err
	}
	return a.dial(spec)
}

// commandContext bounds one short call.
func (a *app) commandContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.context(), a.flags.commandTimeout)
}

// patientContext bounds a call that may rightly take long: there is no limit
// unless the user set one.
func (a *app) patientContext() (context.Context, context.CancelFunc) {
	if a.flags.set.Changed("command-timeout") {
		return a.commandContext()
	}
	return context.WithCancel(a.context())
}

// A call asks the cluster something.
type call func(ctx context.Context, c *clientv3.Client) (answer, error)

// ask opens a client, makes a call within a limit and shows its answer.
func (a *app) ask(limit func() (context.Context, context.CancelFunc), do call) error {
	c, err := a.open()
	if err != nil {
		return err
	}
	defer c.Close()
	go a.tellLost(c) // the limit may be none
	ctx, cancel := limit()
	defer cancel()
	ans, err := do(ctx, c)
	if err == nil {
		err = a.show(ans)
	}
	if err == nil && ans.code != 0 {
		err = &exitError{code: ans.code}
	}
	return err
}

// clusterFlag adds --cluster, for everyEndpoint.
func clusterFlag(fs *pflag.FlagSet, cluster *bool) {
	fs.BoolVar(cluster, "cluster", false, "ask all members in the member list")
}

// everyEndpoint returns the endpoints that a command visits one by one: those
// of the flags, or with --cluster those of every member.
func (a *app) everyEndpoint(spec *clientv3.ConfigSpec, cluster bool) ([]string, error) {
	if !cluster {
		return spec.Endpoints, nil
	}
	c, err := a.dial(spec)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := a.commandContext()
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

// argOrStdin returns argument i, or all of the standard input if it is missing.
func argOrStdin(args []string, i int, stdin io.Reader) (string, error) {
	if i < len(args) {
		return args[i], nil
	}
	b, err := io.ReadAll(stdin)
	if err != nil || len(b) == 0 {
		return "", errors.New("no available argument and stdin")
	}
	return string(b), nil
}
