package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/api/web"
)

// HTTP configures the pages and the JSON gateway.
type HTTP struct {
	// Gateway serves the JSON gateway under /v3/. Default true.
	Gateway bool
	// UI configures the web page under /ui/, which needs the gateway: "off", no page; "read-only",
	// a page without controls that change something; or "on". It protects nothing: access control
	// decides what a user may do. Default "on".
	UI string
	// Pprof serves /debug/pprof/. Default false.
	Pprof bool
	// CORS lists the other origins whose pages may call this member from a browser, each as
	// SCHEME://HOST[:PORT]. Default none. Unlike in etcd it cannot be all: otherwise any page open
	// in a browser that can reach the member could write to it.
	CORS []string
	// HostWhitelist lists the host names that plain HTTP requests may have in Host, against DNS
	// rebinding; "*" is all. Default none: all names, but at a loopback address only IP
	// addresses, localhost and the hosts of AdvertiseClient.
	HostWhitelist []string
	// Collectors are metrics of the process, shown at /metrics together with the member's. Default
	// none.
	Collectors []prometheus.Collector
}

func defaultHTTP() HTTP {
	s := web.DefaultSettings()
	return HTTP{Gateway: s.Gateway, UI: s.UI}
}

// settings returns the settings that relays have in common with members.
func (h *HTTP) settings() web.Settings {
	return web.Settings{
		Gateway: h.Gateway, UI: h.UI, CORS: h.CORS, HostWhitelist: h.HostWhitelist,
	}
}

func (h *HTTP) check() error {
	s := h.settings()
	return s.Check()
}
