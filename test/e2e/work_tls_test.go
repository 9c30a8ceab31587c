package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestWorkOverTLS checks that commands that hold leases accept the TLS flags. Without --cacert they
// do not trust the member's self-signed certificate.
func TestWorkOverTLS(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := newMember(t, "--auto-tls")
	secure := strings.Replace(m.url, "http://", "https://", 1)
	for i, a := range m.args {
		if a == m.url {
			m.args[i] = secure
		}
	}
	m.launch()
	ask := func(trusted bool, args ...string) (string, error) {
		flags := []string{"--endpoints", secure, "--command-timeout", (patience / 12).String()}
		if trusted {
			flags = append(flags, "--cacert", filepath.Join(m.data, "fixtures/client/cert.pem"))
		}
		own := 2
		if args[0] == "run" {
			own = 1
		}
		args = append(append(args[:own:own], flags...), args[own:]...)
		out, err := exec.Command(server.Path(t), args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%v: %w: %s", args, err, out)
		}
		return string(out), err
	}
	harness.Eventually(t, "the member serves", func() error {
		_, err := ask(true, "queue", "push", "q", "an item")
		return err
	})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--lock", "l", "--", "echo", "locked"}, "locked"},
		{[]string{"queue", "claim", "q"}, "an item"},
		{[]string{"pool", "create", "p", "a"}, "1 ID"},
		{[]string{"pool", "acquire", "p", "--", "echo", "on loan"}, "on loan"},
		{[]string{"group", "register", "g", "m", "--", "echo", "a member"}, "a member"},
	} {
		if out, err := ask(true, tt.args...); err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %q, %v", tt.args, out, err)
		}
	}
	out, err := ask(false, "run", "--lock", "l", "--try", "--", "echo", "never")
	if err == nil || !strings.Contains(out, "certificate") {
		t.Errorf("without --cacert: %q, %v", out, err)
	}
}
