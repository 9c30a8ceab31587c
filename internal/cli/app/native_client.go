package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	grpcstatus "google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/fault"
)

// OpenNative returns the client for a command that keeps leases alive. Unlike the client returned
// by Open, it uses leasehold.v1 over one stream, and tracks how long its leases are valid.
func (a *App) OpenNative() (*client.Client, error) {
	spec, err := a.Prepare()
	if err != nil {
		return nil, err
	}
	c, err := a.DialNative(spec)
	if err != nil {
		return nil, err
	}
	go a.reportOutages(c, a.Flags.CommandTimeout)
	return c, nil
}

// DialNative returns a leasehold.v1 client. It sends nothing before the first call.
func (a *App) DialNative(spec *clientv3.ConfigSpec) (*client.Client, error) {
	secure, err := TLSOf(spec)
	if err != nil {
		return nil, err
	}
	who := spec.Auth
	if who == nil {
		who = new(clientv3.AuthConfig)
	}
	if a.Flags.auth.tokenFile != "" {
		who.Token = "" // the client itself rereads the file
	}
	ca := a.Flags.tls.ca
	if secure == nil {
		ca = ""
	}
	c, err := client.New(client.Config{
		ClusterID: uint64(a.Flags.Cluster),
		User:      who.Username, Password: who.Password, Token: who.Token,
		TokenFile: a.Flags.auth.tokenFile,
		Endpoints: spec.Endpoints, TLS: secure, RootCAFile: ca,
		DialTimeout:     spec.DialTimeout,
		MaxRequestBytes: spec.MaxCallSendMsgSize,
	})
	if err != nil {
		return nil, WithCode(ExitConnection, err)
	}
	return c, nil
}

// OpenStrict is OpenNative for commands that run other programs. An error in the command's flags
// gets an exit code that cannot come from the program.
func (a *App) OpenStrict() (*client.Client, error) {
	c, err := a.OpenNative()
	return c, WithCode(ExitBadArgs, err)
}

// lastWord is how long a command may take to give up once its timeout has passed. After that, it
// reports that it is still retrying. lastWord is timed separately, because the process might have
// been stopped until the timeout passed.
const lastWord = time.Second

// reportOutages reports an outage once it has lasted longer than patience (the command timeout)
// plus lastWord. An outage means that no member can be reached, or that the cluster does not
// respond because it has no leader. reportOutages also reports the end of the outage. Without it, a
// command that waits indefinitely would do so silently. It returns when the client is closed.
func (a *App) reportOutages(c *client.Client, patience time.Duration) {
	for {
		now, err := connectionWithin(patience, c)
		if errors.Is(err, client.ErrUnavailable) {
			now, err = connectionWithin(lastWord, c)
		}
		if err != nil && !errors.Is(err, client.ErrUnavailable) {
			return // the command reports why it ended
		}
		if err != nil {
			a.Warnf("No member responds, retrying: %s\n", fault.Reason(err))
			if now, err = c.Connection(a.Background()); err == nil {
				a.Warnf("Connected to %s\n", now.Endpoint)
			}
		}
		if err != nil {
			return
		}
		a.reportSilence(c, now.Changed, patience+lastWord)
	}
}

// connectionWithin is c.Connection with a timeout.
func connectionWithin(limit time.Duration, c *client.Client) (client.Connection, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.Connection(ctx)
}

// reportSilence does the work of reportOutages while there is a connection. A member without a
// leader does not report that, and still accepts watches. So reportSilence regularly sends a
// request that needs a leader.
func (a *App) reportSilence(c *client.Client, changed <-chan struct{}, patience time.Duration) {
	for silent := false; ; {
		select {
		case <-changed:
			return
		case <-time.After(patience):
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := c.Range(ctx, store.Range{Key: "\x00", CountOnly: true})
		cancel()
		if errors.Is(err, client.ErrPermissionDenied) {
			err = nil // the cluster is responding: permissions are checked after the confirm round
		}
		switch {
		case errors.Is(err, client.ErrClosed):
		case err == nil && silent:
			a.Warnf("The cluster is responding again\n")
		case err != nil && !silent:
			why, found := DialErrorIn(err.Error())
			if !found {
				why = err.Error()
			}
			a.Warnf("The cluster is not responding, retrying: %s\n", why)
		}
		silent = err != nil
	}
}

// ReportLost is reportOutages for etcd's client.
func (a *App) ReportLost(c *clientv3.Client) {
	conn, ctx := c.ActiveConnection(), c.Ctx()
	for ctx.Err() == nil {
		there := readyWithin(ctx, a.Flags.CommandTimeout, conn) || readyWithin(ctx, lastWord, conn)
		if !there && ctx.Err() == nil {
			a.LearnDialError(ctx, c)
			why := a.DialError.String()
			if why != "" {
				why = ": " + why
			}
			a.Warnf("No member responds, retrying%s\n", why)
			if isReady(ctx, conn) {
				a.Warnf("Connected again\n")
			}
		}
		conn.WaitForStateChange(ctx, connectivity.Ready)
	}
}

// LearnDialError determines why there is no connection. It makes a call that does not wait for a
// connection, so its error contains the reason.
func (a *App) LearnDialError(ctx context.Context, c *clientv3.Client) {
	_, err := NativeLeases(c).Describe(ctx, &pb.DescribeRequest{})
	a.DialError.learn(fmt.Sprint(err))
}

// IsBroken reports whether connecting failed. If a member is connected but does not respond,
// another call would not reveal a reason either, and no time is left for one.
func IsBroken(c *clientv3.Client) bool {
	return c.ActiveConnection().GetState() == connectivity.TransientFailure
}

// readyWithin is isReady with a timeout.
func readyWithin(ctx context.Context, limit time.Duration, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return isReady(ctx, conn)
}

// isReady waits until a connection is usable or ctx ends, and reports whether it is usable.
func isReady(ctx context.Context, conn *grpc.ClientConn) bool {
	for {
		s := conn.GetState()
		if s == connectivity.Ready {
			return true
		}
		if !conn.WaitForStateChange(ctx, s) {
			return false
		}
	}
}

// TLSOf returns the TLS configuration with the certificates given by the flags. If the flags name
// no certificates, it uses the system's authorities for endpoints with TLS; if no endpoint uses
// TLS, it returns nil.
func TLSOf(spec *clientv3.ConfigSpec) (*tls.Config, error) {
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	if err != nil {
		return nil, WithCode(ExitBadArgs, err)
	}
	secure := func(text string) bool {
		e, _ := endpoint.Parse(text) // valid: checked by Prepare
		return e.Secure()
	}
	if cfg.TLS == nil && slices.ContainsFunc(spec.Endpoints, secure) {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	return cfg.TLS, nil
}

// CallNative opens a client, makes one short call, and prints the answer.
func (a *App) CallNative(do func(ctx context.Context, c *client.Client) (Answer, error)) error {
	c, err := a.OpenNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := a.CommandContext()
	defer cancel()
	ans, err := do(ctx, c)
	if err != nil {
		return err
	}
	return a.Show(ans)
}

// WatchNative is CallNative for calls that last until the user interrupts them. An interrupt is not
// an error.
func (a *App) WatchNative(do func(ctx context.Context, c *client.Client) error) error {
	c, err := a.OpenNative()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := a.UntilSignal()
	defer stop()
	if err := do(ctx, c); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// NativeLeases returns a leasehold.v1 lease client that uses c's connection.
func NativeLeases(c *clientv3.Client) pb.LeaseServiceClient {
	return pb.NewLeaseServiceClient(c.ActiveConnection())
}

// NativeError reduces a leasehold.v1 error to its message.
func NativeError(err error) error {
	var coded *ExitError
	if err == nil || errors.As(err, &coded) {
		return err
	}
	s := grpcstatus.Convert(err)
	text := s.Message()
	if why, found := DialErrorIn(text); found {
		text = "no member responds: " + why
	}
	if s.Code() == codes.Unimplemented {
		text = fmt.Sprintf("%v (%s)", client.ErrNotLeasehold, text)
	}
	return WithCode(ExitConnection, errors.New(text))
}
