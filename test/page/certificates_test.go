package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// demanding starts a cluster and a relay that require client certificates. Both accept the
// certificate that all members share; it names alice, and the tests present it in their calls. If
// other is not empty, they accept that certificate too.
func demanding(t *testing.T, other string) (m, relay *member) {
	t.Helper()
	trusted := filepath.Join(t.TempDir(), "trusted.pem")
	own, err := os.ReadFile(vouched.cert)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(trusted, append(own, other...), 0o600); err != nil {
		t.Fatal(err)
	}
	demands := []string{"--client-cert-auth", "--trusted-ca-file", trusted}
	all := secureCluster(t, 1, append([]string{"--bcrypt-cost", "4"}, demands...)...)
	m = all[0]
	m.call("/v3/auth/role/add", map[string]any{"name": "relay"})
	m.users(map[string]string{"alice": "root", "relay": "relay"})
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	return m, relayOf(t, all, append([]string{
		"--cacert", vouched.cert, "--cert", vouched.cert, "--key", vouched.key,
		"--user", "relay", "--password-file", secret,
		"--cert-file", vouched.cert, "--key-file", vouched.key,
	}, demands...)...)
}

// files returns the files that one of the page's files refers to.
func files(text string) (out []string) {
	for _, m := range regexp.MustCompile(`(?:src|href|from)[= ]"(?:\./)?([\w./-]+\.\w+)"`).
		FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestCertificateDemanded checks members and relays that require a client certificate. A client
// with a certificate gets the page, its files and the API, but the certificate does not log the
// user in. A client without one gets nothing.
func TestCertificateDemanded(t *testing.T) {
	m, relay := demanding(t, "")
	for _, at := range []*member{m, relay} {
		get := func(path string) string {
			resp, err := vouched.client.Get(at.url + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // the body is read completely
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s %v", path, resp.Status, err)
			}
			return string(text)
		}
		asked := map[string]bool{"index.html": true}
		for list := files(get("/ui/")); len(list) > 0; list = list[1:] {
			if name := list[0]; !asked[name] {
				asked[name] = true
				list = append(list, files(get("/ui/"+name))...)
			}
		}
		if len(asked) < 15 {
			t.Errorf("only %d files were found", len(asked))
		}
		if who := at.call("/v1/access/whoami", nil)["principal"]; who != nil {
			t.Errorf("a certificate is a login, of %v", who)
		}
		token := as(at.call("/v3/auth/authenticate",
			map[string]any{"name": "root", "password": password})["token"].(string))
		if who := at.call("/v1/access/whoami", nil, token)["principal"]; who != "root" {
			t.Errorf("the token is that of %v", who)
		}
		stranger := vouched.client.Transport.(*http.Transport).Clone()
		stranger.TLSClientConfig.Certificates = nil
		if resp, err := (&http.Client{Transport: stranger}).Get(at.url + "/ui/"); err == nil {
			_ = resp.Body.Close()
			t.Errorf("without a certificate: %s", resp.Status)
		}
	}
}

// ownCertificate creates a certificate for a name in the certificate store of a browser's home
// directory, and returns it.
func ownCertificate(t *testing.T, home, name string) string {
	t.Helper()
	store := filepath.Join(home, ".pki", "nssdb")
	noise := filepath.Join(home, "noise")
	if err := os.MkdirAll(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(noise, []byte(strings.Repeat(name+t.TempDir(), 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, args := range [][]string{
		{"-N", "--empty-password"},
		{
			"-S", "-x", "-n", name, "-s", "CN=" + name, "-t", "u,u,u", "-k", "ec", "-q", "nistp256",
			"-z", noise, "-v", "1",
		},
		{"-L", "-n", name, "-a"},
	} {
		var stderr bytes.Buffer
		cmd := exec.Command("certutil", append([]string{"-d", "sql:" + store}, args...)...)
		cmd.Stderr = &stderr
		var err error
		if out, err = cmd.Output(); err != nil {
			t.Fatalf("certutil %v: %v %s", args, err, &stderr)
		}
	}
	return string(out)
}

// choosing is a script that runs Chromium with a policy that nothing else on the machine sees.
const choosing = `#!/bin/sh
exec unshare --user --map-root-user --mount sh -c '
  mount -t tmpfs none /etc/chromium && mkdir -p /etc/chromium/policies/managed &&
  cp "$0" /etc/chromium/policies/managed/ && exec "$@"' %s %s "$@"
`

// browserOf starts a browser with its own home directory. The browser presents the certificate in
// its store to any site that requires one.
func browserOf(t *testing.T, home string) context.Context {
	t.Helper()
	policy, script := filepath.Join(home, "policy.json"), filepath.Join(home, "browser")
	text, err := json.Marshal(map[string]any{
		"AutoSelectCertificateForUrls": []string{`{"pattern":"https://127.0.0.1","filter":{}}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policy, text, 0o600); err != nil {
		t.Fatal(err)
	}
	path := *chromium
	if path == "" {
		path = "chromium"
	}
	run := fmt.Sprintf(choosing, policy, path)
	if err := os.WriteFile(script, []byte(run), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, end, err := newBrowser(chromedp.ExecPath(script), chromedp.Env("HOME="+home))
	t.Cleanup(end)
	if err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	return ctx
}

// TestBrowserCertificate checks that the pages of a member and a relay, including events and
// actions, work in a browser when a client certificate is required. The certificate names root but
// does not log the user in. Chromium has it in its store, and a policy selects it.
func TestBrowserCertificate(t *testing.T) {
	for _, needed := range []string{"certutil", "unshare", "chromium"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip("needs ", needed)
		}
	}
	if out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "mount", "-t",
		"tmpfs", "none", "/etc/chromium").CombinedOutput(); err != nil {
		t.Skipf("no policy can be set for one browser alone: %v %s", err, out)
	}
	home := t.TempDir()
	m, relay := demanding(t, ownCertificate(t, home, "alice"))
	ctx := browserOf(t, home)
	for _, at := range []*member{m, relay} {
		p := openIn(t, ctx, at.url+"/ui/#/leases")
		p.shows("Log in")
		p.loggedOut()
		p.logIn("alice")
		p.fact("known by", "token")
		p.view("Leases")
		p.until("the stream", "document.querySelector('[data-state=live]')")
		p.click("button", "Grant a lease")
		p.click("dialog button", "Grant")
		p.shows("at expiry")
	}
	browser.once.Do(startBrowser)
	if browser.err != nil {
		t.Fatalf("the browser does not start: %v", browser.err)
	}
	stranger, end := chromedp.NewContext(browser.ctx)
	defer end()
	err := chromedp.Run(stranger, chromedp.Navigate(m.url+"/ui/"))
	// The browser may detect the closed connection before it reads the alert.
	if err == nil || !strings.Contains(err.Error(), "net::ERR_") {
		t.Errorf("without a certificate: %v", err)
	}
}
