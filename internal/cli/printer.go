package cli

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

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"leasehold.dev/internal/table"
)

// formats are the values of --write-out.
var formats = []string{"fields", "json", "protobuf", "simple", "table"}

// An answer is what a command prints, in each format that it can be printed in. A format whose
// field is nil is not supported for this answer. The zero answer prints nothing.
type answer struct {
	text   string // printed as it is, in any format
	code   int    // exit code of the command, if it is not 0
	simple func(*page)
	fields func(*page)
	table  func() (head []string, rows [][]string)

	// json is marshalled as it is; jsonHex replaces it under --hex.
	json, jsonHex any

	// proto is marshalled if it is a proto.Message, and named in the complaint
	// if it is anything else.
	proto any
}

// plain is an answer that is the same text in every format.
func plain(text string) answer { return answer{text: text} }

// protoAnswer is an answer of leasehold.v1. Its fields are those of the JSON.
func protoAnswer(m proto.Message, simple func(*page)) answer {
	return answer{
		json: protoJSON(m), proto: m, simple: simple,
		fields: func(p *page) { p.message(m.ProtoReflect()) },
	}
}

// etcdAnswer is an answer of etcd's API.
func etcdAnswer(m proto.Message, simple func(*page)) answer {
	return answer{json: m, proto: m, simple: simple}
}

// withHeader is any response of which only the header is data.
type withHeader interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// showLine shows a response that has no data but its header.
func showLine(r withHeader, format string, args ...any) answer {
	ans := etcdAnswer(r, func(p *page) { p.printf(format+"\n", args...) })
	ans.fields = func(p *page) { p.header(r.GetHeader()) }
	return ans
}

// alignedAnswer is an answer of leasehold.v1 that is a table, also in simple.
func alignedAnswer(m proto.Message, head []string, rows [][]string) answer {
	ans := protoAnswer(m, func(p *page) { p.aligned(append([][]string{head}, rows...)...) })
	ans.table = func() ([]string, [][]string) { return head, rows }
	return ans
}

// rowsAnswer is an answer that is a table, also in simple. Cells are made readable.
func rowsAnswer(head []string, raw [][]string, json any) answer {
	rows := make([][]string, len(raw))
	for i, row := range raw {
		rows[i] = readableAll(row)
	}
	return answer{
		json:  json,
		table: func() ([]string, [][]string) { return head, rows },
		simple: func(p *page) {
			lines := [][]string{strings.Split(strings.ToUpper(strings.Join(head, "\t")), "\t")}
			for _, row := range rows {
				line := slices.Clone(row)
				for i := range line {
					line[i] = cmp.Or(line[i], "-")
				}
				lines = append(lines, line)
			}
			p.aligned(lines...)
		},
	}
}

// protoJSON is a message in the JSON of the gateway.
func protoJSON(m proto.Message) json.RawMessage {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil { // only strings that are not UTF-8, which did not come over the wire
		return json.RawMessage("null")
	}
	return b
}

// A printer writes answers in one format.
type printer interface {
	print(w io.Writer, a answer) error
}

// newPrinter returns the printer for a value of --write-out.
func newPrinter(format string, hex bool) (printer, error) {
	switch format {
	case "simple":
		return &simplePrinter{hex: hex}, nil
	case "fields":
		return fieldsPrinter{hex}, nil
	case "json":
		return jsonPrinter{hex}, nil
	case "protobuf":
		return protoPrinter{}, nil
	case "table":
		return tablePrinter{}, nil
	}
	return nil, badFeature("unsupported output format")
}

func unsupported(format string) error {
	return badFeature("%s not supported as output format", format)
}

// simplePrinter writes lines for people and shell scripts.
type simplePrinter struct {
	hex       bool
	valueOnly bool // leave the keys out
}

func (s *simplePrinter) print(w io.Writer, a answer) error {
	if a.simple == nil {
		return unsupported("simple")
	}
	p := &page{hex: s.hex, valueOnly: s.valueOnly}
	a.simple(p)
	_, err := w.Write(p.Bytes())
	return err
}

// fieldsPrinter writes one line for each field.
type fieldsPrinter struct{ hex bool }

func (f fieldsPrinter) print(w io.Writer, a answer) error {
	if a.fields == nil {
		return unsupported("fields")
	}
	p := &page{hex: f.hex}
	a.fields(p)
	_, err := w.Write(p.Bytes())
	return err
}

// jsonPrinter writes one JSON object a line.
type jsonPrinter struct{ hex bool }

func (j jsonPrinter) print(w io.Writer, a answer) error {
	v := a.json
	if j.hex && a.jsonHex != nil {
		v = a.jsonHex
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

func (protoPrinter) print(w io.Writer, a answer) error {
	if a.proto == nil {
		return unsupported("protobuf")
	}
	m, ok := a.proto.(proto.Message)
	if !ok {
		return badFeature("marshal unsupported for type %T (%v)", a.proto, a.proto)
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

func (tablePrinter) print(w io.Writer, a answer) error {
	if a.table == nil {
		return unsupported("table")
	}
	head, rows := a.table()
	return table.Write(w, head, rows)
}

// print writes an answer by a printer.
func (a answer) print(w io.Writer, by printer) error {
	switch {
	case a.text != "":
		_, err := io.WriteString(w, a.text)
		return err
	case a.simple == nil && a.fields == nil && a.table == nil && a.json == nil:
		return nil
	}
	return by.print(w, a)
}

// page collects the text of one answer, so that it reaches the reader in one
// write.
type page struct {
	bytes.Buffer
	hex       bool
	valueOnly bool
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

// lines writes names, a line each.
func (p *page) lines(names []string) {
	for _, name := range names {
		p.printf("%s\n", readable(name))
	}
}

// message writes a line for each field of a message that JSON would have, in their order.
func (p *page) message(m protoreflect.Message) {
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
				p.quoted(string(f.Name()), line)
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

func (p *page) value(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := string(f.Name())
	switch f.Kind() {
	case protoreflect.MessageKind:
		p.message(v.Message())
	case protoreflect.EnumKind:
		p.field(name, f.Enum().Values().ByNumber(v.Enum()).Name())
	case protoreflect.BytesKind:
		text := string(v.Bytes())
		if !utf8.ValidString(text) {
			text = base64.StdEncoding.EncodeToString(v.Bytes())
		}
		p.quoted(name, text)
	case protoreflect.StringKind:
		p.quoted(name, v.String())
	default:
		p.field(name, v.Interface())
	}
}

// aligned writes rows, the first of which may be a heading, with their columns under each other.
func (p *page) aligned(rows ...[]string) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = w.Write([]byte(strings.Join(row, "\t") + "\n")) // into memory
	}
	_ = w.Flush()
}

// field writes a line of the fields format.
func (p *page) field(name string, value any) { p.printf("%q : %v\n", name, value) }

// quoted writes a line of the fields format whose value is a string.
func (p *page) quoted(name, value string) { p.printf("%q : %q\n", name, value) }

// memberID writes a line whose value is the id of a member or a cluster.
func (p *page) memberID(name string, id uint64) {
	if p.hex {
		p.printf("%q : %x\n", name, id)
		return
	}
	p.field(name, id)
}

// leaseID writes a line whose value is the id of a lease.
func (p *page) leaseID(name string, id int64) {
	if p.hex {
		p.printf("%q : %016x\n", name, id)
		return
	}
	p.field(name, id)
}

// rows writes a table without its lines.
func (p *page) rows(rows [][]string) {
	for _, row := range rows {
		p.printf("%s\n", strings.Join(row, ", "))
	}
}

// siBytes writes a size with a unit, powers of 1000, one decimal below ten.
func siBytes(n int64) string {
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
