package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"charm.land/bubbles/v2/table"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"

	"leasehold.dev/client/leases"
	readable "leasehold.dev/internal/table"
)

// maxEvents is the number of events kept by the pane "ends".
const maxEvents = 1000

// event is a lease event with its arrival time.
type event struct {
	leases.Event
	received time.Time
}

// Model is the screen. It implements tea.Model.
type Model struct {
	title    string
	ask      tea.Cmd // returns the next snapshot as a message
	interval time.Duration

	history history
	latest  Snapshot // the last snapshot that has leases
	events  []event
	now     time.Time
	outage  time.Time // when the cluster stopped responding; zero while it responds
	err     error     // error that ended the program

	pane          int
	filter        string
	typing, help  bool
	table         table.Model
	width, height int
}

// Options configure the screen.
type Options struct {
	Title    string
	Pane     string
	Interval time.Duration
	// Ask takes a snapshot.
	Ask tea.Cmd
}

// newModel returns a screen without data.
func newModel(o Options) *Model {
	m := &Model{
		title: o.Title, interval: o.Interval, now: time.Now(),
		pane: slices.Index(panes, o.Pane), width: 80, height: 24, ask: o.Ask,
		table: table.New(table.WithFocused(true), table.WithStyles(table.Styles{
			Header:   lipgloss.NewStyle().Bold(true).PaddingRight(1),
			Cell:     lipgloss.NewStyle().PaddingRight(1),
			Selected: lipgloss.NewStyle().Reverse(true),
		})),
	}
	m.fill()
	return m
}

// Err returns the error that ended the program, or nil if the user ended it.
func (m *Model) Err() error { return m.err }

// The program's own messages.
type (
	again  struct{} // take another snapshot
	second struct{} // update the countdowns
	// Failed ends the program.
	Failed struct{ Err error }
)

func everySecond() tea.Cmd {
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return second{} })
}

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.ask, everySecond()) }

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		cmd = m.press(msg)
	case Failed:
		m.err = msg.Err
		return m, tea.Quit
	case Snapshot:
		m.Take(msg)
		cmd = tea.Tick(m.interval, func(time.Time) tea.Msg { return again{} })
	case again:
		return m, m.ask
	case second:
		cmd = everySecond()
	case []leases.Event:
		for _, v := range msg {
			switch v.Kind {
			case leases.Expiring, leases.Renewed: // shown by snapshots
			default:
				m.events = append(m.events, event{v, time.Now()})
			}
		}
		m.events = m.events[max(0, len(m.events)-maxEvents):]
	}
	m.now = time.Now()
	m.fill()
	return m, cmd
}

// Take processes a snapshot.
func (m *Model) Take(s Snapshot) {
	m.history = m.history.add(s)
	switch {
	case s.Err == "":
		m.latest, m.outage = s, time.Time{}
	case m.outage.IsZero():
		m.outage = s.At
	}
}

// press handles a key press.
func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case m.typing:
		m.write(key, msg.Text)
		return nil
	case m.help:
		m.help = false
		return nil
	}
	switch key {
	case "q":
		return tea.Quit
	case "?", "h":
		m.help = true
	case "/":
		m.typing = true
	case "tab", "right":
		m.turnTo((m.pane + 1) % len(panes))
	case "shift+tab", "left":
		m.turnTo((m.pane + len(panes) - 1) % len(panes))
	case "esc":
		m.filter = ""
	default:
		if n, err := strconv.Atoi(key); err == nil && n >= 1 && n <= len(panes) {
			m.turnTo(n - 1)
		}
		m.table, _ = m.table.Update(msg)
	}
	return nil
}

// write edits the filter.
func (m *Model) write(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if n := len([]rune(m.filter)); n > 0 {
			m.filter = string([]rune(m.filter)[:n-1])
		}
	default:
		m.filter += text
	}
	m.table.SetCursor(0)
}

func (m *Model) turnTo(pane int) {
	m.pane = pane
	m.table.SetCursor(0)
}

// fill sets the table's columns and rows.
func (m *Model) fill() {
	cols, list := columns[m.pane], m.list()
	rest, grow := m.width, 0
	for _, c := range cols {
		if rest -= c.width + 1; c.width == 0 {
			grow++
		}
	}
	var titles []table.Column
	for _, c := range cols {
		if c.width == 0 {
			c.width = max(4, rest/max(1, grow))
		}
		titles = append(titles, table.Column{Title: strings.ToUpper(c.title), Width: c.width})
	}
	rows := make([]table.Row, len(list))
	for i, cells := range list {
		rows[i] = cells
	}
	m.table.SetRows(nil) // the old rows might have more columns
	m.table.SetColumns(titles)
	m.table.SetRows(rows)
	m.table.SetWidth(m.width)
	m.table.SetHeight(max(2, m.height-len(m.head())-2))
	m.table.SetCursor(max(0, min(m.table.Cursor(), len(rows)-1)))
}

// View implements tea.Model.
func (m *Model) View() tea.View {
	body := m.table.View()
	if m.help {
		body = helpText
	}
	lines := append(m.head(), m.tabs(), body, m.foot())
	for i := range lines {
		lines[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(lines[i])
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	return v
}

// head returns the lines that describe the cluster.
func (m *Model) head() []string {
	now := m.history.newest()
	if len(m.history) == 0 {
		return []string{"leasehold top  " + readable.Readable(m.title) + "  querying"}
	}
	t := m.history.total()
	answer, leader := 0, "none"
	for i := range now.Members {
		if x := &now.Members[i]; x.Error == "" {
			answer++
			if x.Role == "leader" {
				leader = readable.Readable(x.Name)
			}
		}
	}
	rates := "leases -"
	if t.leases != nil {
		rates = "leases " + humanize.Comma(int64(*t.leases))
	}
	for _, c := range counters {
		rates += "  " + c.name + " " + perSecond(m.history.rate(c, ""))
	}
	lines := []string{
		fmt.Sprintf("leasehold top  %s  %s  members %d of %d  leader %s", readable.Readable(m.title),
			now.Verdict, answer, len(now.Members), leader),
		rates,
		fmt.Sprintf("sync p99 %s  expiry delay p99 %s  overdue %s  lag %s",
			seconds(t.sync), seconds(t.late), short(t.overdue), humanize.Comma(int64(t.lag))),
	}
	switch {
	case !m.outage.IsZero():
		lines = append(lines, fmt.Sprintf("no response for %s: %s",
			short(m.now.Sub(m.outage).Truncate(time.Second)), readable.Readable(now.Err)))
	case len(now.Reasons) > 0:
		lines = append(lines, readable.Readable(strings.Join(now.Reasons, "; ")))
	case now.Cut:
		lines = append(lines, "first "+humanize.Comma(int64(len(now.Leases)))+
			" leases: use --prefix or --owner")
	}
	return lines
}

// tabs returns the line with the names of the panes.
func (m *Model) tabs() string {
	var out []string
	for i, name := range panes {
		if i == m.pane {
			name = strings.ToUpper(name)
		}
		out = append(out, fmt.Sprintf("%d %s", i+1, name))
	}
	return strings.Join(out, "  ")
}

// foot returns the line that shows the keys or the filter.
func (m *Model) foot() string {
	switch filter := readable.Readable(m.filter); {
	case m.typing:
		return "filter: " + filter + "_  (enter: done, esc: clear)"
	case m.filter != "":
		return "filter: " + filter + "  esc clear  q quit  ? help"
	default:
		return "q quit  / filter  tab pane  ? help"
	}
}

const helpText = `
  1 to 3, tab   list: leases, ends, members
  up, down      select; also k and j, page up and down, home and end
  /             filter by words in the name, owner, user, labels, ID or token
  esc           clear the filter
  q, ctrl+c     quit

  left    time left in the last report, minus the time since the request
  silent  less than half of the TTL was left; expiring: less than a quarter
  p99     of the last minute`

// Page returns the screen as text with the first rows of the list. It is used for output that is
// not a terminal.
func (m *Model) Page(rows int) string {
	m.now = time.Now()
	list := m.list()
	var b strings.Builder
	b.WriteString(strings.Join(m.head(), "\n") + "\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var titles []string
	for _, c := range columns[m.pane] {
		titles = append(titles, strings.ToUpper(c.title))
	}
	lines := [][]string{titles}
	lines = append(lines, list[:min(rows, len(list))]...)
	for _, cells := range lines {
		for i := range cells {
			cells[i] = cmp.Or(cells[i], "-")
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // written to memory
	if more := len(list) - rows; more > 0 {
		fmt.Fprintf(&b, "and %s more\n", humanize.Comma(int64(more)))
	}
	return b.String()
}

// short formats a duration with few characters.
func short(d time.Duration) string {
	switch s := int64(d / time.Second); {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(max(time.Microsecond, d.Truncate(time.Millisecond)/100)).String()
	case s < 60:
		return d.Truncate(100 * time.Millisecond).String()
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	}
}

// seconds formats a number of seconds, which can be unknown.
func seconds(b *bound) string {
	if b == nil {
		return "-"
	}
	s := short(time.Duration(b.seconds * float64(time.Second)))
	if b.over {
		return ">" + s
	}
	return s
}

// perSecond formats a rate, which can be unknown.
func perSecond(x *float64) string {
	switch {
	case x == nil:
		return "-"
	case *x > 0 && *x < 10:
		return strconv.FormatFloat(*x, 'f', 1, 64) + "/s"
	}
	return humanize.Comma(int64(*x+0.5)) + "/s"
}
