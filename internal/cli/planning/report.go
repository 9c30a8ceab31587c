package planning

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/plan"
)

// A report is the result of a command that computes or measures. It consists of figures, a table
// and sentences, or is printed as JSON.
type report struct {
	plan.Report     // its Data is converted to JSON by fieldsOf
	wire        any // JSON that is printed unchanged instead of Data
}

// reportFormats are the values of --output.
var reportFormats = []string{"table", "json"}

// reportFlags select the format of a report.
type reportFlags struct{ format string }

func (s *reportFlags) register(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&s.format, "output", "o", "table",
		"output format: "+strings.Join(reportFormats, ", "))
	app.CompleteFlag(cmd, "output", reportFormats...)
}

// check returns an error for an unknown format. It accepts --write-out json as an alias for
// --output json, because all other commands have --write-out.
func (s *reportFlags) check(a commands) error {
	switch {
	case !a.Flags.Set.Changed("write-out") || a.Flags.Format == "simple" || a.Flags.Format == "table":
	case a.Flags.Format == "json":
		s.format = "json"
	default:
		return app.Unsupported(a.Flags.Format)
	}
	if !slices.Contains(reportFormats, s.format) {
		return app.BadFeature("unknown output %q: choose one of %s", s.format,
			strings.Join(reportFormats, ", "))
	}
	return nil
}

// display prints a report.
func (s *reportFlags) display(a commands, sh report) error {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if s.format == "json" {
		data := sh.wire
		if data == nil {
			data = fieldsOf(sh.Data)
		}
		text, err := json.MarshalIndent(data, "", "  ")
		if err != nil {
			return err
		}
		_, err = a.Stdout.Write(append(text, '\n'))
		return err
	}
	var out strings.Builder
	if err := sh.text(&out, a.reportWidth()); err != nil {
		return err
	}
	_, err := io.WriteString(a.Stdout, out.String())
	return err
}

// reportWidth returns the width of the terminal, or COLUMNS, capped at a readable width.
func (a commands) reportWidth() int {
	width := 80
	if f, ok := a.Stdout.(*os.File); ok {
		if n, ok := app.Columns(f); ok && n > 0 {
			width = n
		}
	}
	if n, err := strconv.Atoi(a.Getenv("COLUMNS")); err == nil && n > 0 {
		width = n
	}
	return max(40, min(width, 120))
}

// text writes the report as text.
func (sh report) text(w *strings.Builder, width int) error {
	gap := func() {
		if w.Len() > 0 {
			w.WriteByte('\n')
		}
	}
	if len(sh.Figures) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, f := range sh.Figures {
			fmt.Fprintf(t, "%s\t%s\n", f[0], f[1])
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(sh.Rows) > 0 {
		gap()
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, row := range append([][]string{sh.Head}, sh.Rows...) {
			fmt.Fprintf(t, "%s\t\n", strings.Join(row, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for i, text := range sh.Sentences {
		if i == 0 {
			gap()
		}
		for j, line := range wrap(text, width-2) {
			fmt.Fprintf(w, "%s%s\n", [...]string{"- ", "  "}[min(j, 1)], line)
		}
	}
	return nil
}

// wrap breaks text at spaces into lines of at most width characters. A longer word gets its own
// line.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}

// fieldsOf converts a value for JSON. Names become snake case, such as round_trip_s, durations
// become seconds, and infinity becomes null. Unexported fields are omitted.
func fieldsOf(v any) any { return fieldsOfValue(reflect.ValueOf(v)) }

func fieldsOfValue(v reflect.Value) any {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.Seconds()
	}
	switch v.Kind() {
	case reflect.Float64:
		if math.IsInf(v.Float(), 0) || math.IsNaN(v.Float()) {
			return nil
		}
		return v.Float()
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = fieldsOfValue(v.Index(i))
		}
		return list
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return fieldsOfValue(v.Elem())
	case reflect.Struct:
		return structFields(v)
	}
	return v.Interface()
}

// fieldList is a JSON object with ordered fields.
type fieldList []field

type field struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (f fieldList) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, x := range f {
		if i > 0 {
			out = append(out, ',')
		}
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		out = append(append(strconv.AppendQuote(out, x.name), ':'), value...)
	}
	return append(out, '}'), nil
}

func structFields(v reflect.Value) fieldList {
	out := fieldList{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		value := fieldsOfValue(v.Field(i))
		if list, ok := value.(fieldList); ok && len(list) == 0 {
			continue
		}
		name := snake(f.Name)
		if f.Type == reflect.TypeFor[time.Duration]() {
			name += "_s"
		}
		out = append(out, field{name, value})
	}
	return out
}

// snake converts a name to snake case: RoundTrip to round_trip, TTL to ttl.
func snake(name string) string {
	var out strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		inside := i > 0 && unicode.IsUpper(r)
		if inside && (unicode.IsLower(letters[i-1]) ||
			i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
