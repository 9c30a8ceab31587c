package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/table"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"

	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
)

// event is a lease event with its arrival time.
type event struct {
	leases.Event
	received time.Time
}

// model is the screen. It implements tea.Model.
type model struct {
	title    string
	ask      tea.Cmd // returns the next snapshot as a message
	interval time.Duration

	history history
	latest  snapshot // the last snapshot that has leases
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

// newModel returns a screen without data.
func newModel(title, pane string, interval time.Duration, ask tea.Cmd) *model {
	m := &model{
		title: title, interval: interval, ask: ask, now: time.Now(), history: history{{}},
		pane: slices.Index(paneNames(), pane), width: 80, height: 24,
		table: table.New(table.WithFocused(true), table.WithStyles(table.Styles{
			Header:   lipgloss.NewStyle().Bold(true).PaddingRight(1),
			Cell:     lipgloss.NewStyle().PaddingRight(1),
			Selected: lipgloss.NewStyle().Reverse(true),
		})),
	}
	m.fill()
	return m
}

// second is the message that updates the countdowns.
type second struct{}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tea.Batch(m.ask, func() tea.Msg { return second{} }) }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		cmd = m.press(msg)
	case error:
		m.err, cmd = msg, tea.Quit
	case snapshot:
		m.take(msg)
		cmd = tea.Tick(m.interval, func(time.Time) tea.Msg { return m.ask() })
	case second:
		cmd = tea.Tick(time.Second, func(time.Time) tea.Msg { return second{} })
	case []leases.Event:
		for _, v := range msg {
			m.events = append(m.events, event{v, time.Now()})
		}
		m.events = m.events[max(0, len(m.events)-1000):]
	}
	m.now = time.Now()
	m.fill()
	return m, cmd
}

// take processes a snapshot. It sorts the leases by expiry.
func (m *model) take(s snapshot) {
	slices.SortFunc(s.leases, func(a, b leases.Info) int {
		return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.Name, b.Name),
			cmp.Compare(uint64(a.ID), uint64(b.ID)))
	})
	m.history = append(m.history, s)
	for len(m.history) > 2 && s.at.Sub(m.history[1].at) > lookBack {
		m.history = m.history[1:]
	}
	switch {
	case s.err == "":
		m.latest, m.outage = s, time.Time{}
	case m.outage.IsZero():
		m.outage = s.at
	}
}

// press handles a key press.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
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
		m.turnTo(m.pane + 1)
	case "shift+tab", "left":
		m.turnTo(m.pane - 1)
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
func (m *model) write(key, text string) {
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

func (m *model) turnTo(pane int) {
	m.pane = (pane + len(panes)) % len(panes)
	m.table.SetRows(nil) // the old rows might have more columns
}

// fill sets the table's columns and rows.
func (m *model) fill() {
	p := panes[m.pane]
	rest, grow := m.width, 0
	for _, c := range p.columns {
		if rest -= c.width + 1; c.width == 0 {
			grow++
		}
	}
	var columns []table.Column
	for _, c := range p.columns {
		if c.width == 0 {
			c.width = max(4, rest/max(1, grow))
		}
		columns = append(columns, table.Column{Title: c.title, Width: c.width})
	}
	m.table.SetColumns(columns)
	m.table.SetRows(p.rows(m))
	m.table.SetWidth(m.width)
	m.table.SetHeight(max(2, m.height-len(m.head())-2))
	m.table.SetCursor(m.table.Cursor()) // it is -1 if there were no rows before
}

// View implements tea.Model.
func (m *model) View() tea.View {
	body := m.table.View()
	if m.help {
		body = helpText
	}
	lines := append(m.head(), m.tabs(), body, m.foot())
	v := tea.NewView(lipgloss.NewStyle().MaxWidth(m.width).Render(strings.Join(lines, "\n")))
	v.AltScreen = true
	return v
}

// head returns the lines that describe the cluster.
func (m *model) head() []string {
	now := m.history.newest()
	if now.at.IsZero() {
		return []string{"leasehold top  " + app.Readable(m.title) + "  querying"}
	}
	answer, leader, rates := 0, "none", "leases -"
	var lag uint64
	var overdue float64  // seconds
	var sync, late bound // p99 at the slowest member
	for _, x := range now.Members {
		lag = max(lag, x.Behind)
		sync = slower(sync, m.history.recent(x.ID, syncMetric))
		late = slower(late, m.history.recent(x.ID, "leasehold_lease_expiry_lateness_seconds"))
		y := now.metrics[x.ID]
		overdue = max(overdue, y.sum("leasehold_lease_overdue_seconds", ""))
		if x.Error == "" {
			answer++
		}
		if x.Error == "" && x.Role == "leader" {
			leader = app.Readable(x.Name)
			if y != nil {
				rates = "leases " + humanize.Comma(int64(y.sum(leasesMetric, "")))
			}
		}
	}
	for _, c := range counters {
		rates += "  " + c.title + " " + m.history.rate(c, "")
	}
	lines := []string{
		fmt.Sprintf("leasehold top  %s  %s  members %d of %d  leader %s", app.Readable(m.title),
			now.Verdict, answer, len(now.Members), leader),
		rates,
		fmt.Sprintf("sync p99 %s  expiry delay p99 %s  overdue %s  lag %s", sync, late,
			short(time.Duration(overdue*float64(time.Second))), humanize.Comma(int64(lag))),
	}
	switch {
	case !m.outage.IsZero():
		lines = append(lines, fmt.Sprintf("no response for %s: %s",
			short(m.now.Sub(m.outage).Truncate(time.Second)), app.Readable(now.err)))
	case len(now.Reasons) > 0:
		lines = append(lines, app.Readable(strings.Join(now.Reasons, "; ")))
	case now.cut:
		lines = append(lines, "first "+humanize.Comma(int64(len(now.leases)))+
			" leases: use --prefix or --owner")
	}
	return lines
}

// tabs returns the line with the names of the panes.
func (m *model) tabs() string {
	var out []string
	for i, name := range paneNames() {
		if i == m.pane {
			name = strings.ToUpper(name)
		}
		out = append(out, fmt.Sprintf("%d %s", i+1, name))
	}
	return strings.Join(out, "  ")
}

// foot returns the line that shows the keys or the filter.
func (m *model) foot() string {
	switch filter := app.Readable(m.filter); {
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

// page returns the screen as text with the first rows of the list. It is used for output that is
// not a terminal.
func (m *model) page(rows int) string {
	m.now = time.Now()
	var head []string
	for _, c := range panes[m.pane].columns {
		head = append(head, c.title)
	}
	list := panes[m.pane].rows(m)
	lines := [][]string{head}
	for _, row := range list[:min(rows, len(list))] {
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}
		lines = append(lines, row)
	}
	var p app.Page
	p.Printf("%s\n\n", strings.Join(m.head(), "\n"))
	p.Aligned(lines...)
	if more := len(list) - rows; more > 0 {
		p.Printf("and %s more\n", humanize.Comma(int64(more)))
	}
	return p.String()
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
