package server

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"leasehold.dev/internal/api/web"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// TestUI checks that --ui controls whether the dashboard exists and what it offers, and that the
// log states its address. The metrics port and members without the gateway have no dashboard.
func TestUI(t *testing.T) { virtual.Test(t, testUI) }

func testUI(t *testing.T) {
	for _, c := range []struct {
		ui      string
		gateway bool
		code    int
		want    string
	}{
		{web.UIOn, true, 200, `name="leasehold-acts" content="on"`},
		{web.UIReadOnly, true, 200, `name="leasehold-acts" content="off"`},
		{web.UIOff, true, 404, "Not Found"},
		{web.UIOn, false, 404, "Not Found"},
	} {
		conf := cheapConfig(shortDir(t))
		conf.HTTP.UI, conf.HTTP.Gateway = c.ui, c.gateway
		metrics := conf.URLs.ListenClient[0]
		metrics.Path += "m"
		conf.URLs.ListenMetrics = append(conf.URLs.ListenMetrics, metrics)
		var log harness.Log
		conf.Logger = slog.New(slog.NewTextHandler(&log, nil))
		conf.URLs.AdvertiseClient = []url.URL{{Scheme: "http", Host: "leases.example:2379"}}
		run(t, conf)
		logged := log.Contains(" page=http://leases.example:2379/ui/\n")
		if logged != (c.code == 200) {
			t.Errorf("--ui=%s, gateway %t: it said %s", c.ui, c.gateway, log.String())
		}
		code, text := getPage(t, conf.URLs.ListenClient[0].Path, "/ui/")
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("--ui=%s, gateway %t: %d %s", c.ui, c.gateway, code, text)
		}
		if code, _ := getPage(t, metrics.Path, "/ui/"); code != 404 {
			t.Errorf("--ui=%s: %d on the port of metrics", c.ui, code)
		}
	}
}
