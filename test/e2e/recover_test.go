package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// recovers runs "leasehold recover" on the member. It must exit with the given code and print every
// text in want.
func (m *member) recovers(code int, args []string, want ...string) {
	m.t.Helper()
	// The timeouts are long enough for a busy machine.
	limits := []string{"recover", "--dial-timeout=1m", "--command-timeout=1m"}
	out, err := m.command(append(limits, args...)...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			m.t.Errorf("recover %q does not say %q:\n%s", args, w, out)
		}
	}
	if got != code {
		m.t.Errorf("recover %q ends with %d, want %d:\n%s", args, got, code, out)
	}
}

// fill puts values until the quota is exhausted. key returns the key for the i-th value.
func (m *member) fill(key func(i int) string) {
	m.t.Helper()
	c := m.client()
	for i := 0; ; i++ {
		_, err := c.Put(m.t.Context(), key(i), strings.Repeat("v", 1000))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// TestRecoverQuota checks that recover frees space in a quota that is exhausted by history, but
// only with --yes. If keys exhausted the quota, recover deletes none of them and explains what to
// do.
func TestRecoverQuota(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t, "--quota-backend-bytes", "100000", "--auto-compaction-retention", "0")
	m.recovers(0, nil, "nothing to recover")
	m.fill(func(int) string { return "k" })
	m.recovers(9, nil, "the quota is used up", "--quota-backend-bytes=200000")
	c := m.client()
	if _, err := c.Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("recover has changed something without --yes: %v", err)
	}
	m.recovers(0, []string{"--yes"}, "done: compacted at revision", "done: cleared the alarm")
	if r, err := c.Get(t.Context(), "k"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("the key: %v, %v", r, err)
	}
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Errorf("after the recovery: %v", err)
	}
	m.fill(func(i int) string { return fmt.Sprint("k/", i) })
	m.recovers(9, []string{"--yes"}, "done: compacted at revision", "the state still uses")
	if _, err := m.command("del", "k/", "--prefix"); err != nil {
		t.Fatal(err)
	}
	m.recovers(0, []string{"--yes"}) // the alarm may have been cleared in the meantime
	m.recovers(0, nil, "nothing to recover")
}

// TestRecoverTwoClusters checks that recover does nothing if its endpoints belong to two clusters,
// in either order, and reports which endpoint belongs to which. It also does nothing if
// --cluster-id names another cluster.
func TestRecoverTwoClusters(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	full := startMember(t, "--quota-backend-bytes", "100000", "--auto-compaction-retention", "0")
	other := startMember(t)
	full.fill(func(int) string { return "k" })
	for _, both := range []string{full.url + "," + other.url, other.url + "," + full.url} {
		full.recovers(9, []string{"--yes", "--endpoints", both}, "the endpoints belong to 2 clusters",
			"--endpoints "+strings.TrimPrefix(full.url, "http://")+"  # of cluster",
			"--endpoints "+strings.TrimPrefix(other.url, "http://")+"  # of cluster")
	}
	full.recovers(1, []string{"--yes", "--cluster-id", "1"}, "cannot be queried",
		"the client expects cluster 1")
	_, err := full.client().Put(t.Context(), "k", "v")
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("recover has changed something: %v", err)
	}
	full.recovers(0, []string{"--yes"}, "done: cleared the alarm")
}

// issue writes a certificate and its key, replacing the previous ones. The certificate is valid for
// the two days before the given instant.
func issue(a *certs.Authority, name string, until time.Time) (cert, key string) {
	a.Issue(name, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = until.Add(-48*time.Hour), until
	})
	return a.Path(name + ".pem"), a.Path(name + ".key")
}

// TestRecoverCertificates checks that recover reports expired certificates of members and of the
// caller. It also verifies recover's statement that a member loads a new certificate without a
// restart.
func TestRecoverCertificates(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	a := certs.New(t)
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	cert, key := issue(a, "server", past)
	m := newMember(t, "--cert-file", cert, "--key-file", key)
	plain := m.url
	m.url = strings.Replace(m.url, "http://", "https://", 1)
	for i, arg := range m.args {
		if arg == plain {
			m.args[i] = m.url
		}
	}
	m.launch()
	ca := a.Path("ca.pem")
	short := []string{"--command-timeout", "300ms"} // no member will ever answer
	flags := []string{"--cacert", ca}
	// Use a handshake. A starting member briefly opens its ports to test them, so a connection is
	// not enough.
	harness.Eventually(t, "the member listens", func() error {
		c, err := tls.Dial("tcp", strings.TrimPrefix(m.url, "https://"),
			&tls.Config{InsecureSkipVerify: true})
		if err == nil {
			err = c.Close()
		}
		return err
	})
	m.recovers(9, slices.Concat(flags, short), "certificates have expired",
		"of "+strings.TrimPrefix(m.url, "https://")+" (CN=server) expired at",
		"replace the files of --cert-file and --key-file")
	issue(a, "server", future)
	m.recovers(0, flags, "nothing to recover")
	own, ownKey := issue(a, "client", past)
	flags = append(flags, "--cert", own, "--key", ownKey)
	m.recovers(9, slices.Concat(flags, short), "the certificate in "+own+" (CN=client) expired")
	issue(a, "client", future)
	m.recovers(0, flags, "nothing to recover")
}
