package tidy

// An exception lets one place break one rule.
type exception struct {
	rule string
	at   string // as the finding shows it
	why  string
}

// exceptions lists the places where keeping a rule would make the code worse.
var exceptions = []exception{}
