package compare

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// ProgressBar returns a function that shows steps on w. If w is a terminal, it redraws a bar.
// Otherwise it prints one line per step.
func ProgressBar(w io.Writer, terminal bool) func(Step) {
	began := time.Now()
	return func(s Step) {
		head, tail := "", "\n"
		if terminal {
			head, tail = "\r\x1b[K", ""
		}
		if s.Done == s.Total {
			fmt.Fprintf(w, "%sdone: %d runs in %s\n", head, s.Total, since(began))
			return
		}
		const width = 24
		full := s.Done * width / s.Total
		bar := strings.Repeat("#", full) + strings.Repeat(".", width-full)
		left := ""
		if s.Done > 0 {
			d := time.Since(began) / time.Duration(s.Done) * time.Duration(s.Total-s.Done)
			left = ", about " + d.Round(time.Second).String() + " left"
		}
		fmt.Fprintf(w, "%s[%s] %d/%d %s on %s, round %d%s%s",
			head, bar, s.Done+1, s.Total, s.Workload, s.Target, s.Round, left, tail)
	}
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
