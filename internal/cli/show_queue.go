package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"leasehold.dev/client/queue"
)

// rowsAnswer is an answer that is a table, also in simple.
func rowsAnswer(head []string, raw [][]string, json any) answer {
	rows := make([][]string, len(raw))
	for i, row := range raw {
		rows[i] = readableAll(row)
	}
	return answer{
		json:  json,
		table: func() ([]string, [][]string) { return head, rows },
		simple: func(p *page) {
			w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, strings.ToUpper(strings.Join(head, "\t")))
			for _, row := range rows {
				line := make([]string, len(row))
				for i, cell := range row {
					line[i] = cell
					if cell == "" {
						line[i] = "-"
					}
				}
				fmt.Fprintln(w, strings.Join(line, "\t"))
			}
			_ = w.Flush() // into memory
		},
	}
}

// itemJSON is an item in JSON. Bytes are in base64, as in every answer.
type itemJSON struct {
	ID      string `json:"id"`
	State   string `json:"state"`
	Worker  string `json:"worker,omitempty"`
	Tries   int64  `json:"tries"`
	Payload []byte `json:"payload"`
	Token   uint64 `json:"token,string,omitempty"`
}

// showClaim shows an item that was claimed: its payload and nothing else, if not asked for
// more.
func showClaim(i *queue.Item) answer {
	return answer{
		simple: func(p *page) { p.printf("%s\n", i.Payload()) },
		json: itemJSON{
			i.ID(), queue.Claimed.String(), "", i.Tries(), i.Payload(), uint64(i.Token()),
		},
	}
}

// showItems shows a page of a queue with its counts, or of its dead letters without.
func showItems(s *queue.Stats, list []queue.Info) answer {
	type counts struct {
		Ready   int64 `json:"ready"`
		Claimed int64 `json:"claimed"`
		Delayed int64 `json:"delayed"`
		Dead    int64 `json:"dead"`
	}
	out := struct {
		Counts *counts    `json:"counts,omitempty"`
		Items  []itemJSON `json:"items"`
	}{Items: []itemJSON{}}
	var rows [][]string
	for _, i := range list {
		out.Items = append(out.Items, itemJSON{
			i.ID, i.State.String(), i.Worker, i.Tries, i.Payload, 0,
		})
		rows = append(rows, []string{
			i.ID, i.State.String(), fmt.Sprint(i.Tries), i.Worker, glimpse(i.Payload),
		})
	}
	if s != nil {
		out.Counts = &counts{s.Ready, s.Claimed, s.Delayed, s.Dead}
	}
	ans := rowsAnswer([]string{"ID", "State", "Tries", "Worker", "Payload"}, rows, out)
	table := ans.simple
	ans.simple = func(p *page) {
		if s != nil {
			p.printf("%d ready, %d claimed, %d delayed, %d dead\n",
				s.Ready, s.Claimed, s.Delayed, s.Dead)
		}
		if len(rows) > 0 {
			table(p)
		}
	}
	return ans
}

// glimpse is the beginning of a payload, on one line.
func glimpse(payload []byte) string {
	const most = 40
	s := string(payload)
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}
