package ui

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/plan"
)

// plans is the path, relative to the page, at which the computations of "leasehold plan" are served
// as JSON. The parameters are the command's flags without dashes. A computation does not use any
// data from the cluster and changes nothing. Therefore it requires no permission, like the files of
// the page.
const plans = "plan/"

// Limits on the inputs, so that every computation terminates. No realistic plan has a TTL of a
// year.
const (
	longest     = 24 * time.Hour
	least, most = 1e-9, 1e12
	mostTimes   = 20 // per list
)

// answer is a report for the page, together with its inputs.
type answer struct {
	Inputs    []input     `json:"inputs"`
	Figures   [][2]string `json:"figures"`
	Head      []string    `json:"head"`
	Rows      [][]string  `json:"rows"`
	Sentences []string    `json:"sentences"`
}

// input is a flag. It contains the flag's value as text and, if possible, as a number. Durations
// are in seconds.
type input struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Usage   string   `json:"usage"`
	Value   string   `json:"value"`
	Number  float64  `json:"number"`
	Choices []string `json:"choices,omitempty"`
}

// servePlan computes the answer to a question from the page. Because this requires no permission,
// only one answer is computed at a time. The remaining CPUs stay available to the member.
func (p *Page) servePlan(w http.ResponseWriter, r *http.Request, name string) {
	question := plan.Questions[name]
	if question == nil {
		http.Error(w, "Unknown question.", http.StatusNotFound)
		return
	}
	select {
	case p.planning <- struct{}{}:
	case <-r.Context().Done():
		return // the client has left
	}
	text, err := p.planned(r.URL.RawQuery, question())
	var wrong *plan.InputError
	switch {
	case errors.As(err, &wrong):
		http.Error(w, wrong.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // ignore errors, because the browser may have left
}

// planned computes one answer. The caller must have sent a value to p.planning. planned receives
// that value before it returns.
func (p *Page) planned(query string, q plan.Question) ([]byte, error) {
	defer func() { <-p.planning }()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false // keep the command's order
	q.Flags(fs)
	if err := take(fs, query); err != nil {
		return nil, err
	}
	report, err := q.Answer()
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer{
		Inputs: inputs(fs), Figures: report.Figures, Head: report.Head, Rows: report.Rows,
		Sentences: report.Sentences,
	})
}

func wrong(field, advice, problem string, args ...any) error {
	return &plan.InputError{Field: field, Problem: fmt.Sprintf(problem, args...), Advice: advice}
}

// take sets the flags given in the query. Other flags keep their defaults.
func take(fs *pflag.FlagSet, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return wrong("query", "use name=value pairs separated by &", "cannot be parsed: %v", err)
	}
	for name := range values {
		if fs.Lookup(name) == nil {
			return wrong("question", "remove it", "has an unknown input %q", name)
		}
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if err != nil || !values.Has(f.Name) {
			return
		}
		text := values.Get(f.Name)
		if _, list := f.Value.(pflag.SliceValue); list && text == "" {
			return // same as an absent flag
		}
		ok := f.Value.Set(text) == nil
		advice := "use true or false"
		switch f.Value.Type() {
		case "duration":
			d, _ := fs.GetDuration(f.Name)
			ok = ok && isTime(d)
			advice = "use a duration such as 10s, at most 24 hours"
		case "durationSlice":
			all, _ := fs.GetDurationSlice(f.Name)
			ok = ok && len(all) <= mostTimes && !slices.ContainsFunc(all, func(d time.Duration) bool {
				return !isTime(d)
			})
			advice = "use durations such as 10s,25s, no more than twenty, each at most 24 hours"
		case "float64":
			v, _ := fs.GetFloat64(f.Name)
			ok = ok && (v == 0 || v >= least && v <= most)
			advice = "use 0, or a number from 1e-9 to 1e12"
		case "int":
			advice = "use a whole number"
		}
		if !ok {
			err = wrong("value of "+f.Name, advice, "is %q", text)
		}
	})
	return err
}

// isTime reports whether a duration is within the limits for a question.
func isTime(d time.Duration) bool { return d >= 0 && d <= longest }

// inputs returns the flags as inputs.
func inputs(fs *pflag.FlagSet) []input {
	var out []input
	fs.VisitAll(func(f *pflag.Flag) {
		in := input{Name: f.Name, Kind: f.Value.Type(), Usage: f.Usage, Value: f.Value.String()}
		switch in.Kind {
		case "durationSlice":
			in.Value = strings.Trim(in.Value, "[]") // the format used in questions
		case "duration":
			d, _ := fs.GetDuration(f.Name) // cannot fail for this type
			in.Number = d.Seconds()
		case "float64":
			in.Number, _ = fs.GetFloat64(f.Name)
		case "int":
			n, _ := fs.GetInt(f.Name)
			in.Number = float64(n)
		}
		if f.Name == "issuer" {
			in.Choices = plan.Issuers
		}
		out = append(out, in)
	})
	return out
}
