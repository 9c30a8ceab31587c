package plan

import (
	"github.com/spf13/pflag"
)

// A Question is a question that plan answers.
type Question interface {
	// Flags adds the inputs to a set of flags, with their default values.
	Flags(fs *pflag.FlagSet)
	// Answer computes the consequences of the inputs. Impossible inputs are an InputError.
	Answer() (Report, error)
}

// Questions returns new questions that need only flags, by the names of the commands.
var Questions = map[string]func() Question{
	"length":   func() Question { return new(LengthQuestion) },
	"levels":   func() Question { return new(levelsQuestion) },
	"outage":   func() Question { return new(OutageQuestion) },
	"caches":   func() Question { return new(cachesQuestion) },
	"capacity": func() Question { return new(CapacityQuestion) },
}

// A Report is an answer for human readers.
type Report struct {
	// Figures holds names and values.
	Figures [][2]string
	// Head and Rows form a table, which may be empty.
	Head []string
	Rows [][]string
	// Sentences explain the result with its numbers.
	Sentences []string
	// Data is the result itself.
	Data any
}
