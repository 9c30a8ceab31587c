// Command monitoring writes Leasehold's dashboards for Grafana:
//
//	go run -C packaging ./monitoring -out monitoring/dashboards
//
// With -prometheus, it instead draws them with data from that Prometheus server. The script
// pictures.sh starts such a server.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	out := flag.String("out", "dashboards", "the `directory` to write to")
	var p pictures
	flag.StringVar(&p.prometheus, "prometheus", "",
		"draw graphs with data from the Prometheus server at this `URL`")
	flag.StringVar(&p.job, "job", "leasehold", "the job to draw")
	flag.DurationVar(&p.last, "last", time.Minute, "the time range to draw")
	flag.StringVar(&p.interval, "interval", "10s", "the interval for rates")
	empty := flag.String("empty", "^$", "a `regexp` that matches panels that may have no data")
	flag.Parse()
	if err := run(*out, *empty, p); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func run(out, empty string, p pictures) (err error) {
	if p.prometheus == "" {
		return write(out)
	}
	if p.empty, err = regexp.Compile(empty); err != nil {
		return err
	}
	lacking, err := p.write(out)
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("these panels have no data:\n  %s", strings.Join(lacking, "\n  "))
	}
	return err
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range dashboards {
		text, err := d.render()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, d.file()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// dashboard is a page of panels, with three panels per row.
type dashboard struct {
	name   string
	panels []panel
}

// panel is a graph of one or more queries over time. In a query, JOB stands for the cluster
// selected on the page.
type panel struct {
	title, unit string
	queries     []query
}

// query is an expression with a legend for its lines.
type query struct{ expr, legend string }

func (d *dashboard) file() string { return "leasehold-" + d.name + ".json" }

type object = map[string]any

// source is the Prometheus data source selected on the page.
var source = object{"type": "prometheus", "uid": "${source}"}

// render returns the dashboard in Grafana's JSON model (schema version 39), for import.
func (d *dashboard) render() ([]byte, error) {
	const columns, width, height = 3, 8, 8
	var panels []object
	for i, p := range d.panels {
		var targets []object
		for n, q := range p.queries {
			targets = append(targets, object{
				"refId": string(rune('A' + n)), "datasource": source, "expr": inJob(q.expr, "$job"),
				"legendFormat": q.legend,
			})
		}
		panels = append(panels, object{
			"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source,
			"gridPos": object{
				"x": i % columns * width, "y": i / columns * height, "w": width, "h": height,
			},
			"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []any{}},
			"targets":     targets,
		})
	}
	variables := []object{
		{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
		{
			"name": "job", "type": "query", "label": "Cluster", "datasource": source,
			"query": "label_values(leasehold_raft_term, job)", "refresh": 2,
		},
	}
	text, err := json.MarshalIndent(object{
		"uid": "leasehold-" + d.name, "title": "Leasehold: " + d.name, "tags": []string{"leasehold"},
		"schemaVersion": 39, "timezone": "browser", "refresh": "10s",
		"time":       object{"from": "now-1h", "to": "now"},
		"templating": object{"list": variables}, "panels": panels,
	}, "", " ")
	return append(text, '\n'), err
}
