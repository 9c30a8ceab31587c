package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/storage"
	"leasehold.dev/server"
)

const doctorLong = `Check the machine that a member will run on, with the settings that "leasehold
serve" would use: disk sync time and free space, the open file limit, memory, clocks, ports,
certificates, and connections to the other members. Each line states a finding and what to do about
it. Nothing is changed, except that a 200 kB file is written to the data directory and removed.

Exit codes: 0 if a member can run, even if there is advice; 1 if there is a fault.`

// DoctorCommand returns the command "leasehold doctor", which checks a machine before a member runs
// on it.
func DoctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Check whether a member can run on this machine", Long: doctorLong,
		Example: "  leasehold doctor /etc/leasehold/leasehold.yaml\n" +
			"  leasehold doctor --data-dir /var/lib/leasehold",
	}
	return withSettings(c, os.Environ, hostname,
		func(w io.Writer, f *flags, cfg server.Config, _ []string) error {
			var d doctor
			d.examine(&cfg)
			if len(f.join.endpoints) > 0 {
				d.joined(f.join.endpoints, &cfg, func() (cluster, error) {
					return dialCluster(f.join.endpoints, f.join.login, cfg)
				})
			}
			return d.report(w)
		})
}

// The severities of findings.
const (
	fine = iota
	advice
	unfit
)

var degrees = []string{"ok", "advice", "fault"}

// finding is the result of one check.
type finding struct {
	degree     int
	what, text string
}

// doctor collects findings.
type doctor struct{ found []finding }

func (d *doctor) say(degree int, what, format string, args ...any) {
	d.found = append(d.found, finding{degree, what, fmt.Sprintf(format, args...)})
}

// report prints all findings. It returns an error if any of them is a fault.
func (d *doctor) report(w io.Writer) error {
	worst := fine
	for _, f := range d.found {
		worst = max(worst, f.degree)
		fmt.Fprintf(w, "%-7s %-12s %s\n", degrees[f.degree], f.what, f.text)
	}
	if worst == unfit {
		return errors.New("a member cannot run reliably on this machine: fix the faults above")
	}
	return nil
}

func (d *doctor) examine(cfg *server.Config) {
	d.disk(cfg)
	d.machine(cfg)
	for _, x := range []struct {
		what string
		urls []url.URL
		tls  *server.TLS
	}{
		{"clients", slices.Concat(cfg.URLs.ListenClient, cfg.URLs.ListenClientHTTP), &cfg.ClientTLS},
		{"members", cfg.URLs.ListenPeer, &cfg.PeerTLS},
	} {
		for _, u := range x.urls {
			d.port(x.what, u)
		}
		d.certificates(x.what, x.tls)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Cluster.Initial)) {
		if name != cfg.Name {
			d.other(name, cfg.Cluster.Initial[name], cfg)
		}
	}
}

// disk measures syncs in the data directory or, if it does not exist, in the nearest existing
// parent.
func (d *doctor) disk(cfg *server.Config) {
	dir := cfg.DataDir
	for {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			break
		}
		if err == nil {
			d.say(unfit, "disk", "%s is not a directory", dir)
			return
		}
		if up := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && up != dir {
			dir = up
			continue
		}
		d.say(unfit, "disk", "%v", err)
		return
	}
	took, err := syncTimes(dir)
	if err != nil {
		d.say(unfit, "disk", "%v: the member's user must be able to write to %s", err, dir)
		return
	}
	d.syncs(took, cfg.Raft.ElectionTimeout)
	if free, err := storage.Free(dir); err != nil {
		d.say(advice, "room", "%v", err)
	} else {
		d.room(free, cfg.Limits.QuotaBackendBytes)
	}
}

// syncTimes writes and syncs a file as a member does with its log. It returns the duration of each
// sync, sorted.
func syncTimes(dir string) ([]time.Duration, error) {
	f, err := os.CreateTemp(dir, ".leasehold-doctor-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const syncs, bytes = 100, 2 << 10
	var took []time.Duration
	for range syncs {
		if _, err := f.Write(make([]byte, bytes)); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

// syncs assesses sync durations, which must be sorted.
func (d *doctor) syncs(took []time.Duration, election time.Duration) {
	half, slow := took[len(took)/2], took[len(took)*99/100]
	text := fmt.Sprintf("syncs: median %v, 99th percentile %v",
		half.Round(10*time.Microsecond), slow.Round(10*time.Microsecond))
	switch {
	case slow > election/2:
		d.say(unfit, "disk", "%s: other members would consider this one dead; use another disk", text)
	case slow > 10*time.Millisecond:
		d.say(advice, "disk", "%s: every write waits for a sync; use a separate disk for the member", text)
	default:
		d.say(fine, "disk", "%s", text)
	}
}

// room assesses whether there is enough free disk space for a state of up to quota bytes.
func (d *doctor) room(free uint64, quota int64) {
	need := uint64(max(quota, 1<<30)) * 3 // a snapshot, the next snapshot, and the log between them
	switch {
	case free < need/3:
		d.say(unfit, "room", "%d MiB free, but the quota is %d MiB", free>>20, quota>>20)
	case free < need:
		d.say(advice, "room", "%d MiB free: a member may need three times its quota, %d MiB",
			free>>20, need>>20)
	default:
		d.say(fine, "room", "%d MiB free", free>>20)
	}
}

// memory assesses whether there is enough memory for a state of up to quota bytes.
func (d *doctor) memory(total uint64, quota int64) {
	if quota > 0 && total < 2*uint64(quota) {
		d.say(advice, "memory", "%d MiB, but the quota is %d MiB: the state is kept in memory, so "+
			"lower --quota-backend-bytes or add memory (see leasehold plan capacity)",
			total>>20, quota>>20)
		return
	}
	d.say(fine, "memory", "%d MiB", total>>20)
}

// machine checks clocks, file limits, processors and, if the system reports it, memory.
func (d *doctor) machine(cfg *server.Config) {
	if _, err := (*host.Host)(nil).Clock(); err != nil {
		d.say(unfit, "clock", "%v", err)
	} else {
		d.say(fine, "clock", "it keeps running while the machine sleeps")
	}
	switch files, err := host.OpenFiles(); {
	case err != nil:
		d.say(advice, "files", "%v", err)
	case files < 65536:
		d.say(advice, "files", "the limit is %d, and each connection uses one file: raise it "+
			"(ulimit -n, or LimitNOFILE= in the systemd unit)", files)
	default:
		d.say(fine, "files", "the limit is %d", files)
	}
	if n := runtime.GOMAXPROCS(0); n < 2 {
		d.say(advice, "processors", "%d: renewals have to wait for other work; use at least two", n)
	} else {
		d.say(fine, "processors", "%d", n)
	}
	d.system(cfg)
}

// port checks that an address is free.
func (d *doctor) port(what string, u url.URL) {
	network, at := "tcp", u.Host
	if strings.HasPrefix(u.Scheme, "unix") {
		network, at = "unix", cmp.Or(u.Path, u.Host)
		if _, err := os.Stat(at); err == nil {
			d.say(fine, what, "%s exists: a member replaces it if no process is "+
				"listening on it", at)
			return
		}
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), network, at)
	if err != nil {
		d.say(advice, what, "%v: expected if this member is already running; if not, free the port", err)
		return
	}
	_ = l.Close() // opened only as a test
	d.say(fine, what, "%s is free", at)
}

// certificates checks the certificate files of a listener.
func (d *doctor) certificates(what string, t *server.TLS) {
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			d.say(unfit, what, "%v", err)
		} else if leaf, err := x509.ParseCertificate(pair.Certificate[0]); err == nil {
			d.expiry(what, t.CertFile, leaf)
		}
	}
	if t.TrustedCAFile == "" {
		return
	}
	text, err := os.ReadFile(t.TrustedCAFile)
	if err != nil {
		d.say(unfit, what, "%v", err)
		return
	}
	n := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil {
			n++
			d.expiry(what, t.TrustedCAFile, ca)
		}
	}
	if n == 0 {
		d.say(unfit, what, "%s contains no PEM certificate", t.TrustedCAFile)
	}
}

// expiryWarning is how long before its expiry a certificate should be replaced.
const expiryWarning = 14 * 24 * time.Hour

func (d *doctor) expiry(what, file string, c *x509.Certificate) {
	at := c.NotAfter.UTC().Format(time.DateOnly)
	switch left := time.Until(c.NotAfter); {
	case left < 0:
		d.say(unfit, what, "the certificate in %s expired on %s", file, at)
	case time.Now().Before(c.NotBefore):
		d.say(unfit, what, "the certificate in %s is not valid before %s: check the clock", file,
			c.NotBefore.UTC().Format(time.DateTime))
	case left < expiryWarning:
		d.say(advice, what, "the certificate in %s expires on %s", file, at)
	default:
		d.say(fine, what, "the certificate in %s is valid until %s", file, at)
	}
}

// joined checks the network connection to the cluster named by --join. It tries each address and
// the peer URLs of the cluster's members.
func (d *doctor) joined(at []string, cfg *server.Config, dial func() (cluster, error)) {
	for _, e := range at {
		host := e
		if u, err := url.Parse(e); err == nil && u.Host != "" {
			host = u.Host
		}
		d.reach("--join", host, cfg)
	}
	c, err := dial()
	if err != nil {
		d.say(unfit, "cluster", "%v", err)
		return
	}
	defer c.Close() //nolint:errcheck // nothing is lost
	ctx, cancel := context.WithTimeout(context.Background(), initProbeTimeout)
	defer cancel()
	list, err := c.MemberList(ctx)
	if err != nil {
		d.say(advice, "cluster", "cannot list its members, so the connections to their peer URLs "+
			"were not checked: %v", err)
		return
	}
	for _, m := range list.Members {
		urls, err := listen.ParseURLs(strings.Join(m.PeerURLs, ","))
		if err != nil {
			d.say(advice, "cluster", "member %x: %v", m.ID, err)
			continue
		}
		d.other(cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)), urls, cfg)
	}
}

// other checks whether another member can be reached.
func (d *doctor) other(name string, urls []url.URL, cfg *server.Config) {
	for _, u := range urls {
		d.reach("member "+name, u.Host, cfg)
	}
}

// reach checks whether an address accepts connections.
func (d *doctor) reach(what, host string, cfg *server.Config) {
	began := time.Now()
	conn, err := net.DialTimeout("tcp", host, 2*time.Second)
	took := time.Since(began)
	switch {
	case err != nil:
		d.say(advice, what, "%v: it is not running yet, or something is blocking the "+
			"connection", err)
		return
	case took > longestWay(cfg.Raft):
		d.say(advice, what, "%s responds in %v: on all members, raise --heartbeat-interval to "+
			"that time and --election-timeout to ten times that time", host, took)
	default:
		d.say(fine, what, "%s responds in %v", host, took.Round(10*time.Microsecond))
	}
	_ = conn.Close() // opened only as a test
}

// longestWay returns the longest acceptable round trip to another member with these settings.
func longestWay(r server.Raft) time.Duration {
	if r.Adaptive {
		// twice this value plus 1.5 heartbeats fits into the election timeout
		return r.ElectionTimeout * 3 / 10
	}
	return r.ElectionTimeout / 10
}
