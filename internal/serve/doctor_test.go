package serve

import (
	"bytes"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/server"
	"leasehold.dev/test/certs"
)

// TestDoctorJudges checks that the severity of each finding matches its measurement.
func TestDoctorJudges(t *testing.T) {
	ms := func(half, slow time.Duration) []time.Duration {
		list := make([]time.Duration, 100)
		for i := range list {
			list[i] = half * time.Millisecond
		}
		list[99] = slow * time.Millisecond
		return list
	}
	const gib = 1 << 30
	for name, x := range map[string]struct {
		look func(*doctor)
		want int
	}{
		"quick disk":    {func(d *doctor) { d.syncs(ms(1, 10), time.Second) }, fine},
		"slow disk":     {func(d *doctor) { d.syncs(ms(1, 11), time.Second) }, advice},
		"hanging disk":  {func(d *doctor) { d.syncs(ms(1, 501), time.Second) }, unfit},
		"much room":     {func(d *doctor) { d.room(6*gib, 2*gib) }, fine},
		"some room":     {func(d *doctor) { d.room(6*gib-1, 2*gib) }, advice},
		"no room":       {func(d *doctor) { d.room(2*gib-1, 2*gib) }, unfit},
		"no quota":      {func(d *doctor) { d.room(3*gib, -1) }, fine},
		"much memory":   {func(d *doctor) { d.memory(4*gib, 2*gib) }, fine},
		"little memory": {func(d *doctor) { d.memory(4*gib-1, 2*gib) }, advice},
		"any memory":    {func(d *doctor) { d.memory(1, -1) }, fine},
	} {
		var d doctor
		if x.look(&d); len(d.found) != 1 || d.found[0].degree != x.want {
			t.Errorf("%s: %v, want degree %d", name, d.found, x.want)
		}
	}
}

// certFile writes a certificate that is valid between two times relative to now.
func certFile(t *testing.T, from, to time.Duration) string {
	t.Helper()
	return certs.New(t, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
	}).Path("ca.pem")
}

// TestDoctorCertificates checks that unusable certificates are faults, and that certificates that
// expire soon are warnings.
func TestDoctorCertificates(t *testing.T) {
	const day = 24 * time.Hour
	none := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(none, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		tls  server.TLS
		want int
	}{
		"missing":       {server.TLS{CertFile: "/no/such/file", KeyFile: "/no/such/file"}, unfit},
		"missing CA":    {server.TLS{TrustedCAFile: "/no/such/file"}, unfit},
		"empty CA":      {server.TLS{TrustedCAFile: none}, unfit},
		"good":          {server.TLS{TrustedCAFile: certFile(t, -day, 30*day)}, fine},
		"soon":          {server.TLS{TrustedCAFile: certFile(t, -day, 13*day)}, advice},
		"expired":       {server.TLS{TrustedCAFile: certFile(t, -2*day, -day)}, unfit},
		"not valid yet": {server.TLS{TrustedCAFile: certFile(t, day, 30*day)}, unfit},
	} {
		var d doctor
		if d.certificates("clients", &x.tls); len(d.found) != 1 || d.found[0].degree != x.want {
			t.Errorf("%s: %v, want degree %d", name, d.found, x.want)
		}
	}
}

// TestDoctorLooksAround checks that the data directory can be missing but must be creatable, and
// that doctor reports addresses in use and members that answer.
func TestDoctorLooksAround(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := url.URL{Scheme: "http", Host: l.Addr().String()}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	degree := func(what string, change func(*server.Config)) int {
		cfg := server.DefaultConfig()
		dir := t.TempDir()
		cfg.DataDir = filepath.Join(dir, "not", "made", "yet")
		cfg.URLs.ListenClient, cfg.URLs.ListenPeer = nil, nil
		change(&cfg)
		var d doctor
		d.examine(&cfg)
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("the examination left %v, %v", left, err)
		}
		for _, f := range d.found {
			if f.what == what {
				return f.degree
			}
		}
		t.Errorf("nothing about %s: %v", what, d.found)
		return unfit + 1
	}
	if got := degree("disk", func(c *server.Config) {
		c.DataDir = filepath.Join(file, "x")
	}); got != unfit {
		t.Errorf("a directory below a file: degree %d", got)
	}
	// The duration of syncs depends on the machine, so only check that the disk is examined.
	degree("disk", func(*server.Config) {})
	if got := degree("clients", func(c *server.Config) {
		c.URLs.ListenClient = []url.URL{taken}
	}); got != advice {
		t.Errorf("an address that is in use: degree %d", got)
	}
	if got := degree("member b", func(c *server.Config) {
		c.Cluster.Initial = map[string][]url.URL{c.Name: {taken}, "b": {taken}}
	}); got == unfit {
		t.Errorf("a member that answers: degree %d", got)
	}
}

// TestDoctorJoin checks that doctor with --join tries each address and then the members' peer URLs.
func TestDoctorJoin(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here := l.Addr().String()
	cfg := server.DefaultConfig()
	at := []string{"http://" + here, "127.0.0.1:1"}
	f := &fakeCluster{members: []*pb.Member{
		{ID: 1, Name: "a", PeerURLs: []string{"http://" + here}},
		{ID: 2, PeerURLs: []string{"http://127.0.0.1:1"}},
	}}
	for name, x := range map[string]struct {
		dial func() (cluster, error)
		want []finding // findings without their text
	}{
		"members": {func() (cluster, error) { return f, nil }, []finding{
			{fine, "--join", ""}, {advice, "--join", ""}, {fine, "member a", ""}, {advice, "member 2", ""},
		}},
		"no certificate": {func() (cluster, error) { return nil, os.ErrNotExist }, []finding{
			{fine, "--join", ""}, {advice, "--join", ""}, {unfit, "cluster", ""},
		}},
	} {
		var d doctor
		d.joined(at, &cfg, x.dial)
		for i := range d.found {
			d.found[i].text = ""
		}
		if !slices.Equal(d.found, x.want) {
			t.Errorf("%s: %v, want %v", name, d.found, x.want)
		}
	}
	if !f.ended {
		t.Error("the client is left open")
	}
}

// TestDoctorReport checks that each finding is printed on one line, and that a fault causes an
// error.
func TestDoctorReport(t *testing.T) {
	var d doctor
	d.say(fine, "disk", "quick")
	d.say(advice, "files", "few")
	var out bytes.Buffer
	if err := d.report(&out); err != nil {
		t.Errorf("advice is an error: %v", err)
	}
	if want := "ok      disk         quick\nadvice  files        few\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
	d.say(unfit, "room", "none")
	if err := d.report(&out); err == nil || !strings.Contains(out.String(), "fault   room") {
		t.Errorf("%v, %q", err, out.String())
	}
}
