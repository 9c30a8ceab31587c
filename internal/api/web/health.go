package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// probes serves /health, /livez and /readyz.
type probes struct {
	health Health
	lg     *slog.Logger
}

// check is one check of a health page. A nil error means healthy.
type check struct {
	name string
	run  func(context.Context) error
}

// add registers the pages and a subpage for each check.
func (p *probes) add(mux *http.ServeMux) {
	local := check{"serializable_read", p.read(true)}
	mux.HandleFunc("/health", onlyGet(p.serveHealth))
	p.addPage(mux, "/livez", local)
	p.addPage(mux, "/readyz",
		check{"data_corruption", p.noCorruption}, local,
		check{"linearizable_read", p.read(false)}, check{"non_learner", p.notLearner},
		check{"disk_space", func(context.Context) error { return p.health.Disk() }})
}

func (p *probes) addPage(mux *http.ServeMux, path string, checks ...check) {
	mux.HandleFunc(path, onlyGet(p.page(checks)))
	for _, c := range checks {
		mux.HandleFunc(path+"/"+c.name, onlyGet(p.page([]check{c})))
	}
}

// page runs all checks except those excluded with ?exclude=. It responds with "ok", preceded by a
// line for each check if ?verbose is given. If a check fails, it responds with 503 and all lines.
func (p *probes) page(checks []check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		query := r.URL.Query()
		var text strings.Builder
		failed := false
		for _, c := range checks {
			if slices.Contains(query["exclude"], c.name) {
				continue
			}
			if err := c.run(ctx); err != nil {
				failed = true
				fmt.Fprintf(&text, "[-]%s failed: %v\n", c.name, err)
				continue
			}
			fmt.Fprintf(&text, "[+]%s ok\n", c.name)
		}
		if failed {
			p.lg.Error("health check failed", "path", r.URL.Path, "reason", text.String())
			http.Error(w, text.String(), http.StatusServiceUnavailable)
			return
		}
		if !query.Has("verbose") {
			text.Reset()
		}
		text.WriteString("ok\n")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(text.String()))
	}
}

// serveHealth serves etcd's older health page. As in etcd, its content type is not JSON, because
// probes compare the entire response.
func (p *probes) serveHealth(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	query := r.URL.Query()
	reason := p.reason(ctx, query["exclude"], query.Get("serializable") == "true")
	if reason != "" {
		p.lg.Warn("health check failed", "path", "/health", "reason", reason)
		text, _ := json.Marshal(reason) // a string can always be marshaled
		http.Error(w, `{"health":"false","reason":`+string(text)+`}`,
			http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(`{"health":"true","reason":""}`))
}

// reason returns the reason why the member is unhealthy, or "" if it is healthy.
func (p *probes) reason(ctx context.Context, excluded []string, serializable bool) string {
	for _, alarm := range p.health.Alarms() {
		if !slices.Contains(excluded, alarm) {
			return "ALARM " + alarm
		}
	}
	if !serializable && !p.health.HasLeader() {
		return "RAFT NO LEADER"
	}
	if err := p.health.Read(ctx, serializable); err != nil {
		return "RANGE ERROR:" + err.Error()
	}
	return ""
}

func (p *probes) read(serializable bool) func(context.Context) error {
	return func(ctx context.Context) error { return p.health.Read(ctx, serializable) }
}

func (p *probes) noCorruption(context.Context) error {
	if slices.Contains(p.health.Alarms(), "CORRUPT") {
		return errors.New("alarm activated: CORRUPT")
	}
	return nil
}

func (p *probes) notLearner(context.Context) error {
	if p.health.Learner() {
		return errors.New("not supported for learner")
	}
	return nil
}
