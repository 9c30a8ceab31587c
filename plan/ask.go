package plan

import (
	"github.com/spf13/pflag"
)

// A Question is one that plan answers.
type Question interface {
	// Flags adds the inputs to a set of flags, with their usual values.
	Flags(fs *pflag.FlagSet)
	// Answer tells what follows from the inputs. What makes no sense is a InputError.
	Answer() (Report, error)
}

// Questions makes the questions that need nothing but their flags, by the names of the commands.
var Questions = map[string]func() Question{
	"length":   func() Question { return new(LengthQuestion) },
	"levels":   func() Question { return new(levelsQuestion) },
	"outage":   func() Question { return new(OutageQuestion) },
	"caches":   func() Question { return new(cachesQuestion) },
	"capacity": func() Question { return new(CapacityQuestion) },
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
	// Data is the result itself.
	Data any
}
