// Package tracetest has a collector of traces for tests. It decodes OTLP by itself, so that a
// mistake of the encoder shows.
package tracetest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Span is a span as it arrived, and the resource and scope that it came with.
type Span struct {
	Trace, ID, Parent, State, Name string
	Kind                           uint64
	Start, End                     uint64
	Attributes                     map[string]any
	Status, Flags                  uint64
	Resource                       map[string]any
	Scope, Release                 string
}

// Collector is an HTTP handler that takes spans. Its zero value takes all.
type Collector struct {
	// Before, if set, may answer a request, and then returns true.
	Before func(w http.ResponseWriter, r *http.Request) (answered bool)

	mu    sync.Mutex
	spans []Span
	err   error
	come  chan struct{} // closed when something has come
}

// ServeHTTP implements http.Handler.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.Before != nil && c.Before(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
	case r.Method != http.MethodPost || r.URL.Path != "/v1/traces":
		err = fmt.Errorf("%s %s", r.Method, r.URL.Path)
	case r.Header.Get("Content-Type") != "application/x-protobuf":
		err = fmt.Errorf("content type %q", r.Header.Get("Content-Type"))
	}
	var spans []Span
	if err == nil {
		spans, err = Decode(body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans, c.err = append(c.spans, spans...), errors.Join(c.err, err)
	if c.come != nil {
		close(c.come)
		c.come = nil
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Spans returns what has come, and what was wrong with it.
func (c *Collector) Spans() ([]Span, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans), c.err
}

// Wait waits until enough says that enough has come, or something wrong, or stop is closed.
func (c *Collector) Wait(stop <-chan struct{}, enough func([]Span) bool) ([]Span, error) {
	for {
		c.mu.Lock()
		spans, err := slices.Clone(c.spans), c.err
		if c.come == nil {
			c.come = make(chan struct{})
		}
		come := c.come
		c.mu.Unlock()
		if err != nil || enough(spans) {
			return spans, err
		}
		select {
		case <-come:
		case <-stop:
			return spans, errors.New("stopped waiting")
		}
	}
}

// part is a field of a message: bytes or a number.
type part struct {
	field protowire.Number
	typ   protowire.Type
	bytes []byte
	n     uint64
}

// parts decodes a message into its fields.
func parts(b []byte) (all []part, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		p := part{field: num, typ: typ}
		switch typ {
		case protowire.BytesType:
			p.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			p.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			p.n, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			p.n = uint64(v)
		default:
			return nil, fmt.Errorf("field %d has type %d", num, typ)
		}
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		b = b[n:]
		all = append(all, p)
	}
	return all, nil
}

// decoder remembers the first error.
type decoder struct{ err error }

func (d *decoder) parts(p part) []part {
	all, err := parts(p.bytes)
	if p.typ != protowire.BytesType {
		err = fmt.Errorf("field %d has type %d, and should be a message", p.field, p.typ)
	}
	d.err = errors.Join(d.err, err)
	return all
}

// typed checks the type of a field.
func (d *decoder) typed(p part, typ protowire.Type) part {
	if p.typ != typ {
		d.err = errors.Join(d.err, fmt.Errorf("field %d has type %d, not %d", p.field, p.typ, typ))
	}
	return p
}

// Decode decodes an ExportTraceServiceRequest. An unknown field is an error.
func Decode(body []byte) (spans []Span, err error) {
	d := &decoder{}
	for _, p := range d.parts(part{bytes: body, typ: protowire.BytesType}) {
		d.only(p, 1)
		spans = append(spans, d.resourceSpans(p)...)
	}
	return spans, d.err
}

// only checks that a field is one of those that are known.
func (d *decoder) only(p part, known ...protowire.Number) {
	if !slices.Contains(known, p.field) {
		d.err = errors.Join(d.err, fmt.Errorf("unknown field %d", p.field))
	}
}

func (d *decoder) resourceSpans(p part) (spans []Span) {
	resource := map[string]any{}
	for _, p := range d.parts(p) {
		d.only(p, 1, 2)
		if p.field == 1 {
			for _, a := range d.parts(p) {
				d.only(a, 1)
				d.attribute(resource, a)
			}
			continue
		}
		spans = append(spans, d.scopeSpans(p)...)
	}
	for i := range spans {
		spans[i].Resource = resource
	}
	return spans
}

func (d *decoder) scopeSpans(p part) (spans []Span) {
	var scope [3]string
	for _, p := range d.parts(p) {
		d.only(p, 1, 2)
		if p.field == 1 {
			for _, s := range d.parts(p) {
				d.only(s, 1, 2)
				scope[s.field] = string(d.typed(s, protowire.BytesType).bytes)
			}
			continue
		}
		spans = append(spans, d.span(p))
	}
	for i := range spans {
		spans[i].Scope, spans[i].Release = scope[1], scope[2]
	}
	return spans
}

func (d *decoder) span(p part) Span {
	s := Span{Attributes: map[string]any{}}
	text := map[protowire.Number]*string{3: &s.State, 5: &s.Name}
	id := map[protowire.Number]*string{1: &s.Trace, 2: &s.ID, 4: &s.Parent}
	number := map[protowire.Number]*uint64{6: &s.Kind, 7: &s.Start, 8: &s.End, 16: &s.Flags}
	types := map[protowire.Number]protowire.Type{
		6: protowire.VarintType, 7: protowire.Fixed64Type, 8: protowire.Fixed64Type,
		16: protowire.Fixed32Type,
	}
	for _, p := range d.parts(p) {
		d.only(p, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16)
		switch {
		case text[p.field] != nil:
			*text[p.field] = string(d.typed(p, protowire.BytesType).bytes)
		case id[p.field] != nil:
			*id[p.field] = hex.EncodeToString(d.typed(p, protowire.BytesType).bytes)
		case number[p.field] != nil:
			*number[p.field] = d.typed(p, types[p.field]).n
		case p.field == 9:
			d.attribute(s.Attributes, p)
		case p.field == 15:
			for _, p := range d.parts(p) {
				d.only(p, 3)
				s.Status = d.typed(p, protowire.VarintType).n
			}
		}
	}
	if len(s.Trace) != 32 || len(s.ID) != 16 || s.Parent != "" && len(s.Parent) != 16 {
		d.err = errors.Join(d.err, fmt.Errorf("IDs %q %q %q", s.Trace, s.ID, s.Parent))
	}
	return s
}

func (d *decoder) attribute(to map[string]any, p part) {
	key, value := "", any(nil)
	for _, p := range d.parts(p) {
		d.only(p, 1, 2)
		if p.field == 1 {
			key = string(d.typed(p, protowire.BytesType).bytes)
			continue
		}
		for _, p := range d.parts(p) {
			switch p.field {
			case 1:
				value = string(d.typed(p, protowire.BytesType).bytes)
			case 2:
				value = d.typed(p, protowire.VarintType).n == 1
			case 3:
				value = int64(d.typed(p, protowire.VarintType).n)
			default:
				d.only(p)
			}
		}
	}
	to[key] = value
}
