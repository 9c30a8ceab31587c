package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// joinLogin holds the credentials of a joiner for a cluster with access control. The files are read
// only when they are needed, because a member that has joined no longer needs them.
type joinLogin struct{ user, passwordFile, tokenFile string }

// check rejects flags that contradict each other.
func (l *joinLogin) check(joins bool) error {
	switch {
	case *l == joinLogin{}:
		return nil
	case !joins:
		return usageError("--join-user, --join-password-file and --join-token-file require --join")
	case (l.user == "") != (l.passwordFile == ""):
		return usageError("--join-user and --join-password-file must be set together")
	case l.user != "" && l.tokenFile != "":
		return usageError("--join-user and --join-token-file are mutually exclusive")
	}
	return nil
}

// joinToken adds a token to the calls of a joiner.
type joinToken struct {
	joinLogin

	mu    sync.Mutex // guards the fields below; held during a login
	token string
}

// intercept returns an interceptor that adds the token to each call. If a token is rejected, the
// next call logs in again.
func (l *joinToken) intercept() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		next grpc.UnaryInvoker, o ...grpc.CallOption,
	) error {
		token := ""
		if method != etcdserverpb.Auth_Authenticate_FullMethodName {
			var err error
			if token, err = l.get(ctx, conn); err != nil {
				return err
			}
		}
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
		}
		err := next(ctx, method, req, reply, conn, o...)
		if status.Code(err) == codes.Unauthenticated {
			l.mu.Lock()
			l.token = ""
			l.mu.Unlock()
		}
		return explainDenied(err)
	}
}

// get returns the current token, or logs in to get a new one. The token is "" if there are no
// credentials or access control is disabled.
func (l *joinToken) get(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.tokenFile != "":
		return secretOf("--join-token-file", l.tokenFile)
	case l.user == "", l.token != "":
		return l.token, nil
	}
	password, err := secretOf("--join-password-file", l.passwordFile)
	if err != nil {
		return "", err
	}
	r, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx,
		&etcdserverpb.AuthenticateRequest{Name: l.user, Password: password})
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		return "", nil
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed):
		return "", status.Errorf(codes.InvalidArgument,
			"the cluster rejected the login of --join-user %s with the password in %s",
			l.user, l.passwordFile)
	case err != nil:
		return "", err
	}
	l.token = r.Token
	return l.token, nil
}

// secretOf reads a secret from a file. It trims surrounding white space.
func secretOf(flag, file string) (string, error) {
	b, err := os.ReadFile(file)
	secret := strings.TrimSpace(string(b))
	if err == nil && secret == "" {
		err = fmt.Errorf("%s is empty", file)
	}
	if err != nil {
		return "", status.Errorf(codes.InvalidArgument, "%s: %v", flag, err)
	}
	return secret, nil
}

// explainDenied wraps an access control error and adds a remedy.
func explainDenied(err error) error {
	const how = "log in as a user with the role root (--join-user and --join-password-file, " +
		"--join-token-file, or a client certificate); or have root add and promote the member " +
		"with \"leasehold member add --learner\", and log in as any user"
	switch known := rpctypes.Error(err); {
	case errors.Is(known, rpctypes.ErrUserEmpty):
		return &explained{known, "the cluster requires a login: " + how}
	case errors.Is(known, rpctypes.ErrPermissionDenied):
		return &explained{known, "adding or promoting a member requires the role root: " + how}
	default:
		return err
	}
}

// explained is an error with advice.
type explained struct {
	error
	how string
}

// Error implements error.
func (e *explained) Error() string { return e.error.Error() + "; " + e.how }

// Unwrap returns the error.
func (e *explained) Unwrap() error { return e.error }
