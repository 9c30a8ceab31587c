package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/api/web"
)

// HTTP configures the web pages and the JSON gateway.
type HTTP struct {
	// Gateway enables the JSON gateway under /v3/. The default is true.
	Gateway bool
	// UI configures the web page under /ui/, which needs the gateway. With "off", there is no page.
	// With "read-only", the page has no controls that change anything. With "on", it has all
	// controls. This setting does not protect anything, because access control determines what a
	// user is allowed to do. The default is "on".
	UI string
	// Pprof enables /debug/pprof/. The default is false.
	Pprof bool
	// CORS lists other origins, in the form SCHEME://HOST[:PORT], whose pages can call this member
	// from a browser. By default, there are none. Unlike in etcd, it is not possible to allow all
	// origins. Otherwise, any page open in a browser that can reach the member could write to it.
	CORS []string
	// HostWhitelist lists the host names that plain HTTP requests can have in Host, to prevent DNS
	// rebinding. "*" allows all names. By default, it is empty. All names are then allowed, except
	// that a loopback address allows only IP addresses, localhost and the hosts of AdvertiseClient.
	HostWhitelist []string
	// Collectors contains metrics of the process, which are shown at /metrics together with the
	// member's metrics. By default, there are none.
	Collectors []prometheus.Collector
}

func defaultHTTP() HTTP {
	s := web.DefaultSettings()
	return HTTP{Gateway: s.Gateway, UI: s.UI}
}

// settings returns the settings that members share with relays.
func (h *HTTP) settings() web.Settings {
	return web.Settings{
		Gateway: h.Gateway, UI: h.UI, CORS: h.CORS, HostWhitelist: h.HostWhitelist,
	}
}

func (h *HTTP) check() error {
	s := h.settings()
	return s.Check()
}
