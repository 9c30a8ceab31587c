package page

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// cache grants a lease that holds a range of keys for a cache, and returns its ID and token.
func (m *member) cache(owner, from, to string) (id, token string) {
	m.Helper()
	l := m.call("/v1/leases/grant", map[string]any{
		"ttl_ms": 12_000, "owner": owner,
		"holds": []any{map[string]any{"key": b64(from), "range_end": b64(to)}},
	})["lease"].(map[string]any)
	return l["id"].(string), l["token"].(string)
}

// attempt calls the JSON API and ignores the outcome.
func (m *member) attempt(ctx context.Context, path, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+path, strings.NewReader(body))
	if err != nil {
		m.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	if resp, err := vouched.client.Do(r); err == nil {
		_ = resp.Body.Close()
	}
}

// keep renews leases every second until stop is called.
func (m *member) keep(ctx context.Context, refs string) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			m.attempt(ctx, "/v1/leases/renew", `{"leases":[`+refs+`]}`)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() { end(); <-done }
}

// TestCaches checks that the page shows which caches may hold which ranges, and which caches a
// write is waiting for or has waited for. A restarted member does not know what a cache holds, so a
// write waits until the cache's lease has ended.
func TestCaches(t *testing.T) {
	m := cluster(t, 1, "--lease-max-cache-ttl", "1m")[0]
	hostile := "<b>service</b>"
	p := open(t, m.url+"/ui/#/caches")
	p.shows("No program has a cache.")
	slow, token := m.cache(hostile, "config/", "config0")
	revoked, other := m.cache(hostile, "config/", "config0")
	stop := m.keep(t.Context(), `{"id":"`+slow+`","token":"`+token+`"},{"id":"`+revoked+
		`","token":"`+other+`"}`)
	defer stop()
	p.row("Caches", hex(t, slow), "", "", "12 s", "[config/, config0)")
	m.kill()
	m.start()
	m.await()
	p.until("the stream", "document.querySelector('[data-state=live]')")
	m.cache("another", "x", "y")
	p.counts(3)
	p.fill("input[type=search]", "owner:<b>")
	p.counts(2)
	p.shows("No cache was slow.")
	p.until("nothing else in the page", "!document.querySelector('main b')")

	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	stop()
	go func() {
		defer close(done)
		m.attempt(ctx, "/v1/store/put", `{"key":"`+b64("config/limit")+`"}`)
	}()
	defer func() { end(); <-done }()
	p.row("Caches", hex(t, slow), "slow: a write waits for")
	p.picture("caches")
	m.call("/v1/leases/revoke", map[string]any{"leases": []any{map[string]any{"id": revoked}}})
	p.row("Caches", hex(t, revoked), "slow: a write waits for", "it was revoked")
	p.until("that none is slow any more", "!document.querySelector('main .down')")
	p.row("Slow caches by owner", hostile, "2")
	p.shows("while it led: 1.")
}
