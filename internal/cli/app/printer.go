package app

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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

// An Answer is the output of a command in each format. If the field for a format is nil, the answer
// does not support that format. The zero Answer prints nothing.
type Answer struct {
	text   string // printed unchanged in every format
	Code   int    // exit code of the command
	Simple func(*Page)
	Fields func(*Page)
	Table  func() (head []string, rows [][]string)

	// JSON is marshaled for the JSON format; with --hex, JSONHex is marshaled instead.
	JSON, JSONHex any

	// Proto is marshaled if it is a proto.Message. Otherwise, it appears in the error text.
	Proto any
}

// Plain returns an answer that is the same text in every format.
func Plain(text string) Answer { return Answer{text: text} }

// ProtoAnswer returns the Answer for a leasehold.v1 message. Its fields are the same as in the
// JSON.
func ProtoAnswer(m proto.Message, simple func(*Page)) Answer {
	return Answer{
		JSON: ProtoJSON(m), Proto: m, Simple: simple,
		Fields: func(p *Page) { p.Message(m.ProtoReflect()) },
	}
}

// AlignedAnswer returns the Answer for a leasehold.v1 message that is shown as a table, even in the
// simple format.
func AlignedAnswer(m proto.Message, head []string, rows [][]string) Answer {
	ans := ProtoAnswer(m, func(p *Page) { p.Aligned(append([][]string{head}, rows...)...) })
	ans.Table = func() ([]string, [][]string) { return head, rows }
	return ans
}

// RowsAnswer returns an answer that is shown as a table, even in the simple format. It makes the
// cells safe to display.
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

// ProtoJSON returns a message in the JSON encoding used by the gateway.
func ProtoJSON(m proto.Message) json.RawMessage {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil { // only for invalid UTF-8, which gRPC does not deliver
		return json.RawMessage("null")
	}
	return b
}

// A Printer prints answers in one format.
type Printer struct {
	format    string // one of formats
	hex       bool
	ValueOnly bool // omit keys in the simple format
}

// newPrinter returns the printer for a value of --write-out.
func newPrinter(format string, hex bool) (Printer, error) {
	if !slices.Contains(formats, format) {
		return Printer{}, BadFeature("unsupported output format")
	}
	return Printer{format: format, hex: hex}, nil
}

// Unsupported returns the error for a format that an answer does not support.
func Unsupported(format string) error {
	return BadFeature("%s not supported as output format", format)
}

func (p Printer) print(w io.Writer, a Answer) error {
	page := &Page{hex: p.hex, valueOnly: p.ValueOnly}
	switch {
	case a.text != "":
		page.WriteString(a.text)
	case a.Simple == nil && a.Fields == nil && a.Table == nil && a.JSON == nil:
		return nil
	case p.format == "simple" && a.Simple != nil:
		a.Simple(page)
	case p.format == "fields" && a.Fields != nil:
		a.Fields(page)
	case p.format == "table" && a.Table != nil:
		head, rows := a.Table()
		return table.Write(w, head, rows)
	case p.format == "json":
		v := a.JSON
		if p.hex && a.JSONHex != nil {
			v = a.JSONHex
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		page.Write(append(b, '\n'))
	case p.format == "protobuf" && a.Proto != nil: // exactly as received
		m, ok := a.Proto.(proto.Message)
		if !ok {
			return BadFeature("marshal unsupported for type %T (%v)", a.Proto, a.Proto)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		page.Write(b)
	default:
		return Unsupported(p.format)
	}
	_, err := w.Write(page.Bytes())
	return err
}

// Text formats an answer.
func (a Answer) Text(format string, hex bool) (string, error) {
	p, err := newPrinter(format, hex)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = p.print(&b, a)
	return b.String(), err
}

// Page collects the text of one answer so that it can be written in one call.
type Page struct {
	bytes.Buffer
	hex       bool
	valueOnly bool
}

// Printf prints formatted text.
func (p *Page) Printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// Lines prints names, one per line.
func (p *Page) Lines(names []string) {
	for _, name := range names {
		p.Printf("%s\n", Readable(name))
	}
}

// Message prints a line for each field in a message's JSON, in the same order.
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

// Aligned prints rows with aligned columns. The first row can be a heading.
func (p *Page) Aligned(rows ...[]string) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = w.Write([]byte(strings.Join(row, "\t") + "\n")) // written to memory
	}
	_ = w.Flush()
}

// Field prints one line of the fields format.
func (p *Page) Field(name string, value any) { p.Printf("%q : %v\n", name, value) }

// Quoted prints one line of the fields format with a string value.
func (p *Page) Quoted(name, value string) { p.Printf("%q : %q\n", name, value) }

// MemberID prints a line with the ID of a member or a cluster.
func (p *Page) MemberID(name string, id uint64) {
	if p.hex {
		p.Printf("%q : %x\n", name, id)
		return
	}
	p.Field(name, id)
}

// LeaseID prints a line with the ID of a lease.
func (p *Page) LeaseID(name string, id int64) {
	if p.hex {
		p.Printf("%q : %016x\n", name, id)
		return
	}
	p.Field(name, id)
}

// Rows prints a table without borders.
func (p *Page) Rows(rows [][]string) {
	for _, row := range rows {
		p.Printf("%s\n", strings.Join(row, ", "))
	}
}
