package e2e

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/test/tier"
)

// TestSecondProcess checks that a second process on a data directory immediately exits with an
// explanation, and that the first process is unaffected.
func TestSecondProcess(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := startMember(t)
	second := &member{t: t, data: m.data, log: filepath.Join(t.TempDir(), "log")}
	second.listen()
	t.Cleanup(second.cleanup)
	second.launch()
	if err := second.wait(); err == nil {
		t.Error("the second process ended without an error")
	}
	if out := second.Tail(); !strings.Contains(out, m.data) {
		t.Errorf("the second process does not name the directory:\n%s", out)
	}
	if _, err := m.client().Put(t.Context(), "still", "here"); err != nil {
		t.Errorf("the first process: %v", err)
	}
	m.kill()
	second.start() // a dead process holds no lock
}

func fetch(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}
