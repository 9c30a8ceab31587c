package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// links connects a cluster in network namespaces. There is one namespace per member, and one with a
// bridge for the clients.
//
// To cut one direction between two members, the sender gets a neighbor entry with an address that
// no network card has. Packets leave the sender but nothing receives them, so the sender observes
// only silence. The other direction keeps working. This needs only the ip command.
type links struct {
	t   *testing.T
	hub string
	ns  []string // one for each member
}

const netnsDir = "/var/run/netns/"

// newNetCluster starts n members, each in its own network namespace, and waits until each is
// serving.
func newNetCluster(t *testing.T, n int) *cluster {
	t.Helper()
	l := newLinks(t, n)
	list := make([]*member, n)
	for i := range list {
		m := newMember(t, fmt.Sprintf("m%d", i+1))
		m.ns, m.dial = l.ns[i], l.dial
		m.url, m.peer = "http://"+address(i)+":2379", "http://"+address(i)+":2380"
		list[i] = m
	}
	c := startCluster(t, list)
	c.links = l
	return c
}

func address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }
func card(i int) string    { return fmt.Sprintf("02:00:00:00:00:%02x", i+1) }
func noCard(i int) string  { return fmt.Sprintf("02:00:00:00:ff:%02x", i+1) }

// newLinks creates the namespaces. It skips the test if that is not permitted.
func newLinks(t *testing.T, n int) *links {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need the ip command:", err)
	}
	removeStale(t)
	prefix := fmt.Sprintf("leasehold-%d-", os.Getpid())
	l := &links{t: t, hub: prefix + "hub"}
	t.Cleanup(l.remove)
	if out, err := exec.Command("ip", "netns", "add", l.hub).CombinedOutput(); err != nil {
		t.Skipf("cannot make a network namespace: %v: %s", err, out)
	}
	if out, err := l.try("-n", l.hub, "link", "add", "br0", "type", "bridge"); err != nil {
		t.Skipf("cannot make a bridge: %v: %s", err, out)
	}
	l.ip("-n", l.hub, "addr", "add", "10.77.0.254/24", "dev", "br0")
	l.ip("-n", l.hub, "link", "set", "br0", "up")
	for i := range n {
		l.plug(prefix, i)
	}
	for from := range n {
		for to := range n {
			l.join(from, to)
		}
	}
	return l
}

// plug creates a member's namespace and its link to the bridge.
func (l *links) plug(prefix string, i int) {
	l.t.Helper()
	ns := prefix + strconv.Itoa(i+1)
	l.ns = append(l.ns, ns)
	l.ip("netns", "add", ns)
	l.ip("-n", l.hub, "link", "add", l.port(i), "type", "veth", "peer", "name", "eth0", "netns", ns)
	l.ip("-n", l.hub, "link", "set", l.port(i), "master", "br0", "up")
	l.ip("-n", ns, "link", "set", "eth0", "address", card(i))
	l.ip("-n", ns, "addr", "add", address(i)+"/24", "dev", "eth0")
	l.ip("-n", ns, "link", "set", "lo", "up")
	l.ip("-n", ns, "link", "set", "eth0", "up")
}

func (l *links) port(i int) string { return "v" + strconv.Itoa(i+1) }

// cut drops all packets from one member to another.
func (l *links) cut(from, to int) { l.neighbour(from, to, noCard(to)) }

// join undoes cut.
func (l *links) join(from, to int) { l.neighbour(from, to, card(to)) }

func (l *links) neighbour(from, to int, card string) {
	l.t.Helper()
	if from == to {
		return
	}
	l.ip("-n", l.ns[from], "neigh", "replace", address(to), "lladdr", card,
		"dev", "eth0", "nud", "permanent")
}

// unplug cuts all links of a member, to other members and to clients.
func (l *links) unplug(i int) { l.ip("-n", l.hub, "link", "set", l.port(i), "down") }

// replug undoes unplug.
func (l *links) replug(i int) { l.ip("-n", l.hub, "link", "set", l.port(i), "up") }

// ip runs the ip command.
func (l *links) ip(args ...string) {
	l.t.Helper()
	if out, err := l.try(args...); err != nil {
		l.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (l *links) try(args ...string) ([]byte, error) {
	return exec.Command("ip", args...).CombinedOutput()
}

// remove deletes the namespaces, including the links and the bridge.
func (l *links) remove() {
	for _, ns := range append(l.ns, l.hub) {
		if _, err := os.Stat(netnsDir + ns); err != nil {
			continue // the namespace was not created
		}
		if out, err := l.try("netns", "del", ns); err != nil {
			l.t.Errorf("network namespace %s remains: %v: %s", ns, err, out)
		}
	}
}

// removeStale deletes namespaces left behind by killed test processes.
func removeStale(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		return // there are no namespaces
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "leasehold-")
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if !ok || err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if out, err := exec.Command("ip", "netns", "del", e.Name()).CombinedOutput(); err != nil {
			t.Logf("network namespace %s of a killed test remains: %v: %s", e.Name(), err, out)
		}
	}
}

// dial connects from the clients' namespace. A socket stays in the namespace of the thread that
// created it.
func (l *links) dial(ctx context.Context, addr string) (net.Conn, error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	hub, err := os.Open(netnsDir + l.hub)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	runtime.LockOSThread()
	if err := unix.Setns(int(hub.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, back // the goroutine stays locked, so the thread exits with it
	}
	runtime.UnlockOSThread()
	return conn, err
}
