package serve

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/internal/relay"
)

// relayRun runs the relay command up to the point where it would start serving.
func relayRun(env []string, args ...string) (cfg relay.Config, out string, err error) {
	c := relayCommand(func() []string { return env },
		func(_ context.Context, got relay.Config) error { cfg = got; return nil })
	var b bytes.Buffer
	c.SetOut(&b)
	c.SetErr(&b)
	c.SetArgs(args)
	err = c.Execute()
	return cfg, b.String(), err
}

// TestRelayRefusals checks that invalid relay settings are rejected with advice.
func TestRelayRefusals(t *testing.T) {
	both := []string{"--endpoints=a:1", "--listen-client-urls=http://127.0.0.1:1"}
	for args, want := range map[string]string{
		"":                      "--endpoints",
		"--endpoints=a:1":       "--listen-client-urls",
		"+ --user=u":            "--user and --password-file must be set together",
		"+ --password-file=f":   "--user and --password-file must be set together",
		"+ --cacert=f":          "none of --endpoints uses https://",
		"+ --cert=f":            "none of --endpoints uses https://",
		"+ --cert-file=f":       "none of --listen-client-urls is https://",
		"+ --data-dir=d":        "unknown flag --data-dir; see leasehold relay --help",
		"+ --endpoint=a":        "did you mean --endpoints?",
		"+ run":                 "relay accepts only flags",
		"+ --log-level=loud":    "--log-level",
		"+ --client-crl-file=f": "none of --listen-client-urls is https://",
		"+ --user=u --password-file=f --token-file=g":    "are mutually exclusive",
		"+ --user=u --password-file=/no/such/file":       "--password-file",
		"+ --listen-client-urls=https://127.0.0.1:1":     "--cert-file and --key-file",
		"+ --max-request-bytes=-1":                       "--max-request-bytes",
		"+ --ui=all":                                     `--ui "all" is not one of off, read-only, on`,
		"+ --ui=":                                        `--ui ""`,
		"+ --cors=*":                                     `--cors "*": write each allowed origin`,
		"+ --insecure-skip-tls-verify":                   "none of --endpoints uses https://",
		"+ --endpoints=https://a:1 --cacert=/no/such/ca": "/no/such/ca",
	} {
		list := strings.Fields(args)
		if len(list) > 0 && list[0] == "+" {
			list = append(append([]string{}, both...), list[1:]...)
		}
		if _, _, err := relayRun(nil, list...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which does not say %q", args, err, want)
		}
	}
}

// TestRelayFlags checks that flags and variables are applied, and that the password is read from
// its file without the trailing newline.
func TestRelayFlags(t *testing.T) {
	password := filepath.Join(t.TempDir(), "p")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := relayRun([]string{"LEASEHOLD_ENDPOINTS=a:1,b:2", "LEASEHOLD_USER=x"},
		"--listen-client-urls", "http://127.0.0.1:1,http://127.0.0.1:2", "--user=r",
		"--password-file", password, "--listen-metrics-urls=http://127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(cfg.Endpoints, " ") != "a:1 b:2" || len(cfg.Listen) != 2 || cfg.TLS != nil ||
		cfg.User != "r" || cfg.Password != "secret" || len(cfg.ListenMetrics) != 1 ||
		!cfg.HTTP.Gateway || cfg.HTTP.UI != "on" {
		t.Errorf("%+v", cfg)
	}
	cfg, _, err = relayRun([]string{"LEASEHOLD_UI=read-only"}, "--endpoints=a:1",
		"--listen-client-urls=http://127.0.0.1:1", "--cors=https://a,http://b:1",
		"--host-whitelist=c,d", "--enable-grpc-gateway=false")
	if err != nil || cfg.HTTP.Gateway || cfg.HTTP.UI != "read-only" ||
		strings.Join(cfg.HTTP.CORS, " ") != "https://a http://b:1" ||
		strings.Join(cfg.HTTP.HostWhitelist, " ") != "c d" {
		t.Errorf("%+v, %v", cfg.HTTP, err)
	}
	cfg, _, err = relayRun(nil, "--endpoints=https://a:1", "--listen-client-urls=http://127.0.0.1:1",
		"--insecure-skip-tls-verify")
	if err != nil || cfg.TLS == nil || !cfg.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", cfg.TLS, err)
	}
	_, out, err := relayRun(nil, "--help")
	if err != nil || !strings.Contains(out, "--token-file") || strings.Contains(out, "--audit-log") {
		t.Errorf("the help is %s, %v", out, err)
	}
}
