package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/raft/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/endpoint"
	"leasehold.dev/internal/fault"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/storage"
	"leasehold.dev/server"
)

// The pauses between attempts to join. The actual pauses are random, from 0.5 to 1.5 times as long:
// members that start together must not retry in step.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// persist retries do until it succeeds, fails with a permanent error, or ctx ends. It logs each new
// reason to wait.
func (j *joiner) persist(
	ctx context.Context, what string, do func(context.Context) error,
) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		one, cancel := context.WithTimeout(ctx, joinCall)
		err := do(one)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !passing(err):
			return err
		}
		if reason := err.Error(); reason != j.reason {
			j.reason = reason
			j.log.Info(what, "reason", reason, "asking", strings.Join(j.endpoints, ","))
		}
		if !backoff.Sleep(ctx, pause/2+rand.N(pause)) {
			return ctx.Err()
		}
	}
}

// passing reports whether an error may be temporary.
func passing(err error) bool {
	if errors.Is(err, server.ErrForeign) {
		return false
	}
	for _, e := range []error{
		rpctypes.ErrTooManyLearners, rpctypes.ErrMemberLearnerNotReady,
		rpctypes.ErrMemberNotEnoughStarted, context.DeadlineExceeded, errUnreachable,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	code := status.Code(err)
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		code = e.Code()
	}
	return slices.Contains([]codes.Code{
		codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted,
	}, code)
}

// possession describes the contents of a data directory.
type possession struct {
	storage.Identity
	stated bool // it also has a state: the member has taken part
}

// look examines a data directory. The member opens it again later.
func look(dir string) (p possession, err error) {
	if storage.Unused(dir) { // do not touch it until the cluster has this member
		return p, nil
	}
	disk, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		return p, err
	}
	p.Identity, _ = disk.Identity()
	snap, err := disk.Snapshot()
	p.stated = err == nil && !raft.IsEmptySnap(snap)
	if err == nil {
		err = identity.HalfFounded(disk)
	}
	return p, fault.Join(err, disk.Close())
}

// check returns an error if this is not the member's cluster.
func (p possession) check(cfg server.Config, list *clientv3.MemberListResponse) error {
	switch c := list.Header.GetClusterId(); {
	case c != p.Cluster:
		return fmt.Errorf("the data directory %s belongs to cluster %x, but this is cluster %x; "+
			"change --data-dir or the address in --join", cfg.DataDir, p.Cluster, c)
	case find(list.Members, p.Member) == nil:
		return fmt.Errorf("the data directory %s belongs to member %x, which the cluster has "+
			"removed; use an empty --data-dir to join as a new member", cfg.DataDir, p.Member)
	default:
		return nil
	}
}

// dialCluster returns a client of the members at endpoints. It uses the certificate and the
// authorities that this member has for clients.
func dialCluster(endpoints []string, who joinLogin, cfg server.Config) (cluster, error) {
	t := cfg.ClientTLS
	secure := t.Auto || t.CertFile != "" || t.ClientCertFile != "" || t.TrustedCAFile != ""
	login := &joinToken{joinLogin: who}
	conf := clientv3.Config{
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(login.intercept())},
	}
	for _, e := range endpoints {
		if at, _ := endpoint.Parse(e); at.Scheme == "" && secure {
			e = "https://" + e
		}
		conf.Endpoints = append(conf.Endpoints, e)
	}
	encrypted := func(text string) bool {
		e, _ := endpoint.Parse(text) // valid: the flag has checked it
		return e.Secure()
	}
	if slices.ContainsFunc(conf.Endpoints, encrypted) {
		var err error
		if conf.TLS, err = clientTLS(t); err != nil {
			return nil, fmt.Errorf("--join: %w", err)
		}
		if t.TrustedCAFile != "" && encrypted(conf.Endpoints[0]) { // the library decides by the first
			conf.DialOptions = append(conf.DialOptions,
				grpc.WithTransportCredentials(listen.Reloading(conf.TLS, t.TrustedCAFile)))
		}
	}
	c, err := clientv3.New(conf)
	if err != nil {
		return nil, fmt.Errorf("--join: %w", err)
	}
	return dialed{c}, nil
}

// dialed is a client of the cluster to join.
type dialed struct{ *clientv3.Client }

// Ours makes a call that only Leasehold serves. An etcd would add this member, but the member could
// never take part. Unlike the library's calls, this one fails at once if there is no connection,
// and returns the reason.
func (d dialed) Ours(ctx context.Context) error {
	_, err := pb.NewLeaseServiceClient(d.ActiveConnection()).Describe(ctx, &pb.DescribeRequest{})
	switch status.Code(err) {
	case codes.Unimplemented:
		return fmt.Errorf("the server there is not a Leasehold member, and joining an etcd cluster is "+
			"not supported: %s", status.Convert(err).Message())
	case codes.Unavailable, codes.DeadlineExceeded:
		return fmt.Errorf("%w%s", err, fault.TLSHint(err.Error()))
	default:
		return nil // it rejects the request, so it serves the method
	}
}

// clientTLS returns the TLS configuration for calling another member's client side. The settings
// for clients of this member do not apply to it.
func clientTLS(t server.TLS) (*tls.Config, error) {
	conf, err := listen.TLS{
		CertFile: t.CertFile, KeyFile: t.KeyFile, TrustedCAFile: t.TrustedCAFile,
		ClientCertFile: t.ClientCertFile, ClientKeyFile: t.ClientKeyFile,
		MinVersion: t.MinVersion, MaxVersion: t.MaxVersion, CipherSuites: t.CipherSuites,
	}.Client()
	if err == nil && t.Auto && t.CertFile == "" {
		conf.InsecureSkipVerify = true // self-signed certificates cannot be verified
	}
	return conf, err
}
