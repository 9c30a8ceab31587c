package dump

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"leasehold.dev/internal/encoding"
)

// printer prints records and tracks which parts could not be read.
type printer struct {
	w      *bufio.Writer
	failed error // first write error

	bad   int
	first error // the first problem, or the first one caused by a newer release if there is any
}

func newPrinter(w io.Writer) *printer { return &printer{w: bufio.NewWriter(w)} }

// record prints a record as an object on its own line. value must be a struct.
func (p *printer) record(kind string, value any) {
	fields := tree(reflect.ValueOf(value)).(object)
	p.line(append(object{{"record", word(kind)}}, fields...))
}

// problem prints an error in place of something that could not be read. It does nothing if err is
// nil.
func (p *printer) problem(place string, err error) {
	if err == nil {
		return
	}
	p.bad++
	if newer := isNewer(err); p.first == nil || newer && !isNewer(p.first) {
		p.first = fmt.Errorf("%s: %w", place, err)
	}
	p.line(object{{"record", word("error")}, {"place", word(place)}, {"error", text(err.Error())}})
}

func isNewer(err error) bool { return errors.Is(err, encoding.ErrNewer) }

func (p *printer) line(o object) {
	b, err := json.Marshal(o)
	if err != nil {
		p.failed = errors.Join(p.failed, err)
		return
	}
	if p.failed == nil {
		_, p.failed = p.w.Write(append(b, '\n'))
	}
}

// end flushes the output. It returns an error if anything could not be written or read.
func (p *printer) end() error {
	if err := errors.Join(p.failed, p.w.Flush()); err != nil {
		return err
	}
	if p.bad > 1 {
		return fmt.Errorf("%d records could not be read: %w", p.bad, p.first)
	}
	return p.first
}
