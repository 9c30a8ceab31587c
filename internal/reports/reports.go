// Package reports has the questions that package plan answers, for the command line and for the
// page: their inputs are flags, and the answer is told in figures, sentences and a picture. It
// reads no clock and does no I/O; an input that is a file is the caller's.
package reports

import (
	"io"

	"github.com/spf13/pflag"
)

// A Question is one that plan answers.
type Question interface {
	// Flags adds the inputs to a set of flags, with their usual values.
	Flags(fs *pflag.FlagSet)
	// Answer tells what follows from the inputs. What makes no sense is a figures.InputError.
	Answer() (Report, error)
}

// Questions makes the questions that need nothing but their flags, by the names of the commands.
var Questions = map[string]func() Question{
	"length":   func() Question { return new(Length) },
	"levels":   func() Question { return new(Levels) },
	"outage":   func() Question { return new(Outage) },
	"caches":   func() Question { return new(Caches) },
	"capacity": func() Question { return new(Capacity) },
}

// A Report is what people are told.
type Report struct {
	// Figures are names and values.
	Figures [][2]string
	// Head and Rows are a table; there may be none.
	Head []string
	Rows [][]string
	// Sentences tell it with the numbers of the choice.
	Sentences []string
	// SVG draws it; nil if there is no picture.
	SVG func(io.Writer) error
	// Data is the result itself.
	Data any
}
