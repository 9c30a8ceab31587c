package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// releases are this release and two make-believe ones after it: the next one speaks the versions of
// both, the one after that only its own and the next one's.
type releases struct{ first, next, after string }

func buildReleases(t *testing.T) (r releases) {
	t.Helper()
	for _, b := range []struct {
		to   *string
		tags []string
	}{{&r.first, nil}, {&r.next, []string{"next"}}, {&r.after, []string{"next", "afternext"}}} {
		path, err := process.Build(t.Context(), t.TempDir(), b.tags...)
		if err != nil {
			t.Fatal(err)
		}
		*b.to = path
	}
	return r
}

// exitRelease is the exit code of a member that needs another release.
const exitRelease = 6

// upgrade is a cluster whose members are of this or that release.
type upgrade struct {
	*cluster
	releases
	rng *rand.Rand
}

// TestUpgrade takes a cluster from one release to the next, one member at a time, back to the first
// and to the next again, while clients are at work: no lease that is kept alive is lost, no write
// that was acknowledged, and no member ends by itself. A process is killed at each step. Members of
// a release that does not speak the cluster's version end with exit code 6 whenever they are
// started, and go on with their data when the right release is.
func TestUpgrade(t *testing.T) {
	tier.Campaign(t)
	if !*upgradeFlag {
		t.Skip("builds two more releases and takes minutes: -upgrade")
	}
	r := buildReleases(t)
	list := make([]*member, 3)
	for i := range list {
		list[i] = newMember(t, fmt.Sprintf("m%d", i+1))
		list[i].binary = r.first
	}
	u := &upgrade{cluster: startCluster(t, list), releases: r}
	underWork(t, u.cluster, func(rng *rand.Rand) {
		u.rng = rng
		u.upgradeAll()
		u.goBack()
		u.upgradeAll()
	})
}

// TestUpgradeGuide runs the commands of docs/upgrade.md, block by block, while members are upgraded
// and taken back between the blocks as the text says.
func TestUpgradeGuide(t *testing.T) {
	tier.Campaign(t)
	if !*upgradeFlag {
		t.Skip("builds another release: -upgrade")
	}
	parts, left := blocks(t, "../../docs/upgrade.md")
	if len(parts) != 5 || left != 0 {
		t.Fatalf("the guide has %d blocks that run and %d that do not, want five", len(parts), left)
	}
	r := buildReleases(t)
	list := make([]*member, 3)
	for i := range list {
		list[i] = newMember(t, fmt.Sprintf("m%d", i+1))
		list[i].binary = r.first
	}
	u := &upgrade{cluster: startCluster(t, list), releases: r, rng: choices(t)}
	stop := keep(t, u.cluster, 3, keeperTTL)
	var all []string
	for _, m := range list {
		all = append(all, m.url)
	}
	g := &guide{
		t: t, binary: r.first, dir: t.TempDir(),
		env:     []string{"LEASEHOLD_ENDPOINTS=" + strings.Join(all, ",")},
		replace: strings.NewReplacer("host1:2379", all[0]),
	}
	g.runs(parts[0])
	u.replace(list[0], r.next)
	g.runs(parts[1])
	for _, m := range list[1:] {
		u.replace(m, r.next)
		g.runs(parts[2])
	}
	u.versions("0.1", "0.1.0")
	g.binary = r.next
	g.runs(parts[3])
	u.versions("0.2", "0.2.0")
	g.runs(parts[4])
	for _, m := range list {
		u.stored(m, "0.1.0")
		u.replace(m, r.first)
	}
	u.versions("0.1", "0.1.0")
	stop()
}

// upgradeAll takes all members from the first release to the next.
func (u *upgrade) upgradeAll() {
	u.t.Helper()
	u.versions("0.1", "0.1.0")
	u.refused(u.any(), u.after)
	held := u.rng.IntN(2) == 0
	for i, m := range u.shuffled() {
		u.replace(m, u.next)
		if i == 0 && held { // while there are newer members, nobody raises it
			u.downgrade(clientv3.DowngradeEnable, "0.1")
		}
		u.crash()
	}
	if held {
		u.wait(time.Second)
		u.versions("0.1", "0.1.0")
		u.downgrade(clientv3.DowngradeCancel, "")
	}
	u.crash()
	u.versions("0.2", "0.2.0")
	u.refused(u.any(), u.first)
	u.crash()
}

// goBack takes all members from the next release to the first.
func (u *upgrade) goBack() {
	u.t.Helper()
	u.downgrade(clientv3.DowngradeEnable, "0.1")
	u.crash()
	for _, m := range u.shuffled() {
		u.stored(m, "0.1.0")
		u.replace(m, u.first)
		u.crash()
	}
}

// any returns one of the members.
func (u *upgrade) any() *member { return u.members[u.rng.IntN(len(u.members))] }

func (u *upgrade) shuffled() []*member {
	list := slices.Clone(u.members)
	u.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// crash kills a member, which comes back.
func (u *upgrade) crash() {
	u.t.Helper()
	u.kill(u.any(), between(u.rng, 0, 300))
	u.serves()
}

// replace stops a member, in order or by a kill, and starts it with another release.
func (u *upgrade) replace(m *member, binary string) {
	u.t.Helper()
	if u.rng.IntN(2) == 0 {
		m.kill()
	} else if err := m.end(syscall.SIGTERM); err != nil {
		u.t.Errorf("%s: %v", m.name, err)
	}
	m.binary = binary
	m.launch()
	u.serves()
}

// refused starts a member with a release that cannot be in the cluster, more than once. Each time
// it ends with the exit code for that, the others go on, and its own release finds its data.
func (u *upgrade) refused(m *member, binary string) {
	u.t.Helper()
	own := m.binary
	m.kill()
	m.binary = binary
	for range 2 {
		m.launch()
		var exit *exec.ExitError
		if err := m.wait(); !errors.As(err, &exit) || exit.ExitCode() != exitRelease {
			u.t.Errorf("%s of another release: %v\n%s", m.name, err, m.Tail())
		}
		u.writes(u.others(m)...)
	}
	m.binary = own
	m.launch()
	u.serves()
}

// downgrade asks for one, through any member.
func (u *upgrade) downgrade(action clientv3.DowngradeAction, target string) {
	u.t.Helper()
	harness.Eventually(u.t, "a downgrade", func() error {
		ctx, cancel := context.WithTimeout(u.t.Context(), 5*time.Second)
		defer cancel()
		_, err := u.any().admin.Downgrade(ctx, action, target)
		return err
	})
}

// versions waits until each member tells these versions of the cluster and of its disk.
func (u *upgrade) versions(cluster, storage string) {
	u.t.Helper()
	for _, m := range u.members {
		harness.Eventually(u.t, "version "+cluster+" of "+m.name, func() error {
			got, err := m.version(u.t.Context())
			if err == nil && got != cluster {
				err = fmt.Errorf("it is %s", got)
			}
			return err
		})
		u.stored(m, storage)
	}
}

// stored waits until a member has nothing of a later version on its disk.
func (u *upgrade) stored(m *member, want string) {
	u.t.Helper()
	harness.Eventually(u.t, "storage version "+want+" of "+m.name, func() error {
		s, err := m.status()
		if err == nil && s.StorageVersion != want {
			err = fmt.Errorf("it is %s", s.StorageVersion)
		}
		return err
	})
}

// version returns the cluster version as a member tells it.
func (m *member) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/version", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var said struct {
		Leasehold struct{ Cluster string }
	}
	err = json.NewDecoder(resp.Body).Decode(&said)
	return said.Leasehold.Cluster, err
}
