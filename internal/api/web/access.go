package web

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
)

// guard rejects unknown hosts and answers CORS preflight requests. It also rejects state-changing
// requests that may come from other origins.
func (o Options) guard(next http.Handler) http.Handler {
	return o.hosts(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.addCORS(w, r)
		switch r.Method {
		case http.MethodOptions:
			w.WriteHeader(http.StatusOK)
			return
		// these change nothing, and the browser withholds the response
		case http.MethodGet, http.MethodHead:
		default:
			if origin := r.Header.Get("Origin"); !o.mayCall(origin, r.Host) {
				// Browsers send some cross-origin requests without a preflight.
				o.Logger.Warn("rejected a request from a different origin", "origin", origin)
				text := fmt.Sprintf("Pages from %q may not call this server.", origin)
				if isOrigin(origin) {
					text += fmt.Sprintf(" To allow this, start it with --cors %q.", origin)
				}
				http.Error(w, text, http.StatusForbidden)
				return
			}
		}
		if rest, old := strings.CutPrefix(r.URL.Path, "/v3beta/"); old {
			r.URL.Path = "/v3/" + rest // like etcd, support clients of etcd 3.3
		}
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.Method == http.MethodPost && !isJSON(r) {
			// Browsers let any page send forms and plain text, so these are rejected here. They are
			// accepted under /v3/, because curl -d and etcd clients that do not set a content type
			// must work there.
			writeJSON(w, http.StatusUnsupportedMediaType, failure{
				Code:    int(codes.InvalidArgument),
				Message: "a request under /v1/ requires the header Content-Type: application/json",
			})
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// isJSON reports whether a request declares its body as JSON.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// hosts rejects requests that name a host other than this server. Such requests come from pages of
// another site whose name was made to resolve to this machine (DNS rebinding, CVE-2018-5702). TLS
// requests do not need this check, because no certificate is valid for such a name.
func (o Options) hosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostName(r.Host); r.TLS == nil && !o.isHost(host, r) {
			o.Logger.Warn("rejected a request for a host that is not allowed", "host", host)
			http.Error(w, fmt.Sprintf("The Host header names %q, which is not allowed. "+
				"Use https, or start the server with --host-whitelist %q.", host, host),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isHost reports whether a request may name the given host. If there is no list, a request to a
// loopback address must name an address, localhost, or a name of this server. The request comes
// from this machine, so unless a browser was misled, it names this machine.
func (o Options) isHost(host string, r *http.Request) bool {
	if len(o.HostWhitelist) > 0 {
		return slices.Contains(o.HostWhitelist, "*") || slices.Contains(o.HostWhitelist, host)
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !at.IP.IsLoopback() {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	_, err := netip.ParseAddr(host)
	return host == "" || err == nil || name == "localhost" ||
		strings.HasSuffix(name, ".localhost") || slices.Contains(o.Hosts, name)
}

// mayCall reports whether pages of the given origin may call this host. These are the host's own
// pages and the pages of origins on the list. Only browsers send an origin.
func (o Options) mayCall(origin, host string) bool {
	u, err := url.Parse(origin)
	return origin == "" || slices.Contains(o.CORS, origin) || err == nil && u.Host == host
}

// isOrigin reports whether text can be on the list of origins. It must have the form
// SCHEME://HOST[:PORT], as sent by browsers: in lower case and without the scheme's default port.
// "null" is not allowed because it stands for many pages. Patterns are not allowed either.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || text != u.Scheme+"://"+u.Host {
		return false
	}
	if port := u.Port(); port == "" && strings.HasSuffix(text, ":") ||
		u.Scheme == "http" && port == "80" || u.Scheme == "https" && port == "443" {
		return false
	}
	return strings.ToLower(text) == text && !strings.Contains(text, "*") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

func (o Options) addCORS(w http.ResponseWriter, r *http.Request) {
	h, origin := w.Header(), r.Header.Get("Origin")
	h.Add("Vary", "Origin")
	if origin == "" || !slices.Contains(o.CORS, origin) {
		return
	}
	h.Add("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
	h.Add("Access-Control-Allow-Origin", origin)
	h.Add("Access-Control-Allow-Headers", "accept, content-type, authorization")
}

// hostName returns the host in a Host header, without the port.
func hostName(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.Trim(header, "[]")
}
