package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// known lists, by name, the exported errors of the packages whose errors reach the API.
// TestWireComplete compares it with the source.
var known = map[string]error{
	"lease.ErrNotFound":              lease.ErrNotFound,
	"lease.ErrExists":                lease.ErrExists,
	"lease.ErrBadID":                 lease.ErrBadID,
	"lease.ErrExpiring":              lease.ErrExpiring,
	"lease.ErrBound":                 lease.ErrBound,
	"lease.ErrNotPrimary":            lease.ErrNotPrimary,
	"lease.ErrCorrupt":               lease.ErrCorrupt,
	"lease.TTLError":                 &lease.TTLError{Got: 2, Max: 1},
	"lease.NameError":                &lease.NameError{Name: "n"},
	"lease.KeyLimitError":            &lease.KeyLimitError{ID: 1, Limit: 1},
	"mvcc.ErrCompacted":              mvcc.ErrCompacted,
	"mvcc.ErrFutureRevision":         mvcc.ErrFutureRevision,
	"fsm.ErrKeyNotFound":             fsm.ErrKeyNotFound,
	"fsm.UnnamedError":               &fsm.UnnamedError{Name: "n"},
	"fsm.ErrNoSpace":                 fsm.ErrNoSpace,
	"fsm.ErrDiverged":                fsm.ErrDiverged,
	"fsm.ErrSessionNotFound":         fsm.ErrSessionNotFound,
	"fsm.ErrEventsCompacted":         fsm.ErrEventsCompacted,
	"fsm.ErrMemberNotFound":          fsm.ErrMemberNotFound,
	"fsm.ErrTooManyAlarms":           fsm.ErrTooManyAlarms,
	"fsm.ErrVersion":                 fsm.ErrVersion,
	"fsm.ErrDowngrade":               fsm.ErrDowngrade,
	"fsm.ErrNoDowngrade":             fsm.ErrNoDowngrade,
	"fsm.ErrBadHolds":                fsm.ErrBadHolds,
	"fsm.ErrTooManyHolds":            fsm.ErrTooManyHolds,
	"fsm.ErrOwnerHolds":              fsm.ErrOwnerHolds,
	"access.ErrRootUserNotExist":     access.ErrRootUserNotExist,
	"access.ErrRootRoleNotExist":     access.ErrRootRoleNotExist,
	"access.ErrUserExists":           access.ErrUserExists,
	"access.ErrUserNotFound":         access.ErrUserNotFound,
	"access.ErrUserEmpty":            access.ErrUserEmpty,
	"access.ErrRoleExists":           access.ErrRoleExists,
	"access.ErrRoleNotFound":         access.ErrRoleNotFound,
	"access.ErrRoleEmpty":            access.ErrRoleEmpty,
	"access.ErrRoleNotGranted":       access.ErrRoleNotGranted,
	"access.ErrPermissionNotGranted": access.ErrPermissionNotGranted,
	"access.ErrPermissionNotGiven":   access.ErrPermissionNotGiven,
	"access.ErrInvalidAuthMgmt":      access.ErrInvalidAuthMgmt,
	"access.ErrNotEnabled":           access.ErrNotEnabled,
	"access.ErrPermissionDenied":     access.ErrPermissionDenied,
	"access.ErrInvalidLogin":         access.ErrInvalidLogin,
	"access.ErrOldRevision":          access.ErrOldRevision,
	"api.TimeoutError":               &TimeoutError{Caches: 5000},
	"fsm.CacheTTLError":              &fsm.CacheTTLError{Got: 2, Max: 1},
	"fsm.ErrStale":                   fsm.ErrStale,
	"fsm.ErrUnreadable":              fsm.ErrUnreadable,
	"fsm.ErrTxnTooLarge":             fsm.ErrTxnTooLarge,
	"fsm.ErrMemberExists":            fsm.ErrMemberExists,
	"fsm.ErrPeerURLExists":           fsm.ErrPeerURLExists,
	"fsm.ErrNotLearner":              fsm.ErrNotLearner,
	"fsm.ErrLastVoter":               fsm.ErrLastVoter,
	"replica.ErrNoLeader":            replica.ErrNoLeader,
	"replica.ErrLeaderChanged":       replica.ErrLeaderChanged,
	"replica.ErrTooLarge":            replica.ErrTooLarge,
	"replica.ErrVersion":             replica.ErrVersion,
	"replica.ErrOverloaded":          replica.ErrOverloaded,
	"replica.ErrInternal":            replica.ErrInternal,
	"replica.ErrUnhealthy":           replica.ErrUnhealthy,
	"replica.ErrTooManyLearners":     replica.ErrTooManyLearners,
	"replica.ErrLearnerNotReady":     replica.ErrLearnerNotReady,
	"replica.ErrBadTransferee":       replica.ErrBadTransferee,
	"access.DeniedError":             &access.DeniedError{User: "u"},
	"api.ErrTooDeep":                 ErrTooDeep,
	"api.ErrDuplicateKey":            ErrDuplicateKey,
	"api.ErrTooManyRequests":         ErrTooManyRequests,
	"api.ErrDiskFull":                ErrDiskFull,
	"api.ErrStopped":                 ErrStopped,
	"api.ErrTimeout":                 ErrTimeout,
	"api.HolderError":                &HolderError{Err: lease.ErrExists},
	"access.LimitError":              &access.LimitError{What: access.Leases, Limit: 1, Used: 1},
	"api.RateError":                  &RateError{LimitError: access.LimitError{What: access.Rate}},
}

// inside lists errors that no API call can return. They occur before the API is served, during a
// restore, or in messages from other members; or they stop the member; or they are handled
// internally.
var inside = map[string]bool{
	"api.ErrUndecided":   true,
	"fsm.ErrIncarnation": true, "replica.ErrImpossible": true, "replica.ErrDamaged": true,
	"fsm.ErrCorrupt": true, "fsm.ErrRevision": true, "replica.ErrMessage": true,
}

// TestWireComplete requires an entry for every exported error (variable or type) in the source of
// the packages below the API. An error without an entry would reach clients as Unknown.
func TestWireComplete(t *testing.T) {
	for name, dir := range map[string]string{
		"lease": "../../lease", "mvcc": "../mvcc", "fsm": "../fsm", "replica": "../replica",
		"access": "../access", "api": ".",
	} {
		for _, e := range exported(t, dir) {
			full := name + "." + e
			if inside[full] {
				continue
			}
			err, ok := known[full]
			if !ok {
				t.Errorf("%s: not in the table", full)
				continue
			}
			for _, err := range []error{err, fmt.Errorf("while testing: %w", err)} {
				if code := status.Code(Error(err)); code == codes.Unknown || code == codes.OK {
					t.Errorf("%s: code %v", full, code)
				}
				reason := Reason(err)
				if _, ok := nativeCodes[reason]; !ok {
					t.Errorf("%s: reason %v", full, reason)
				}
			}
		}
	}
}

// exported lists the exported errors in the Go files of a directory.
func exported(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		p, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(p, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return false
			case *ast.ValueSpec:
				for _, id := range n.Names {
					if strings.HasPrefix(id.Name, "Err") {
						out = append(out, id.Name)
					}
				}
			case *ast.TypeSpec:
				if n.Name.IsExported() && strings.HasSuffix(n.Name.Name, "Error") {
					out = append(out, n.Name.Name)
				}
			}
			return true
		})
	}
	if len(out) == 0 {
		t.Fatalf("no errors in %s", dir)
	}
	return out
}

// TestError checks that an error from any layer is converted to the status that etcd's clients
// expect.
func TestError(t *testing.T) {
	other := status.Error(codes.DataLoss, "as it is")
	for _, tt := range []struct{ err, want error }{
		{nil, nil},
		{lease.ErrNotFound, rpctypes.ErrGRPCLeaseNotFound},
		{lease.ErrExists, rpctypes.ErrGRPCLeaseExist},
		{lease.ErrExpiring, rpctypes.ErrGRPCLeaseNotFound},
		{&lease.TTLError{Got: 3, Min: 1, Max: 2}, rpctypes.ErrGRPCLeaseTTLTooLarge},
		{Timeout(0), rpctypes.ErrGRPCTimeout},
		{
			Timeout(5000), status.Error(codes.Unavailable, rpctypes.ErrTimeout.Error()+
				", possibly after waiting up to 5000 ms for a cache that does not respond "+
				"(leasehold lease watch shows which); it may still take effect"),
		},
		{fmt.Errorf("read: %w", mvcc.ErrCompacted), rpctypes.ErrGRPCCompacted},
		{mvcc.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},
		{fsm.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
		{fsm.ErrDiverged, rpctypes.ErrGRPCCorrupt},
		{fmt.Errorf("%w: disk", fsm.ErrNoSpace), rpctypes.ErrGRPCNoSpace},
		{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
		{fsm.ErrMemberNotFound, rpctypes.ErrGRPCMemberNotFound},
		{fsm.ErrMemberExists, rpctypes.ErrGRPCMemberExist},
		{fsm.ErrPeerURLExists, rpctypes.ErrGRPCPeerURLExist},
		{fsm.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner},
		{fsm.ErrLastVoter, rpctypes.ErrGRPCMemberNotEnoughStarted},
		{replica.ErrUnhealthy, rpctypes.ErrGRPCUnhealthy},
		{replica.ErrTooManyLearners, rpctypes.ErrGRPCTooManyLearners},
		{replica.ErrLearnerNotReady, rpctypes.ErrGRPCLearnerNotReady},
		{replica.ErrBadTransferee, rpctypes.ErrGRPCBadLeaderTransferee},
		{ErrTimeout, rpctypes.ErrGRPCTimeout},
		{ErrStopped, rpctypes.ErrGRPCStopped},
		{ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
		{context.Canceled, rpctypes.ErrGRPCCanceled},
		{context.DeadlineExceeded, rpctypes.ErrGRPCDeadlineExceeded},
		{other, other},
		{errors.New("x: unlisted"), status.Error(codes.Unknown, "x: unlisted")},
		{
			&lease.TTLError{Got: 1, Min: 5, Max: 9},
			status.Error(codes.InvalidArgument, "lease ttl 1 ms is not between 5 and 9 ms"),
		},
	} {
		got := Error(tt.err)
		if status.Code(got) != status.Code(tt.want) ||
			status.Convert(got).Message() != status.Convert(tt.want).Message() {
			t.Errorf("Error(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

// TestNoPackageNames checks that errors visible to clients do not begin with a package name.
func TestNoPackageNames(t *testing.T) {
	for _, err := range known {
		for api, sent := range map[string]string{
			"etcd": status.Convert(Error(err)).Message(),
			"own":  ErrorMessage(err, Reason(err)).GetMessage(),
		} {
			for _, name := range []string{"fsm:", "lease:", "mvcc:", "lease lease "} {
				if strings.HasPrefix(sent, name) {
					t.Errorf("%s: %v is sent as %q", api, err, sent)
				}
			}
		}
	}
}

// TestProposalDeadline checks that when a command's deadline passes, its outcome is unknown and the
// client gets the same error as from etcd.
func TestProposalDeadline(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{context.DeadlineExceeded, rpctypes.ErrGRPCTimeout},
		{fmt.Errorf("put: %w", context.DeadlineExceeded), rpctypes.ErrGRPCTimeout},
		{context.Canceled, rpctypes.ErrGRPCCanceled},
		{replica.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
		{replica.ErrNoLeader, rpctypes.ErrGRPCTimeout},
	} {
		if got := ProposalError(tt.err); status.Convert(got).Message() !=
			status.Convert(tt.want).Message() {
			t.Errorf("ProposalError(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

// TestReadWithoutLeader checks that a read that finds no leader in time gets the same error as from
// etcd. A read whose own deadline has passed gets only a deadline error.
func TestReadWithoutLeader(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{nil, nil},
		{replica.ErrNoLeader, rpctypes.ErrGRPCTimeout},
		{context.DeadlineExceeded, rpctypes.ErrGRPCDeadlineExceeded},
		{replica.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
	} {
		if got := ReadError(tt.err); status.Convert(got).Message() !=
			status.Convert(tt.want).Message() {
			t.Errorf("ReadError(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

// TestClientsRecognize checks that etcd's client recognizes its own errors in the ones that we
// send.
func TestClientsRecognize(t *testing.T) {
	for _, w := range wire {
		s := status.Convert(w.to)
		// Errors without an etcd constant have messages of their own.
		if _, ok := rpctypes.Error(w.to).(rpctypes.EtcdError); ok {
			continue
		}
		switch {
		case w.from == context.Canceled, w.from == context.DeadlineExceeded, //nolint:errorlint
			w.from == lease.ErrBadID: //nolint:errorlint
		case w.from == fsm.ErrSessionNotFound: //nolint:errorlint // etcd has no sessions
		case w.from == fsm.ErrBadHolds, w.from == fsm.ErrTooManyHolds, //nolint:errorlint
			w.from == fsm.ErrOwnerHolds: //nolint:errorlint // etcd has no holds
		case w.from == lease.ErrBound: //nolint:errorlint // etcd has no bound leases
		case w.from == fsm.ErrTooManyAlarms: //nolint:errorlint // etcd has no limit on alarms
		case w.from == replica.ErrVersion: //nolint:errorlint // etcd has no versioned commands
		case w.from == access.ErrPermissionNotGiven: //nolint:errorlint // etcd's client lacks it
		case w.from == login.ErrPasswordTooLong, //nolint:errorlint // Unknown in etcd
			w.from == login.ErrVerifyOnly, w.from == login.ErrNoTokens: //nolint:errorlint
		case w.from == login.ErrTooManyFailures: //nolint:errorlint // etcd has no such limit
		case w.from == fsm.ErrUnreadable: //nolint:errorlint // etcd has no such error
		default:
			t.Errorf("%v: clients do not recognize %q", w.from, s.Message())
		}
	}
}
