package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// site serves one page of another site, and returns its address.
func site(t *testing.T, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(w, "<!doctype html><title>x</title>", body) // a browser that is gone needs none
	}))
	t.Cleanup(s.Close)
	return named(t, s.URL, "elsewhere.test")
}

// named puts a name in the place of the host of an address. The browser takes it for this machine.
func named(t *testing.T, at, name string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = name + ":" + u.Port()
	return u.String()
}

// A page of another site can neither write nor read through the browser of an administrator, nor
// frame the page, in any of the ways that browsers allow.
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

// A name that was rebound to this machine gets neither the page nor the API.
func TestRebinding(t *testing.T) {
	m := cluster(t, 1)[0]
	p := open(t, named(t, m.url, "rebound.test")+"/ui/")
	p.shows("which is not allowed")
	var status int
	p.eval(`fetch("/v3/kv/range", { method: "POST", body: '{"key":"YQ=="}' }).then((r) => r.status)`,
		&status)
	if status != http.StatusMisdirectedRequest {
		t.Errorf("the API answers with status %d", status)
	}
}
