package sim

const (
	shellGo      = "internal/shell/shell.go"
	shellClockGo = "internal/shell/clock.go"
)

// plantedShell lists faults in the order in which a member performs its work.
var plantedShell = []planted{
	{"the clock is read before the mail is taken", "rule 1", []edit{
		{shellGo, "\tTakeMail, ReadClock, Advance,", "\tReadClock, TakeMail, Advance,"},
	}},
	{"an answer before the view that shows it", "S1", []edit{
		{
			shellGo, "\tSend, Save, Show, Follow, Publish, Answer,",
			"\tSend, Save, Answer, Show, Follow, Publish,",
		},
	}},
	{"events before the view that shows them", "W1", []edit{
		{shellGo, "Save, Show, Follow, Publish,", "Save, Publish, Follow, Show,"},
	}},
}
