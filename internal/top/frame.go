package top

import (
	"cmp"
	"fmt"
	"strings"

	"leasehold.dev/internal/table"
)

// Style is how a line looks on a terminal that has colours.
type Style int

// The styles.
const (
	Plain Style = iota
	Strong
	Head
	Chosen
	Warning
	Alarm
	Faint
)

// Line is one of a frame. Its text has nothing in it that a terminal might obey.
type Line struct {
	Text  string
	Style Style
}

// Frame draws the screen, in lines as wide as it is, and not more than fit.
func (m *Model) Frame(width, height int) []Line {
	width, height = max(width, 1), max(height, 1)
	lines := m.head()
	lines = append(lines, m.tabs())
	if m.help {
		lines = append(lines, help...)
	} else {
		m.height = max(1, height-len(lines)-2)
		m.within()
		lines = append(lines, m.list(width, true)...)
	}
	lines = lines[:min(len(lines), height-1)]
	for len(lines) < height-1 {
		lines = append(lines, Line{})
	}
	lines = append(lines, m.foot())
	for i := range lines {
		lines[i].Text = fit(lines[i].Text, width, false)
	}
	return lines
}

// Page is the screen as text, for what is no terminal: what is known of the cluster, and the first
// rows of the list.
func (m *Model) Page(width, rows int) string {
	m.height, m.at = rows, position{}
	m.pick()
	lines := m.head()
	if lines[len(lines)-1].Text != "" {
		lines = append(lines, Line{})
	}
	lines = append(lines, m.list(width, false)...)
	if n := len(m.rows) - rows; n > 0 {
		lines = append(lines, Line{Text: "and " + number(n) + " more"})
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(strings.TrimRight(fit(l.Text, width, false), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// head is what is known of the cluster.
func (m *Model) head() []Line {
	look, known := m.looks.newest()
	first := Line{Text: "leasehold top  " + table.Readable(m.options.Title), Style: Strong}
	if !known {
		first.Text += "  asking"
		return []Line{first, {}, {}, m.trouble()}
	}
	answer, leader := 0, "nobody leads"
	for i := range look.Members {
		x := &look.Members[i]
		if x.Error == "" {
			answer++
		}
		if x.Role == "leader" && x.Error == "" {
			leader = table.Readable(x.Name) + " leads"
		}
	}
	first.Text += fmt.Sprintf("  %s  members %d of %d, %s", look.Verdict, answer,
		len(look.Members), leader)
	switch look.Verdict {
	case "degraded":
		first.Style = Warning
	case "down":
		first.Style = Alarm
	}
	return []Line{first, {Text: m.rates(look)}, {Text: m.figures(look)}, m.trouble()}
}

// rates is how much the cluster does.
func (m *Model) rates(look reading) string {
	text := "leases -"
	if n, ok := look.leases(); ok {
		text = "leases " + number(n)
	}
	for _, c := range []counter{granted, renewed, expired, revoked} {
		text += "  " + c.name + " " + perSecond(m.looks.rate(c))
	}
	return text
}

// figures is how well it does.
func (m *Model) figures(look reading) string {
	t := m.totalsOf(look)
	past := "none"
	if t.overdue > 0 {
		past = short(t.overdue)
	}
	text := fmt.Sprintf("log sync 99%% %s  late 99%% %s  overdue %s  lag %s  %s %s",
		t.sync.text(), t.late.text(), past, number(int(t.lag)), nearMisses.name,
		perSecond(m.looks.rate(nearMisses)))
	if t.waits > 0 {
		text += "  writes wait for caches: " + number(int(t.waits))
	}
	if age := m.now - look.at; age > 3*m.options.Interval+oldAnswer {
		text += "  as of " + whole(age) + " ago"
	}
	return text
}

// trouble is what is wrong, if anything is.
func (m *Model) trouble() Line {
	look, _ := m.looks.newest()
	switch {
	case m.lost != nil && m.book.all == nil:
		return Line{Text: fmt.Sprintf("no member answers: %s", table.Readable(m.lost.why)), Style: Alarm}
	case m.lost != nil:
		return Line{Text: fmt.Sprintf("No answer for %s. What follows was so then: %s",
			whole(m.now-m.lost.since), table.Readable(m.lost.why)), Style: Alarm}
	case len(look.Reasons) > 1:
		return Line{Text: fmt.Sprintf("%s; and %d more: see leasehold status",
			table.Readable(look.Reasons[0]), len(look.Reasons)-1), Style: Warning}
	case len(look.Reasons) == 1:
		return Line{Text: table.Readable(look.Reasons[0]), Style: Warning}
	case m.pane == Waits && m.waits.err != "":
		return Line{Text: "the keys cannot be read: " + table.Readable(m.waits.err), Style: Warning}
	case m.pane == Waits && m.waits.more:
		return Line{
			Text:  "there are more keys than are looked through: start with --prefix",
			Style: Warning,
		}
	case m.book.cut:
		return Line{
			Text:  "more than " + number(maxLeases) + " leases: choose by --prefix or --owner",
			Style: Warning,
		}
	}
	return Line{}
}

// tabs names the panes, and says what is chosen of the one that is seen.
func (m *Model) tabs() Line {
	var b strings.Builder
	for i, name := range PaneNames {
		if Pane(i) == m.pane {
			name = strings.ToUpper(name)
		}
		fmt.Fprintf(&b, "%d %s  ", i+1, name)
	}
	if o := m.order(); m.paused {
		b.WriteString("paused " + whole(m.clock-m.now) + " ago")
	} else if o != "" && m.open == nil {
		b.WriteString("by " + o)
	}
	return Line{Text: b.String()}
}

// list is the list that is seen, with its heading. On a terminal one row is chosen.
func (m *Model) list(width int, choose bool) (lines []Line) {
	columns := columnsOf[m.pane]
	if m.open != nil {
		columns = []column{{title: "lease", width: 10}, {grow: true}}
	}
	mark := 0
	if choose {
		mark = 2
	}
	widths := spread(columns, width, mark)
	line := func(cells []string) string {
		var b strings.Builder
		for i, c := range columns {
			if widths[i] == 0 {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(fit(cells[i], widths[i], c.right))
		}
		return b.String()
	}
	heads := make([]string, len(columns))
	for i, c := range columns {
		heads[i] = strings.ToUpper(c.title)
	}
	lines = append(lines, Line{strings.Repeat(" ", mark) + line(heads), Head})
	for i := m.at.top; i < min(len(m.rows), m.at.top+m.height); i++ {
		cells, style := m.rows[i].cells, m.rows[i].style
		if cells == nil {
			cells, style = m.leaseCells(m.rows[i].lease)
		}
		text := strings.Repeat(" ", mark) + line(cells)
		if choose && i == m.at.row {
			text, style = "> "+line(cells), Chosen
		}
		lines = append(lines, Line{text, style})
	}
	if len(m.rows) == 0 {
		lines = append(lines, Line{strings.Repeat(" ", mark) + m.nothing(), Faint})
	}
	return lines
}

// spread gives the columns their widths, 0 for those that do not fit the screen.
func spread(columns []column, width, mark int) []int {
	out := make([]int, len(columns))
	grow := 0
	rest := width - mark + 1
	for i, c := range columns {
		switch {
		case c.from > width:
		case c.grow:
			grow++
			rest--
		default:
			out[i] = c.width
			rest -= c.width + 1
		}
	}
	for i, c := range columns {
		if c.grow {
			out[i] = max(1, rest/grow)
			rest -= out[i]
			grow--
		}
	}
	return out
}

// nothing says why a list is empty.
func (m *Model) nothing() string {
	switch {
	case m.pane == Members:
		return "asking"
	case m.pane == Waits && !m.waits.known, m.pane != Waits && !m.book.listed:
		return cmp.Or(map[bool]string{true: "not known"}[m.lost != nil], "asking")
	case m.filter != "":
		return "nothing that the filter leaves"
	default:
		return "none"
	}
}

// foot is what the keys do, or the filter while it is typed.
func (m *Model) foot() Line {
	switch {
	case m.typing:
		return Line{"filter: " + table.Readable(m.filter) + "_  (Enter ends, Escape clears)", Head}
	case m.help:
		return Line{"any key goes back", Head}
	}
	text := "q quit  / filter  s sort  Enter open  Tab pane  p pause  ? help"
	if m.open != nil {
		text = "q quit  Escape back  p pause  ? help"
	}
	if m.filter != "" && m.pane != Members && m.open == nil {
		text = "filter: " + table.Readable(m.filter) + "  Escape clears  " + text
	}
	if n := len(m.rows); n > m.height {
		text = fmt.Sprintf("%s-%s of %s  ", number(m.at.top+1), number(min(n, m.at.top+m.height)),
			number(n)) + text
	}
	return Line{text, Head}
}

var help = []Line{
	{Text: ""},
	{Text: "  1 to 6, Tab   another list: leases, prefixes, owners, ends, waits, members"},
	{Text: "  up, down      choose; also k and j, page up and down, home and end"},
	{Text: "  Enter         open the lease, or list the leases of the prefix or the owner"},
	{Text: "  Escape        go back, or lift the filter"},
	{Text: "  /             filter: words that must all be met, such as name:jobs/"},
	{Text: "                owner:host-a owner=host-a user:alice label:zone=b 694d77"},
	{Text: "  s             another order"},
	{Text: "  p, space      pause, and go on"},
	{Text: "  q, Ctrl-C     quit"},
	{Text: ""},
	{Text: "  Left, at least: what the cluster said last, less the time since it was asked;"},
	{Text: "  in brackets how long ago that was, if that is long. Silent: less than half of"},
	{Text: "  the TTL was left. Expiring: less than a quarter, or nobody renews it."},
	{Text: "  99%: of the last minute."},
}
