package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	terminal "golang.org/x/term"

	"leasehold.dev/internal/top"
)

// screen is a terminal that top has for itself, until close gives it back as it was.
type screen struct {
	in, out  *os.File
	before   *terminal.State
	colours  bool
	drawn    []top.Line // what the terminal shows
	width    int
	restored func() // what else is to be undone

	keys    chan []top.Key // closed when the terminal is gone
	resized chan os.Signal
}

// What is written to a terminal before the first frame, and after the last one: a screen of its own
// without a cursor, on which lines that are too long lose their end.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// looks are the sequences for the styles of lines.
var looks = map[top.Style]string{
	top.Strong: "1", top.Head: "7", top.Chosen: "1;7", top.Warning: "33", top.Alarm: "1;31",
	top.Faint: "2",
}

// hasScreen reports whether there is a terminal to draw on, and to press keys on.
func (a *app) hasScreen() bool {
	in, ok := a.Stdin.(*os.File)
	out, isFile := a.Stdout.(*os.File)
	return ok && isFile && a.getenv("TERM") != "dumb" &&
		terminal.IsTerminal(int(in.Fd())) && terminal.IsTerminal(int(out.Fd()))
}

// openScreen takes the terminal. Until it is closed nobody may complain: that would be written
// into the frame.
func (a *app) openScreen() (*screen, error) {
	s := &screen{
		in: a.Stdin.(*os.File), out: a.Stdout.(*os.File), colours: a.getenv("NO_COLOR") == "",
		keys: make(chan []top.Key), resized: make(chan os.Signal, 1),
	}
	before, err := terminal.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot take the terminal: %w", err)
	}
	s.before = before
	a.mu.Lock()
	stderr := a.Stderr
	a.Stderr = io.Discard
	a.mu.Unlock()
	unnotify := notifyResized(s.resized)
	s.restored = func() {
		unnotify()
		a.mu.Lock()
		a.Stderr = stderr
		a.mu.Unlock()
	}
	_, _ = io.WriteString(s.out, enterScreen) // if it is gone, reading says so
	go s.read()
	return s, nil
}

// close gives the terminal back.
func (s *screen) close() {
	_, _ = io.WriteString(s.out, leaveScreen)
	_ = terminal.Restore(int(s.in.Fd()), s.before)
	s.restored()
}

// size returns the width and the height of the terminal.
func (s *screen) size() (width, height int) {
	width, height, err := terminal.GetSize(int(s.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// forget has the next frame drawn whole.
func (s *screen) forget() { s.drawn = nil }

// draw shows a frame. Only lines that differ are written: the terminal may be far away.
func (s *screen) draw(lines []top.Line) {
	width, _ := s.size()
	var b strings.Builder
	if len(lines) != len(s.drawn) || width != s.width {
		b.WriteString("\x1b[2J")
		s.drawn, s.width = nil, width
	}
	for i, l := range lines {
		if s.drawn != nil && s.drawn[i] == l {
			continue
		}
		fmt.Fprintf(&b, "\x1b[%d;1H", i+1)
		text := harmless(l.Text)
		if look, ok := looks[l.Style]; ok && s.colours {
			text = "\x1b[" + look + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	s.drawn = lines
	_, _ = io.WriteString(s.out, b.String())
}

// escapeWithin is how long the rest of a key may take that begins with an escape.
const escapeWithin = 50 * time.Millisecond

// read reads keys until the terminal is gone.
func (s *screen) read() {
	pieces := make(chan []byte)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 256)
			n, err := s.in.Read(b)
			if err != nil {
				return
			}
			pieces <- b[:n]
		}
	}()
	defer close(s.keys)
	var rest []byte
	for {
		var late <-chan time.Time
		if len(rest) > 0 {
			late = time.After(escapeWithin)
		}
		var keys []top.Key
		select {
		case b, ok := <-pieces:
			if !ok {
				return
			}
			keys, rest = top.Decode(append(rest, b...), false)
		case <-late:
			keys, rest = top.Decode(rest, true)
		}
		if len(keys) > 0 {
			s.keys <- keys
		}
	}
}
