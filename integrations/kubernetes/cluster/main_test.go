package cluster

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"leasehold.dev/test/harness"
)

var (
	server        harness.Binary
	apiserverFlag = flag.String("apiserver", "", "`binary` of kube-apiserver (default: built by apiserver.sh)")
	etcdFlag      = flag.String("etcd", "", "`binary` of etcd, which TestFigures also measures")
	nodesFlag     = flag.Int("nodes", 5000, "node leases in TestShard")
	figuresFlag   = flag.Int("figures", 0, "node leases in TestFigures (default: skip it)")
)

func TestMain(m *testing.M) { os.Exit(server.Main(m)) }

// apiserverPath returns the path of the API server's binary.
func apiserverPath(t *testing.T) string {
	t.Helper()
	if *apiserverFlag != "" {
		return *apiserverFlag
	}
	cmd := exec.Command("./apiserver.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("apiserver.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}
