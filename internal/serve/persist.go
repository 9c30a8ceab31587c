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

// The pauses between attempts to join. The actual pauses are randomized, between 0.5 and 1.5 times
// these values, so that members that start together do not retry in lockstep.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// persist retries do until it succeeds, it fails with a permanent error, or ctx ends. It logs the
// reason for waiting whenever the reason changes.
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
		case !isTemporary(err):
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

// isTemporary reports whether an error might be temporary.
func isTemporary(err error) bool {
	if errors.Is(err, server.ErrUnsupportedVersion) {
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

// dirContents describes what a data directory contains.
type dirContents struct {
	storage.Identity
	hasState bool // whether there is a state, which means that the member has taken part
}

// look examines a data directory, and closes it. The member opens it again later.
func look(dir string) (p dirContents, err error) {
	if storage.Unused(dir) { // leave it alone until the cluster has added this member
		return p, nil
	}
	disk, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		return p, err
	}
	p.Identity, _ = disk.Identity()
	snap, err := disk.Snapshot()
	p.hasState = err == nil && !raft.IsEmptySnap(snap)
	if err == nil {
		err = identity.HalfFounded(disk)
	}
	return p, fault.Join(err, disk.Close())
}

// check returns an error if the data belongs to a different cluster or the member was removed.
func (p dirContents) check(cfg server.Config, list *clientv3.MemberListResponse) error {
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

// dialCluster returns a client for the members at the given endpoints. It uses the certificate and
// the authorities of this member's client side.
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
		e, _ := endpoint.Parse(text) // valid: checked when the flag was set
		return e.Secure()
	}
	if slices.ContainsFunc(conf.Endpoints, encrypted) {
		var err error
		if conf.TLS, err = clientTLS(t); err != nil {
			return nil, fmt.Errorf("--join: %w", err)
		}
		// the first endpoint determines whether the library uses TLS
		if t.TrustedCAFile != "" && encrypted(conf.Endpoints[0]) {
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

// Ours makes a call that only Leasehold supports. An etcd cluster would add this member, but the
// member could never take part. Unlike the library's calls, this one fails immediately if there is
// no connection, and returns the reason.
func (d dialed) Ours(ctx context.Context) error {
	_, err := pb.NewLeaseServiceClient(d.ActiveConnection()).Describe(ctx, &pb.DescribeRequest{})
	switch status.Code(err) {
	case codes.Unimplemented:
		return fmt.Errorf("the server is not a Leasehold member, and joining an etcd cluster is "+
			"not supported: %s", status.Convert(err).Message())
	case codes.Unavailable, codes.DeadlineExceeded:
		return fmt.Errorf("%w%s", err, fault.TLSHint(err.Error()))
	default:
		return nil // the request was rejected, so the method exists
	}
}

// clientTLS returns the TLS configuration for calls to the client port of another member. This
// member's settings for its own clients do not apply.
func clientTLS(t server.TLS) (*tls.Config, error) {
	conf, err := listen.TLS{
		CertFile: t.CertFile, KeyFile: t.KeyFile, TrustedCAFile: t.TrustedCAFile,
		ClientCertFile: t.ClientCertFile, ClientKeyFile: t.ClientKeyFile,
		MinVersion: t.MinVersion, MaxVersion: t.MaxVersion, CipherSuites: t.CipherSuites,
	}.Client()
	if err == nil && t.Auto && t.CertFile == "" {
		conf.InsecureSkipVerify = true // a self-signed certificate cannot be verified
	}
	return conf, err
}
