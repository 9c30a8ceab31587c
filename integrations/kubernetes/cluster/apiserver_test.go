package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
)

const token = "secret"

// apiserver is a kube-apiserver process.
type apiserver struct {
	t      *testing.T
	binary string
	args   []string
	log    string
	config *rest.Config
	*process.Process
}

// startAPIServer starts an API server that keeps its objects in a store, and waits until it is
// ready.
func startAPIServer(t *testing.T, ca *certs.Authority, main *store, args ...string) *apiserver {
	t.Helper()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca.Issue("apiserver")
	ca.Issue("service-accounts")
	host, port, _ := strings.Cut(process.MustFreeAddr(), ":")
	a := &apiserver{
		t: t, binary: apiserverPath(t), log: filepath.Join(dir, "apiserver.log"),
		args: append([]string{
			"--bind-address", host, "--secure-port", port,
			"--tls-cert-file", ca.Path("apiserver.pem"), "--tls-private-key-file", ca.Path("apiserver.key"),
			"--etcd-servers", main.urls(","), "--etcd-cafile", ca.Path("ca.pem"),
			"--etcd-certfile", ca.Path("apiserver.pem"), "--etcd-keyfile", ca.Path("apiserver.key"),
			"--etcd-compaction-interval", "20s",
			"--token-auth-file", tokens, "--authorization-mode", "RBAC",
			"--service-account-issuer", "https://kubernetes.test",
			"--service-account-key-file", ca.Path("service-accounts.pem"),
			"--service-account-signing-key-file", ca.Path("service-accounts.key"),
			"--service-cluster-ip-range", "10.0.0.0/24",
		}, args...),
		config: &rest.Config{
			Host: "https://" + host + ":" + port, BearerToken: token, QPS: -1,
			TLSClientConfig: rest.TLSClientConfig{CAFile: ca.Path("ca.pem")},
			ContentConfig: rest.ContentConfig{
				ContentType:        "application/vnd.kubernetes.protobuf",
				AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
			},
		},
	}
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			t.Logf("kube-apiserver:\n%s", a.Tail())
		}
	})
	a.launch()
	a.ready()
	return a
}

func (a *apiserver) launch() {
	a.t.Helper()
	p, err := process.Start(exec.Command(a.binary, a.args...), a.log, "--- launched")
	if err != nil {
		a.t.Fatal(err)
	}
	a.Process = p
}

// ready waits until the API server reports that it is ready.
func (a *apiserver) ready() {
	a.t.Helper()
	c := a.client()
	harness.Eventually(a.t, "kube-apiserver is ready", func() error {
		if a.Ended() {
			a.t.Fatalf("kube-apiserver ended: %v\n%s", a.Wait(), a.Tail())
		}
		ctx, cancel := context.WithTimeout(a.t.Context(), time.Second)
		defer cancel()
		return c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (a *apiserver) kill() {
	_ = a.Signal(syscall.SIGKILL)
	<-a.Done()
}

// client returns a client of the API server.
func (a *apiserver) client() kubernetes.Interface {
	a.t.Helper()
	c, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}
