package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// site serves a page of another site and returns its address.
func site(t *testing.T, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// This fails if the browser has been closed.
		_, _ = fmt.Fprint(w, "<!doctype html><title>x</title>", body)
	}))
	t.Cleanup(s.Close)
	return named(t, s.URL, "elsewhere.test")
}

// named replaces the host of an address with a name. The browser resolves the name to this machine.
func named(t *testing.T, at, name string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = name + ":" + u.Port()
	return u.String()
}

// TestOtherSites checks that a page from another site can neither write nor read through an
// administrator's browser, nor frame the page, by any means that browsers provide.
func TestOtherSites(t *testing.T) {
	m := cluster(t, 1)[0]
	m.put("there", "before", nil)
	at := site(t, `<iframe name="into"></iframe><iframe src="`+m.url+`/ui/"></iframe>
		<form method="post" enctype="text/plain" target="into" action="`+m.url+`/v3/kv/put">
		<input name='{"key":"Zm9ybQ==","value":"' value='MQ=="}'></form>`)
	p := open(t, at)
	var got string
	p.eval(`(async () => {
		const [key, member] = [btoa("script"), `+quote(m.url)+`];
		const outcome = (a) => a.then((r) => r.type + " " + r.status, () => "refused");
		const post = (path, more) => outcome(fetch(member + path, {
			method: "POST", body: JSON.stringify({ key, value: key }), ...more,
		}));
		const json = { headers: { "Content-Type": "application/json" } };
		const blind = { mode: "no-cors" };
		const all = [];
		for (const path of ["/v3/kv/put", "/v3beta/kv/put", "/v1/store/put"]) {
			for (const more of [{}, json, blind, { ...blind, headers: { "Content-Type": "text/plain" } }]) {
				all.push(await post(path, more));
			}
		}
		for (const path of ["/metrics", "/ui/", "/ui/api.js", "/v3/cluster/member/list"]) {
			all.push(await outcome(fetch(member + path)));
		}
		const sent = new Promise((done) => { document.querySelector("iframe").onload = done; });
		document.querySelector("form").submit();
		await sent;
		return [...new Set(all)].sort().join();
	})()`, &got)
	if got != "opaque 0,refused" {
		t.Errorf("a page of another site is answered: %s", got)
	}
	for _, key := range []string{"form", "script"} {
		if _, there := m.get(key); there {
			t.Errorf("the key %s was put", key)
		}
	}
	p.complains("Framing '" + m.url + "/' violates the following Content Security Policy directive: " +
		"\"frame-ancestors 'none'\"")
}
