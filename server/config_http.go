package server

import (
	"fmt"
	"slices"

	"leasehold.dev/internal/api/web"
)

// HTTP tunes the pages and the JSON gateway.
type HTTP struct {
	// Gateway serves the JSON gateway under /v3/. Default true.
	Gateway bool
	// UI says what the page for people under /ui/ offers, which needs the gateway: "off", there is
	// none; "read-only", it shows, and offers nothing that changes something; or "on". That
	// protects nothing: what a user may do, access control says. Default "on".
	UI string
	// Pprof serves /debug/pprof/. Default false.
	Pprof bool
	// CORS lists the origins, beside its own, whose pages browsers may let call this member, each
	// as SCHEME://HOST[:PORT]. Default none, and never all, unlike in etcd: any page that is open
	// in a browser which can reach the member could write to it.
	CORS []string
	// HostWhitelist lists the host names that plain HTTP requests may name, which stops DNS
	// rebinding; "*" is all. Default none: all, but to a loopback address only addresses,
	// localhost, and the hosts of AdvertiseClient.
	HostWhitelist []string
}

// The values of HTTP.UI.
const (
	uiOff, uiReadOnly, uiOn = "off", "read-only", "on"
)

func (h *HTTP) check() error {
	if !slices.Contains([]string{uiOff, uiReadOnly, uiOn}, h.UI) {
		return fmt.Errorf("--ui %q is not one of off, read-only, on", h.UI)
	}
	for _, origin := range h.CORS {
		if !web.IsOrigin(origin) {
			return fmt.Errorf("--cors %q: name each origin whose pages may call this member as "+
				"browsers send it, such as https://admin.example.com or http://localhost:3000; "+
				"there is no word for all", origin)
		}
	}
	return nil
}
