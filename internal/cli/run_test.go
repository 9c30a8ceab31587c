package cli

import (
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// Goal: where no member can be reached, run says so with a code of its own, and does not
// run the command.
func TestRunUnreachable(t *testing.T) {
	var out, errs strings.Builder
	code := Main(Process{
		Args: []string{
			"run", "--lock", "a", "--endpoints", "127.0.0.1:1", "--command-timeout", "100ms", "--",
			"echo", "never",
		},
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
	})
	if code != exitNoCore || out.Len() != 0 || !strings.Contains(errs.String(), "unavailable") {
		t.Errorf("exit code %d, said %q, complained %q", code, out.String(), errs.String())
	}
}

// Goal: commands that run others say by a code which no command has that their arguments are
// wrong, and what to do with the flags that are about TLS.
func TestWrongArguments(t *testing.T) {
	away := []string{"--endpoints", "https://127.0.0.1:1", "--command-timeout", "100ms"}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "--lock", "a", "--bogus", "--", "x"}, exitBadArgs, "--bogus"},
		{[]string{"run", "--lock", "a", "--ttl", "x", "--", "x"}, exitBadArgs, "--ttl"},
		{[]string{"run", "--", "x"}, exitBadArgs, "--lock or --elect"},
		{[]string{"run", "--lock", "a", "sh", "-c", "x"}, exitBadArgs, "come after --"},
		{[]string{"run", "--lock", "a", "--wait", "-1s", "--", "x"}, exitBadArgs, "--wait must"},
		{
			[]string{"run", "--lock", "a", "--min-hold", "2500001h", "--", "x"},
			exitBadArgs, "--min-hold must",
		},
		{[]string{"run", "--lock", "a", "--term-before", "-1s", "--", "x"}, exitBadArgs, "--term-b"},
		{[]string{"help", "nosuch"}, exitFailure, `unknown command "nosuch"`},
		{[]string{"help", "lease", "nosuch"}, exitFailure, `unknown command "nosuch"`},
		{[]string{"get", "x", "--endpoints", "10.0.0.1"}, exitBadArgs, "has no port"},
		{[]string{"get", "x", "--endpoints", "::1:2379"}, exitBadArgs, "such as [::1]:2379"},
		{[]string{"run", "--lock", "a", "--endpoints", "a", "--", "x"}, exitBadArgs, "has no port"},
		{
			append([]string{"lease", "keep-alive", "7", "--dial-timeout", "1ms"}, away[0], "127.0.0.1:1",
				away[2], away[3]),
			exitConnection, "may have expired",
		},
		{[]string{"run", "--lock", "a"}, exitBadArgs, "after --"},
		{[]string{"queue", "work", "q", "--idle", "--", "x"}, exitBadArgs, "--idle-exit"},
		{[]string{"queue", "work", "q"}, exitBadArgs, "usage: leasehold queue work"},
		{[]string{"pool", "acquire", "p", "--bogus", "--", "x"}, exitBadArgs, "--bogus"},
		{[]string{"pool", "acquire"}, exitBadArgs, "usage: leasehold pool"},
		{[]string{"group", "register", "g", "m", "--ttl", "x"}, exitBadArgs, "--ttl"},
		{[]string{"group", "register", "g"}, exitBadArgs, "usage: leasehold group"},
		{
			append([]string{"queue", "push", "q", "x", "--cacert", "/no/such"}, away...),
			exitBadArgs, "/no/such",
		},
		{append([]string{"queue", "push", "q", "x"}, away...), exitFailure, "unavailable"},
		{append([]string{"group", "register", "g", "m"}, away...), exitNoCore, "unavailable"},
		{append([]string{"pool", "acquire", "p"}, away...), exitNoCore, "unavailable"},
		{append([]string{"group", "watch", "g"}, away...), exitConnection, "unavailable"},
		{append([]string{"lease", "watch"}, away...), exitConnection, "unavailable"},
	} {
		var out, errs strings.Builder
		code := Main(Process{
			Args: tt.args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		})
		if code != tt.code || out.Len() != 0 || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%q: exit code %d, said %q, complained %q",
				tt.args, code, out.String(), errs.String())
		}
	}
}

// TestMinHoldEnds: a lock whose --min-hold is nearly over is kept for the shortest TTL, or revoked
// when it is over if the cluster does not allow such a short one.
func TestMinHoldEnds(t *testing.T) {
	for _, refused := range []bool{false, true} {
		var ttl atomic.Int64
		var revoked atomic.Bool
		rig.Mute(t, func(r *pb.Request) *pb.Response {
			switch x := r.Body.(type) {
			case *pb.Request_ChangeTtl:
				ttl.Store(x.ChangeTtl.TtlMs)
				if refused {
					return rig.Refusal(pb.Reason_REASON_INVALID)
				}
				return &pb.Response{Body: &pb.Response_ChangeTtl{ChangeTtl: &pb.ChangeTTLResponse{
					Lease: &pb.Lease{Id: 1, Token: 1, TtlMs: x.ChangeTtl.TtlMs, RemainingMs: 1},
				}}}
			case *pb.Request_Revoke:
				revoked.Store(true)
				return &pb.Response{Body: &pb.Response_Revoke{Revoke: &pb.RevokeResponse{
					Results: []*pb.RevokeResult{{Id: 1}},
				}}}
			}
			return nil
		}, func(t *testing.T, c *client.Client) {
			l := rig.Must[*client.Lease](t)(c.Grant(t.Context(), client.Grant{TTL: time.Minute}))
			start := time.Now()
			err := keepFor(l, 10*time.Millisecond)
			took := time.Since(start)
			if err != nil || ttl.Load() != 100 || revoked.Load() != refused ||
				refused != (took == 10*time.Millisecond) {
				t.Errorf("refused %v: %v after %v, TTL %d ms, revoked %v",
					refused, err, took, ttl.Load(), revoked.Load())
			}
		})
	}
}

// TestMinHold: with --min-hold the lock stays taken after a command that was short, so that a
// second cron job does not run it again, and without it the lock is free at once.
func TestMinHold(t *testing.T) {
	m := inprocess.Run(t, 1)[0]
	run := func(args ...string) int {
		return Main(Process{
			Args: slices.Concat([]string{
				"run", "--endpoints", m.Endpoint(), "--command-timeout", "1h", "--ttl", "1h", "--try",
			}, args, []string{"--", "true"}),
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Shared: true,
		})
	}
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--lock", "free"}, 0},
		{[]string{"--lock", "free"}, 0},
		{[]string{"--lock", "kept", "--min-hold", "1000h"}, 0},
		{[]string{"--lock", "kept"}, exitTaken},
	} {
		if code := run(tt.args...); code != tt.want {
			t.Errorf("run %v: exit code %d, want %d", tt.args, code, tt.want)
		}
	}
}
