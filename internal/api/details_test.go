package api

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// google returns the google.rpc details in a status.
func google(err error) (info *errdetails.ErrorInfo, retry int64) {
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration().Milliseconds()
		}
	}
	return info, retry
}

// TestDetails checks that each of our errors is sent with its reason, and that both APIs use the
// same reason. The code and message, which etcd's clients rely on, are unchanged.
func TestDetails(t *testing.T) {
	form := regexp.MustCompile(`^[A-Z][A-Z0-9_]+[A-Z0-9]$`)
	for name, err := range known {
		sent := Error(err)
		left := Inform(sent)
		if status.Code(left) != status.Code(sent) ||
			status.Convert(left).Message() != status.Convert(sent).Message() {
			t.Errorf("%s: %v became %v", name, sent, left)
		}
		if a, b := rpctypes.Error(sent), rpctypes.Error(left); a.Error() != b.Error() {
			t.Errorf("%s: etcd's clients see %v, want %v", name, b, a)
		}
		own := NativeError(err, Reason(err))
		for _, got := range []error{left, own, Inform(own)} {
			info, _ := google(got)
			if info == nil || info.Domain != "leasehold.dev" || !form.MatchString(info.Reason) ||
				pb.Reason_value["REASON_"+info.Reason] == 0 {
				t.Errorf("%s: %v has details %v", name, got, status.Convert(got).Details())
			}
		}
		if d := Detail(own); d == nil || d.Reason != Reason(err) {
			t.Errorf("%s: %v", name, d)
		}
	}
}

// TestFacts checks that an error's data is in its metadata, along with the retry delay, if known.
func TestFacts(t *testing.T) {
	held := lease.Info{Terms: lease.Terms{ID: 7, Name: "n", LockDelay: 900}, Token: 9}
	over := held
	over.Delayed = true
	for _, tt := range []struct {
		err    error
		reason string
		want   map[string]string
		retry  int64
	}{
		{lease.ErrNotFound, "LEASE_NOT_FOUND", nil, 0},
		{replica.ErrNoLeader, "UNAVAILABLE", map[string]string{"cause": "NO_LEADER"}, 100},
		{
			fmt.Errorf("login: %w", replica.ErrNoLeader), "UNAVAILABLE",
			map[string]string{"cause": "NO_LEADER"},
			100,
		},
		{
			&TimeoutError{Caches: 5, Outage: "no leader"}, "UNKNOWN_OUTCOME",
			map[string]string{"cause": "NO_LEADER", "cache_wait_ms": "5"},
			0,
		},
		{fmt.Errorf("put: %w", replica.ErrOverloaded), "UNAVAILABLE", nil, 100},
		{ErrTooManyRequests, "UNAVAILABLE", nil, 100},
		{
			&lease.TTLError{Got: 1, Min: 5, Max: 9}, "INVALID",
			map[string]string{"ttl_ms": "1", "min_ttl_ms": "5", "max_ttl_ms": "9"},
			0,
		},
		{
			&lease.TTLError{Got: 10, Min: 5, Max: 9}, "INVALID",
			map[string]string{"ttl_ms": "10", "min_ttl_ms": "5", "max_ttl_ms": "9"},
			0,
		},
		{
			&fsm.CacheTTLError{Got: 7, Max: 5}, "INVALID",
			map[string]string{"ttl_ms": "7", "max_ttl_ms": "5"},
			0,
		},
		{
			&lease.KeyLimitError{ID: 3, Limit: 2}, "TOO_MANY_KEYS",
			map[string]string{"lease": "3", "limit": "2"},
			0,
		},
		{Timeout(5000), "UNKNOWN_OUTCOME", map[string]string{"cache_wait_ms": "5000"}, 0},
		{
			&lease.NameError{Name: "n", Holder: held}, "NAME_TAKEN",
			map[string]string{"lease": "7", "token": "9"},
			0,
		},
		{
			fmt.Errorf("grant: %w", &HolderError{Err: lease.ErrExists, Holder: over}), "ID_TAKEN",
			map[string]string{"lease": "7", "token": "9", "lock_delay_ms": "900"},
			900,
		},
	} {
		for api, got := range map[string]error{
			"etcd": Inform(Error(tt.err)), "own": NativeError(tt.err, Reason(tt.err)),
		} {
			info, retry := google(got)
			if info.GetReason() != tt.reason || !maps.Equal(info.GetMetadata(), tt.want) ||
				retry != tt.retry {
				t.Errorf("%s: %v: %v, retry after %d ms", api, tt.err, info, retry)
			}
		}
	}
}

// TestInform checks that errors from other packages are left unchanged. A bare status gets a reason
// if its code implies one.
func TestInform(t *testing.T) {
	other := errors.New("x")
	for _, err := range []error{nil, other, status.Error(codes.NotFound, "other")} {
		if got := Inform(err); got != err { //nolint:errorlint // identical
			t.Errorf("%v became %v", err, got)
		}
	}
	for code, want := range map[codes.Code]string{
		codes.InvalidArgument: "INVALID", codes.Unavailable: "UNAVAILABLE",
	} {
		got := Inform(status.Error(code, "other"))
		if info, _ := google(got); info.GetReason() != want || status.Code(got) != code {
			t.Errorf("%v: %v", code, got)
		}
	}
}
