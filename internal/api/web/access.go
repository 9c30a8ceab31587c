package web

import (
	"fmt"
	"net"
	"net/http"
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
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusOK)
			return
		}
		if rest, old := strings.CutPrefix(r.URL.Path, "/v3beta/"); old {
			r.URL.Path = "/v3/" + rest // as etcd does, for clients of its 3.3
		}
		next.ServeHTTP(w, r)
	})
}

func (o Options) addCORS(w http.ResponseWriter, r *http.Request) {
	origin := "*"
	if !allows(o.CORS, "*") {
		origin = r.Header.Get("Origin")
		w.Header().Add("Vary", "Origin")
		if origin == "" || !allows(o.CORS, origin) {
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
