package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// An entry is a Series as it appears in the JSON report.
type entry struct {
	Series
	Rate   Spread            `json:"rate"`
	Median Result            `json:"median"`
	Ratio  map[string]Spread `json:"ratio"`
}

// WriteJSON writes every round, with medians and ratios of the rates.
func WriteJSON(w io.Writer, p Plan, series []*Series) error {
	report := struct {
		CPUs    int     `json:"cpus"`
		Members int     `json:"members"`
		Seconds float64 `json:"seconds"`
		Conns   int     `json:"conns"`
		Leases  int     `json:"leases"`
		Results []entry `json:"results"`
	}{
		CPUs: runtime.NumCPU(), Members: p.Members, Seconds: p.Duration.Seconds(),
		Conns: p.Conns, Leases: p.Leases,
	}
	for _, s := range series {
		e := entry{Series: *s, Rate: s.rate(), Median: s.Median(), Ratio: map[string]Spread{}}
		for _, o := range series {
			if !s.Sheet && o.label() == s.label() && o.Target != s.Target {
				e.Ratio[o.Target] = s.ratio(o)
			}
		}
		report.Results = append(report.Results, e)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}

func (s *Series) rate() Spread { return s.spread(func(r Result) float64 { return r.Rate }) }

// WriteTable writes one line for each workload and target. A line contains medians, with the
// minimum and maximum of rates and ratios in brackets. Workloads without a rate follow, each with
// its own sheet.
func WriteTable(w io.Writer, p Plan, series []*Series) error {
	fmt.Fprintf(w, "members: %d\n", p.Members)
	var rates, sheets []*Series
	for _, s := range series {
		switch {
		case len(s.Rounds) == 0:
		case s.Sheet:
			sheets = append(sheets, s)
		default:
			rates = append(rates, s)
		}
	}
	if err := writeRates(w, rates); err != nil {
		return err
	}
	for len(sheets) > 0 {
		n := 1
		for n < len(sheets) && sheets[n].label() == sheets[0].label() {
			n++
		}
		if err := writeSheet(w, sheets[:n]); err != nil {
			return err
		}
		sheets = sheets[n:]
	}
	return nil
}

func writeRates(w io.Writer, series []*Series) error {
	if len(series) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	others := []string{"etcd", "ceiling"}
	has := func(target string) bool {
		return slices.ContainsFunc(series, func(s *Series) bool { return s.Target == target })
	}
	switch {
	case has("zookeeper"):
		others = []string{"etcd", "zookeeper"}
	case has("synced"):
		others = []string{"ceiling", "synced"}
	}
	fmt.Fprintf(t, "workload\tserver\trate/s\tp50/p99 ms\tcpu us\trss MiB\tx %s\tx %s\tmore\n",
		others[0], others[1])
	last := ""
	for _, s := range series {
		name := s.label()
		if name == last {
			name = ""
		}
		last = s.label()
		m := s.Median()
		if m.Terms > 0 {
			m.More = append(m.More, Metric{"new", float64(m.Terms), "terms"})
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f/%.2f\t%.1f\t%.0f\t%s\t%s\t%s\n",
			name, s.Target, s.rate().text("%.0f"), m.P50, m.P99, m.CPU, m.RSS,
			ratioText(s, others[0], series), ratioText(s, others[1], series), more(m.More))
	}
	return t.Flush()
}

// writeSheet writes one line for each figure and one column for each target. All series must belong
// to the same workload. A figure that a server does not have is shown as a dash.
func writeSheet(w io.Writer, series []*Series) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n%s", series[0].label())
	var most []Metric
	for _, s := range series {
		fmt.Fprintf(t, "\t%s", s.Target)
		if m := s.Rounds[0].More; len(m) > len(most) {
			most = m
		}
	}
	for _, m := range most {
		fmt.Fprintf(t, "\n%s, %s", m.Name, m.Unit)
		for _, s := range series {
			fmt.Fprintf(t, "\t%s", s.figure(m.Name))
		}
	}
	// If there are more terms than faults, some elections failed.
	fmt.Fprint(t, "\nterms begun")
	for _, s := range series {
		terms := s.spread(func(r Result) float64 { return float64(r.Terms) })
		fmt.Fprintf(t, "\t%s", terms.figures())
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// figure formats one figure, or returns "-" if it is missing.
func (s *Series) figure(name string) string {
	named := func(m Metric) bool { return m.Name == name }
	i := slices.IndexFunc(s.Rounds[0].More, named)
	if i < 0 {
		return "-"
	}
	return s.spread(func(r Result) float64 { return r.More[i].Value }).figures()
}

// ratioText formats the ratio of s to a target of the same workload, or returns "-" if there is
// none.
func ratioText(s *Series, target string, series []*Series) string {
	for _, o := range series {
		if o.label() == s.label() && o.Target == target && o.Target != s.Target &&
			len(o.Rounds) > 0 {
			return s.ratio(o).text("%.2f")
		}
	}
	return "-"
}

// text formats the median, followed by the spread if there is one.
func (s Spread) text(format string) string {
	out := fmt.Sprintf(format, s.Median)
	if s.Min == s.Max {
		return out
	}
	return out + fmt.Sprintf(" ["+format+".."+format+"]", s.Min, s.Max)
}

// figures is like text, but accepts figures of any magnitude.
func (s Spread) figures() string {
	if s.Min == s.Max {
		return figure(s.Median)
	}
	return fmt.Sprintf("%s [%s..%s]", figure(s.Median), figure(s.Min), figure(s.Max))
}

func more(list []Metric) string {
	parts := make([]string, 0, len(list))
	for _, m := range list {
		parts = append(parts, fmt.Sprintf("%s %s %s", m.Name, figure(m.Value), m.Unit))
	}
	return strings.Join(parts, ", ")
}

// figure formats a value with about three digits and without an exponent.
func figure(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
