package app

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"leasehold.dev/internal/table"
)

// formats are the values of --write-out.
var formats = []string{"fields", "json", "protobuf", "simple", "table"}

// An Answer is what a command prints, in each format that it can be printed in. A format whose
// field is nil is not supported for this answer. The zero answer prints nothing.
type Answer struct {
	text   string // printed as it is, in any format
	Code   int    // exit code of the command, if it is not 0
	Simple func(*Page)
	Fields func(*Page)
	Table  func() (head []string, rows [][]string)

	// json is marshalled as it is; jsonHex replaces it under --hex.
	JSON, JSONHex any

	// proto is marshalled if it is a proto.Message, and named in the complaint
	// if it is anything else.
	Proto any
}

// Plain is an answer that is the same text in every format.
func Plain(text string) Answer { return Answer{text: text} }

// ProtoAnswer is an answer of leasehold.v1. Its fields are those of the JSON.
func ProtoAnswer(m proto.Message, simple func(*Page)) Answer {
	return Answer{
		JSON: ProtoJSON(m), Proto: m, Simple: simple,
		Fields: func(p *Page) { p.Message(m.ProtoReflect()) },
	}
}

// AlignedAnswer is an answer of leasehold.v1 that is a table, also in simple.
func AlignedAnswer(m proto.Message, head []string, rows [][]string) Answer {
	ans := ProtoAnswer(m, func(p *Page) { p.Aligned(append([][]string{head}, rows...)...) })
	ans.Table = func() ([]string, [][]string) { return head, rows }
	return ans
}

// RowsAnswer is an answer that is a table, also in simple. Cells are made readable.
func RowsAnswer(head []string, raw [][]string, json any) Answer {
	rows := make([][]string, len(raw))
	for i, row := range raw {
		rows[i] = ReadableAll(row)
	}
	return Answer{
		JSON:  json,
		Table: func() ([]string, [][]string) { return head, rows },
		Simple: func(p *Page) {
			lines := [][]string{strings.Split(strings.ToUpper(strings.Join(head, "\t")), "\t")}
			for _, row := range rows {
				line := slices.Clone(row)
				for i := range line {
					line[i] = cmp.Or(line[i], "-")
				}
				lines = append(lines, line)
			}
			p.Aligned(lines...)
		},
	}
}

// ProtoJSON is a message in the JSON of the gateway.
func ProtoJSON(m proto.Message) json.RawMessage {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil { // only strings that are not UTF-8, which did not come over the wire
		return json.RawMessage("null")
	}
	return b
}

// A Printer writes answers in one format.
type Printer interface {
	print(w io.Writer, a Answer) error
}

// newPrinter returns the printer for a value of --write-out.
func newPrinter(format string, hex bool) (Printer, error) {
	switch format {
	case "simple":
		return &SimplePrinter{hex: hex}, nil
	case "fields":
		return fieldsPrinter{hex}, nil
	case "json":
		return jsonPrinter{hex}, nil
	case "protobuf":
		return protoPrinter{}, nil
	case "table":
		return tablePrinter{}, nil
	}
	return nil, BadFeature("unsupported output format")
}

// Unsupported is the error for a format that an answer does not have.
func Unsupported(format string) error {
	return BadFeature("%s not supported as output format", format)
}

// SimplePrinter writes lines for people and shell scripts.
type SimplePrinter struct {
	hex       bool
	ValueOnly bool // leave the keys out
}

func (s *SimplePrinter) print(w io.Writer, a Answer) error {
	if a.Simple == nil {
		return Unsupported("simple")
	}
	p := &Page{hex: s.hex, valueOnly: s.ValueOnly}
	a.Simple(p)
	_, err := w.Write(p.Bytes())
	return err
}

// fieldsPrinter writes one line for each field.
type fieldsPrinter struct{ hex bool }

func (f fieldsPrinter) print(w io.Writer, a Answer) error {
	if a.Fields == nil {
		return Unsupported("fields")
	}
	p := &Page{hex: f.hex}
	a.Fields(p)
	_, err := w.Write(p.Bytes())
	return err
}

// jsonPrinter writes one JSON object a line.
type jsonPrinter struct{ hex bool }

func (j jsonPrinter) print(w io.Writer, a Answer) error {
	v := a.JSON
	if j.hex && a.JSONHex != nil {
		v = a.JSONHex
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// protoPrinter writes the message as it came over the wire, nothing added.
type protoPrinter struct{}

func (protoPrinter) print(w io.Writer, a Answer) error {
	if a.Proto == nil {
		return Unsupported("protobuf")
	}
	m, ok := a.Proto.(proto.Message)
	if !ok {
		return BadFeature("marshal unsupported for type %T (%v)", a.Proto, a.Proto)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// tablePrinter draws a table.
type tablePrinter struct{}

func (tablePrinter) print(w io.Writer, a Answer) error {
	if a.Table == nil {
		return Unsupported("table")
	}
	head, rows := a.Table()
	return table.Write(w, head, rows)
}

// print writes an answer by a printer.
func (a Answer) print(w io.Writer, by Printer) error {
	switch {
	case a.text != "":
		_, err := io.WriteString(w, a.text)
		return err
	case a.Simple == nil && a.Fields == nil && a.Table == nil && a.JSON == nil:
		return nil
	}
	return by.print(w, a)
}

// Text returns an answer in a format.
func (a Answer) Text(format string, hex bool) (string, error) {
	p, err := newPrinter(format, hex)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = a.print(&b, p)
	return b.String(), err
}

// Page collects the text of one answer, so that it reaches the reader in one
// write.
type Page struct {
	bytes.Buffer
	hex       bool
	valueOnly bool
}

// Printf writes formatted text.
func (p *Page) Printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// Lines writes names, a line each.
func (p *Page) Lines(names []string) {
	for _, name := range names {
		p.Printf("%s\n", Readable(name))
	}
}

// Message writes a line for each field of a message that JSON would have, in their order.
func (p *Page) Message(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch v := m.Get(f); {
		case !m.Has(f):
		case f.IsMap():
			var lines []string
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				lines = append(lines, k.String()+"="+v.String())
				return true
			})
			slices.Sort(lines)
			for _, line := range lines {
				p.Quoted(string(f.Name()), line)
			}
		case f.IsList():
			for i := range v.List().Len() {
				p.value(f, v.List().Get(i))
			}
		default:
			p.value(f, v)
		}
	}
}

func (p *Page) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := string(f.Name())
	switch f.Kind() {
	case protoreflect.MessageKind:
		p.Message(v.Message())
	case protoreflect.EnumKind:
		p.Field(name, f.Enum().Values().ByNumber(v.Enum()).Name())
	case protoreflect.BytesKind:
		text := string(v.Bytes())
		if !utf8.ValidString(text) {
			text = base64.StdEncoding.EncodeToString(v.Bytes())
		}
		p.Quoted(name, text)
	case protoreflect.StringKind:
		p.Quoted(name, v.String())
	default:
		p.Field(name, v.Interface())
	}
}

// Aligned writes rows, the first of which may be a heading, with their columns under each other.
func (p *Page) Aligned(rows ...[]string) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = w.Write([]byte(strings.Join(row, "\t") + "\n")) // into memory
	}
	_ = w.Flush()
}

// Field writes a line of the fields format.
func (p *Page) Field(name string, value any) { p.Printf("%q : %v\n", name, value) }

// Quoted writes a line of the fields format whose value is a string.
func (p *Page) Quoted(name, value string) { p.Printf("%q : %q\n", name, value) }

// MemberID writes a line whose value is the id of a member or a cluster.
func (p *Page) MemberID(name string, id uint64) {
	if p.hex {
		p.Printf("%q : %x\n", name, id)
		return
	}
	p.Field(name, id)
}

// LeaseID writes a line whose value is the id of a lease.
func (p *Page) LeaseID(name string, id int64) {
	if p.hex {
		p.Printf("%q : %016x\n", name, id)
		return
	}
	p.Field(name, id)
}

// Rows writes a table without its lines.
func (p *Page) Rows(rows [][]string) {
	for _, row := range rows {
		p.Printf("%s\n", strings.Join(row, ", "))
	}
}

// SIBytes writes a size with a unit, powers of 1000, one decimal below ten.
func SIBytes(n int64) string {
	u := uint64(n)
	if u < 10 {
		return fmt.Sprintf("%d B", u)
	}
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	unit, size := 0, 1.0
	for float64(u)/size >= 1000 && unit < len(units)-1 {
		unit, size = unit+1, size*1000
	}
	tenths := math.Floor(float64(u)/size*10+0.5) / 10
	if tenths < 10 {
		return fmt.Sprintf("%.1f %s", tenths, units[unit])
	}
	return fmt.Sprintf("%.0f %s", tenths, units[unit])
}
