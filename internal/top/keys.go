package top

import (
	"strings"
	"unicode/utf8"
)

// Key is what was pressed: a letter, or the name of a key that has none.
type Key string

// The keys without a letter.
const (
	up, down, pageUp, pageDown = Key("up"), Key("down"), Key("page up"), Key("page down")
	home, end                  = Key("home"), Key("end")
	left, right                = Key("left"), Key("right")
	enter, escape, tab         = Key("enter"), Key("escape"), Key("tab")
	backTab, backspace         = Key("back tab"), Key("backspace")
	interrupt, clearLine       = Key("interrupt"), Key("clear line")
	// Redraw has the whole screen drawn again.
	Redraw = Key("redraw")
)

// sequences are what terminals send for keys, behind the escape.
var sequences = map[string]Key{
	"[A": up, "[B": down, "[C": right, "[D": left, "OA": up, "OB": down, "OC": right, "OD": left,
	"[5~": pageUp, "[6~": pageDown, "[H": home, "[F": end, "OH": home, "OF": end, "[1~": home,
	"[4~": end, "[7~": home, "[8~": end, "[Z": backTab,
}

// controls are the keys below the space.
var controls = map[byte]Key{
	'\r': enter, '\n': enter, '\t': tab, 0x7f: backspace, 0x08: backspace, 0x03: interrupt,
	0x15: clearLine, 0x0c: Redraw,
}

// Decode reads keys from what a terminal has sent. What may go on in the next piece is left over,
// unless there is none for now: then an escape is the key of that name.
func Decode(in []byte, final bool) (keys []Key, rest []byte) {
	for len(in) > 0 {
		k, n := decode(in, final)
		if n == 0 {
			return keys, in
		}
		if in = in[n:]; k != "" {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// decode reads one key, which takes n bytes: none if it is not complete. It is empty if it is none
// that has a meaning here.
func decode(in []byte, final bool) (k Key, n int) {
	if in[0] == 0x1b {
		return sequence(in, final)
	}
	if in[0] < ' ' || in[0] == 0x7f {
		return controls[in[0]], 1
	}
	if !utf8.FullRune(in) && !final {
		return "", 0
	}
	r, n := utf8.DecodeRune(in)
	if r == utf8.RuneError {
		return "", n
	}
	return Key(r), n
}

// sequence reads what begins with an escape: the key of that name, or one that has no letter.
func sequence(in []byte, final bool) (k Key, n int) {
	if len(in) == 1 {
		if final {
			return escape, 1
		}
		return "", 0
	}
	if in[1] != '[' && in[1] != 'O' {
		return escape, 1
	}
	for i := 2; i < len(in); i++ {
		if in[i] >= 0x40 && in[i] <= 0x7e { // the end of a sequence
			return sequences[string(in[1:i+1])], i + 1
		}
	}
	if final {
		return "", len(in)
	}
	return "", 0
}

// Press does what a key means, and reports whether it ends the program.
func (m *Model) Press(k Key) (quit bool) {
	switch {
	case k == interrupt:
		return true
	case m.typing:
		m.write(k)
	case m.help:
		m.help = false
		return k == "q"
	default:
		return m.command(k)
	}
	return false
}

// write changes the filter that is being typed.
func (m *Model) write(k Key) {
	switch k {
	case enter:
		m.typing = false
	case escape:
		m.typing = false
		m.setFilter("")
	case clearLine:
		m.setFilter("")
	case backspace:
		_, n := utf8.DecodeLastRuneInString(m.filter)
		m.setFilter(m.filter[:len(m.filter)-n])
	default:
		if utf8.RuneCountInString(string(k)) == 1 && len(m.filter) < 200 {
			m.setFilter(m.filter + string(k))
		}
	}
}

func (m *Model) setFilter(text string) {
	m.filter = text
	m.at = position{}
	m.pick()
}

// command does what a key means while no text is typed.
func (m *Model) command(k Key) (quit bool) {
	switch k {
	case "q":
		return true
	case "?", "h":
		m.help = true
	case "/":
		m.typing = true
	case "p", " ":
		m.paused = !m.paused
	case "s":
		m.sorts[m.pane]++
		m.pick()
	case tab, right:
		m.turnTo((m.pane + 1) % paneCount)
	case backTab, left:
		m.turnTo((m.pane + paneCount - 1) % paneCount)
	case enter:
		m.enter()
	case escape, backspace:
		m.back()
	default:
		if i := strings.Index("123456", string(k)); len(k) == 1 && i >= 0 {
			m.turnTo(Pane(i))
			return false
		}
		m.move(k)
	}
	return false
}

// move moves what is chosen. The frame keeps it within what there is.
func (m *Model) move(k Key) {
	switch k {
	case up, "k":
		m.at.row--
	case down, "j":
		m.at.row++
	case pageUp:
		m.at.row -= m.height
	case pageDown:
		m.at.row += m.height
	case home, "g":
		m.at.row = 0
	case end, "G":
		m.at.row = len(m.rows) - 1
	}
	m.within()
}

// turnTo shows another pane.
func (m *Model) turnTo(p Pane) {
	m.pane, m.open, m.at = p, nil, position{}
	m.pick()
}

// enter opens what is chosen: a lease, or the leases of a prefix or of an owner.
func (m *Model) enter() {
	if m.open != nil || m.at.row >= len(m.rows) {
		return
	}
	r := m.rows[m.at.row]
	switch {
	case r.filter != "":
		m.turnTo(Leases)
		m.setFilter(r.filter)
	case r.lease != 0:
		m.open = &opened{id: r.lease, from: m.at}
		m.at = position{}
		m.pick()
	}
}

// back closes what is open or, if nothing is, lifts the filter.
func (m *Model) back() {
	if m.open != nil {
		from := m.open.from
		m.open = nil
		m.at = from
		m.pick()
		return
	}
	m.setFilter("")
}
