package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/table"
)

// formats are the values of --write-out.
var formats = []string{"fields", "json", "protobuf", "simple", "table"}

// An answer is what a command has to tell, in every format it can be told in.
// A format whose field is nil is not supported for this answer.
type answer struct {
	simple func(*page)
	fields func(*page)
	table  func() (head []string, rows [][]string)

	// json is marshalled as it is; jsonHex replaces it under --hex.
	json, jsonHex any

	// proto is marshalled if it is a proto.Message, and named in the complaint
	// if it is anything else.
	proto any
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

// page collects the text of one answer, so that it reaches the reader in one
// write.
type page struct {
	bytes.Buffer
	hex       bool
	valueOnly bool
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p, format, args...) }

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
