package tidy

// An exception lets one place break one rule.
type exception struct {
	rule string
	at   string // as the finding shows it
	why  string
}

// exceptions lists the places where keeping a rule would make the code worse.
var exceptions = []exception{
	{"struct size", "client/config.go Config", "each field is an option of the program"},
}
