package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pictures draws the dashboards with recent data of a job from a Prometheus server.
type pictures struct {
	prometheus, job string
	last            time.Duration
	// interval replaces $__rate_interval. It is four times the scrape interval.
	interval string
	empty    *regexp.Regexp // matches titles of panels that are allowed to have no line
}

// points is the number of points per line.
const points = 60

// write writes a file for each dashboard, and returns the panels that should have a line but do
// not.
func (p pictures) write(dir string) (empty []string, err error) {
	end := time.Now()
	for _, d := range dashboards {
		var charts []Chart
		for _, panel := range d.panels {
			c, err := p.chart(panel, end)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", d.name, panel.title, err)
			}
			if len(c.Curves) == 0 && !p.empty.MatchString(panel.title) {
				empty = append(empty, d.name+": "+panel.title)
			}
			charts = append(charts, c)
		}
		f := new(bytes.Buffer)
		if err := page(f, charts); err != nil {
			return nil, err
		}
		name := filepath.Join(dir, "dashboard-"+d.name+".svg")
		if err := os.WriteFile(name, f.Bytes(), 0o644); err != nil {
			return nil, err
		}
	}
	return empty, nil
}

// page draws charts at half their size, with three charts per row.
func page(w io.Writer, charts []Chart) error {
	// a chart measures 640 by 300 points, each of 96/72 pixels
	const columns, width, height = 3, 427, 200
	rows := (len(charts) + columns - 1) / columns
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n",
		columns*width, rows*height)
	for i, c := range charts {
		fmt.Fprintf(w, "<g transform=\"translate(%d %d) scale(0.5)\">\n",
			i%columns*width, i/columns*height)
		if err := c.SVG(w); err != nil {
			return err
		}
		fmt.Fprintln(w, "</g>")
	}
	_, err := fmt.Fprintln(w, "</svg>")
	return err
}

// chart queries the lines of a panel.
func (p pictures) chart(of panel, end time.Time) (Chart, error) {
	c := Chart{Title: of.title, X: "seconds ago", Y: of.unit}
	for _, q := range of.queries {
		lines, err := p.ask(strings.ReplaceAll(inJob(q.expr, p.job), "$__rate_interval", p.interval), end)
		if err != nil {
			return c, err
		}
		for _, l := range lines {
			if xy := l.xy(end); len(xy) > 0 {
				c.Curves = append(c.Curves, Curve{Name: l.name(q.legend), XY: xy})
				for _, at := range xy {
					c.MaxY = max(c.MaxY, at[1])
				}
			}
		}
	}
	if c.MaxY == 0 {
		c.MaxY = 1
	}
	return c, nil
}

// line is a time series in Prometheus's response. Each value is a pair of a time in seconds and a
// quoted number.
type line struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

func (p pictures) ask(expr string, end time.Time) ([]line, error) {
	resp, err := http.PostForm(p.prometheus+"/api/v1/query_range", url.Values{
		"query": {expr}, "start": {stamp(end.Add(-p.last))}, "end": {stamp(end)},
		"step": {strconv.FormatFloat((p.last / points).Seconds(), 'f', 3, 64)},
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []line `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var label = regexp.MustCompile(`{{(\w+)}}`)

// name returns the legend, with the line's labels inserted.
func (l line) name(legend string) string {
	return label.ReplaceAllStringFunc(legend, func(s string) string {
		return l.Metric[strings.Trim(s, "{}")]
	})
}

// xy returns the points of the line. It omits values that are not numbers, such as a quantile of no
// data.
func (l line) xy(end time.Time) (out [][2]float64) {
	for _, v := range l.Values {
		at, _ := v[0].(float64)
		text, _ := v[1].(string)
		if y, err := strconv.ParseFloat(text, 64); err == nil && y == y && y-y == 0 {
			out = append(out, [2]float64{at - float64(end.UnixMilli())/1000, y})
		}
	}
	return out
}
