package web

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guard refuses unknown hosts and answers browsers' questions about origins.
func (o Options) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostName(r.Host); r.TLS == nil && !allows(o.HostWhitelist, host) {
			// A page of another site whose name was made to resolve to this
			// machine (DNS rebinding, CVE-2018-5702) ends here.
			o.Logger.Warn("refused a request for a host that is not on the list", "host", host)
			http.Error(w, fmt.Sprintf("The Host header names %q, which is not on the list. "+
				"Use https, or start the member with --host-whitelist %q.", host, host),
				http.StatusMisdirectedRequest)
			return
		}
		o.addCORS(w, r)
		switch r.Method {
		case http.MethodOptions:
			w.WriteHeader(http.StatusOK)
			return
		case http.MethodGet, http.MethodHead: // change nothing; a browser keeps the answers
		default:
			if origin := r.Header.Get("Origin"); !o.mayCall(origin, r.Host) {
				// Browsers send some requests of foreign pages without asking first.
				o.Logger.Warn("refused a request of a page of another origin", "origin", origin)
				http.Error(w, fmt.Sprintf("Pages of %q may not call this member. "+
					"To let them, start it with --cors %q.", origin, origin), http.StatusForbidden)
				return
			}
		}
		if rest, old := strings.CutPrefix(r.URL.Path, "/v3beta/"); old {
			r.URL.Path = "/v3/" + rest // as etcd does, for clients of its 3.3
		}
		next.ServeHTTP(w, r)
	})
}

// mayCall reports whether pages of origin may call this host: its own, and those on the
// list. Programs that are no browsers name no origin.
func (o Options) mayCall(origin, host string) bool {
	u, err := url.Parse(origin)
	return origin == "" || slices.Contains(o.CORS, "*") || slices.Contains(o.CORS, origin) ||
		err == nil && u.Host == host
}

func (o Options) addCORS(w http.ResponseWriter, r *http.Request) {
	origin := "*"
	if !slices.Contains(o.CORS, "*") {
		origin = r.Header.Get("Origin")
		w.Header().Add("Vary", "Origin")
		if origin == "" || !slices.Contains(o.CORS, origin) {
			return
		}
	}
	h := w.Header()
	h.Add("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
	h.Add("Access-Control-Allow-Origin", origin)
	h.Add("Access-Control-Allow-Headers", "accept, content-type, authorization")
}

// allows reports whether list, in which "*" is all, and so is an empty list,
// holds s.
func allows(list []string, s string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, s)
}

// hostName returns the host of a Host header, without its port.
func hostName(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.Trim(header, "[]")
}
