package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// acked is an acknowledged write with its value and revision.
type acked struct {
	revision int64
	value    string
	at       time.Time
}

// TestBackups checks that restored states are states that the cluster had, according to the
// writers. Members with backups write, change leaders, and are all killed under load. The test then
// restores the newest state and the state at a given revision. With -long, it also restores the
// state at a given time.
func TestBackups(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	c := startBackups(t, target, "--backup-schedule", "@every 2s", "--backup-log-interval", "100ms",
		"--snapshot-count", "100")
	w := startWriters(t, c, 4)
	lease, err := c.leader().admin.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.leader().admin.Put(t.Context(), "leased", "v", clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a full backup exists", func() error {
		if len(listBackups(t, target).Fulls) == 0 {
			return errors.New("none")
		}
		return nil
	})
	w.more100()
	leader := c.leader()
	leader.kill()
	w.more100()
	leader.launch()
	leader.serves()
	c.moveLeader()
	w.more100()
	middle := w.last()
	isCopied(t, target, middle.revision)
	copied := time.Now()
	w.more100()
	isCopied(t, target, w.last().revision) // so that the cluster has writes newer than the copy
	for _, m := range c.members {
		m.signal(syscall.SIGKILL)
	}
	for _, m := range c.members {
		_ = m.wait()
	}
	w.stop()
	w.lost(t, restoreBackup(t, target, lease.ID), middle)

	got := restoreBackup(t, target, 0, "--to-revision", fmt.Sprint(middle.revision-50))
	w.was(t, got, middle.revision-50)
	if *longFlag {
		got = restoreBackup(t, target, 0, "--to-time", copied.UTC().Format(time.RFC3339Nano))
		if newest := w.at(copied) + int64(len(w.of)+w.failed); got.revision < middle.revision ||
			got.revision > newest {
			t.Errorf("restored revision %d for a time when %d was copied and at most %d existed",
				got.revision, middle.revision, newest)
		}
		w.was(t, got, got.revision)
	}
	out, _, err := ourCommand(t, "backup", "verify", "--from", target)
	for line := range strings.Lines(out) {
		// The last full backup may be older than the end of the copied log.
		if strings.HasPrefix(line, "bad") && !strings.Contains(line, "the log after it ends") {
			t.Errorf("verify: %v\n%s", err, out)
		}
	}
	if strings.Count(out, "bad  ") > 1 {
		t.Errorf("verify: %v\n%s", err, out)
	}
}

// isCopied waits until everything up to a revision can be restored.
func isCopied(t *testing.T, target string, revision int64) {
	t.Helper()
	harness.Eventually(t, "the log has been copied", func() error {
		if got := listBackups(t, target); got.newest() < revision {
			return fmt.Errorf("until revision %d, not %d", got.newest(), revision)
		}
		return nil
	})
}

// leasesFlag enables TestLostAndRestored, which takes minutes.
var leasesFlag = flag.Int("leases", 0, "leases in TestLostAndRestored (default: skip it)")

// TestLostAndRestored measures, with many leases and default flags, how much is lost when all
// members are killed at the same time, and how long it takes until one is serving again. The newest
// full backup contains at least half of the leases, and the log contains the rest.
func TestLostAndRestored(t *testing.T) {
	tier.Campaign(t)
	if *leasesFlag == 0 {
		t.Skip("run it with -leases")
	}
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	c := startBackups(t, target, "--backup-schedule", "@every 20s")
	grantMany(t, c, *leasesFlag)
	w := startWriters(t, c, 4)
	w.more100()
	lease, err := c.leader().admin.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.leader().admin.Put(t.Context(), "leased", "v", clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	w.more100()
	middle := w.last()
	isCopied(t, target, middle.revision)
	w.more100()
	for _, m := range c.members {
		m.signal(syscall.SIGKILL)
	}
	for _, m := range c.members {
		_ = m.wait()
	}
	w.stop()
	w.lost(t, restoreBackup(t, target, lease.ID), middle)
}

// grantMany grants many leases in parallel.
func grantMany(t *testing.T, c *cluster, n int) {
	t.Helper()
	begin, cl := time.Now(), c.leader().admin
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 256 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := cl.Grant(t.Context(), 3600); err != nil {
					t.Errorf("grant: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("granted %d leases in %v", n, time.Since(begin))
}

// startBackups starts a cluster with backups.
func startBackups(t *testing.T, target string, args ...string) *cluster {
	t.Helper()
	list := make([]*member, 3)
	for i := range list {
		list[i] = newMember(t, fmt.Sprintf("m%d", i+1))
		list[i].extra = append([]string{"--backup-to", target, "--backup-keep", "1000"}, args...)
	}
	return startCluster(t, list)
}

// writers put successive numbers, each writer under its own key.
type writers struct {
	mu     sync.Mutex
	of     [][]acked
	failed int // unanswered writes

	stop func()
	more chan struct{} // signals an acknowledged write; capacity 1
	t    *testing.T
}

func startWriters(t *testing.T, c *cluster, n int) *writers {
	ctx, cancel := context.WithCancel(t.Context())
	w := &writers{of: make([][]acked, n), more: make(chan struct{}, 1), t: t}
	var wg sync.WaitGroup
	w.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(w.stop)
	for i := range n {
		cl := client(t, c.members...)
		wg.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				value := fmt.Sprint(k)
				try, cancel := context.WithTimeout(ctx, time.Second)
				r, err := cl.Put(try, fmt.Sprint("w/", i), value)
				cancel()
				w.mu.Lock()
				if err != nil {
					w.failed++ // the write may have succeeded
					w.mu.Unlock()
					continue
				}
				w.of[i] = append(w.of[i], acked{r.Header.Revision, value, time.Now()})
				w.mu.Unlock()
				select {
				case w.more <- struct{}{}:
				default:
				}
			}
		})
	}
	return w
}

// more100 waits for a hundred additional acknowledged writes.
func (w *writers) more100() {
	w.t.Helper()
	n := w.count() + 100
	late := time.After(patience)
	for w.count() < n {
		select {
		case <-w.more:
		case <-late:
			w.t.Fatalf("%d writes of %d", w.count(), n)
		}
	}
}

func (w *writers) count() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range w.of {
		n += len(list)
	}
	return n
}

// last returns the newest acknowledged write.
func (w *writers) last() (last acked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range w.of {
		if n := len(list); n > 0 && list[n-1].revision > last.revision {
			last = list[n-1]
		}
	}
	return last
}

// at returns the newest revision acknowledged by a given time.
func (w *writers) at(t time.Time) (revision int64) {
	for _, list := range w.of {
		for _, a := range list {
			if !a.at.After(t) {
				revision = max(revision, a.revision)
			}
		}
	}
	return revision
}

// was checks that a restored state has the given revision and contains all acknowledged writes up
// to it.
func (w *writers) was(t *testing.T, s restored, revision int64) {
	t.Helper()
	if s.revision != revision {
		t.Errorf("restored revision %d, want %d", s.revision, revision)
	}
	for i, list := range w.of {
		kv := s.keys[fmt.Sprint("w/", i)]
		for _, a := range list {
			switch {
			case a.revision == kv.revision && a.value != kv.value:
				t.Errorf("writer %d: %v was acknowledged, %v restored", i, a, kv)
			case a.revision <= revision && a.revision > kv.revision:
				t.Errorf("writer %d: %v was acknowledged, and revision %d has only %v", i, a, revision, kv)
			}
		}
		if kv.revision > revision {
			t.Errorf("revision %d has %v", revision, kv)
		}
	}
}

// lost fails the test if a restored state lacks the write by, which was copied to the backup. It
// logs how many later writes were lost.
func (w *writers) lost(t *testing.T, s restored, by acked) {
	t.Helper()
	w.was(t, s, s.revision)
	if s.revision < by.revision {
		t.Errorf("restored revision %d, but %d was copied", s.revision, by.revision)
	}
	lost := 0
	var age time.Duration
	end := w.last().at
	for _, list := range w.of {
		for _, a := range list {
			if a.revision > s.revision {
				lost++
				age = max(age, end.Sub(a.at))
			}
		}
	}
	t.Logf("of %d acknowledged writes, %d were lost, the oldest %v before the end",
		w.count(), lost, age)
}

// restored is the state of a member started from a backup.
type restored struct {
	revision int64
	keys     map[string]acked
}

// restoreBackup restores a backup, starts a member, and reads its state.
func restoreBackup(
	t *testing.T, target string, lease clientv3.LeaseID, args ...string,
) (r restored) {
	t.Helper()
	m := newMember(t, "back")
	begin := time.Now()
	out, cpu, err := ourCommand(t, append([]string{
		"backup", "restore", "--from", target, "--data-dir", m.data, "--name", m.name,
		"--bump-revision", "0", "--initial-advertise-peer-urls", m.peer,
	}, args...)...)
	if err != nil {
		t.Fatalf("restore %v: %v\n%s", args, err, out)
	}
	made := time.Since(begin)
	c := startCluster(t, []*member{m})
	started := time.Since(begin) - made
	t.Logf("restored in %v, with %v of CPU; a member served %v later, with %v of CPU", made, cpu,
		started, m.cpu())
	all, err := c.members[0].admin.Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	r = restored{all.Header.Revision, make(map[string]acked)}
	for _, kv := range all.Kvs {
		r.keys[string(kv.Key)] = acked{revision: kv.ModRevision, value: string(kv.Value)}
	}
	if lease != 0 {
		ttl, err := m.admin.TimeToLive(t.Context(), lease, clientv3.WithAttachedKeys())
		if err != nil || ttl.GrantedTTL != 3600 || len(ttl.Keys) != 1 {
			t.Errorf("the lease is %+v, %v", ttl, err)
		}
	}
	m.kill()
	return r
}

// cpu returns the CPU time that the member has used since its start.
func (m *member) cpu() time.Duration {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, m.url+"/metrics", http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nprocess_cpu_seconds_total ")
	value, _, _ := strings.Cut(after, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		m.t.Fatalf("its metrics do not have its CPU time: %v", err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// backupList is the output of "leasehold backup list".
type backupList struct {
	Fulls []struct {
		Revision   int64 `json:"revision"`
		ToRevision int64 `json:"toRevision"`
	} `json:"fulls"`
}

// newest returns the last revision that the log reaches without a gap after the first backup.
func (l *backupList) newest() int64 {
	if len(l.Fulls) == 0 {
		return 0
	}
	return l.Fulls[0].ToRevision
}

func listBackups(t *testing.T, target string) (l backupList) {
	t.Helper()
	out, _, err := ourCommand(t, "backup", "list", "--from", target, "-w", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &l)
	}
	if err != nil {
		t.Fatalf("list: %v\n%s", err, out)
	}
	return l
}

// ourCommand runs the binary and returns its output and CPU time.
func ourCommand(t *testing.T, args ...string) (string, time.Duration, error) {
	t.Helper()
	var out, log strings.Builder
	cmd := exec.CommandContext(t.Context(), server.Path(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var cpu time.Duration
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	return out.String() + log.String(), cpu, err
}
