package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	terminal "golang.org/x/term"
)

// Columns is the width of a terminal; ok is false for what is none.
func Columns(f *os.File) (n int, ok bool) {
	n, _, err := terminal.GetSize(int(f.Fd()))
	return n, err == nil
}

// A progressBar shows how much of a long command is done, on a terminal, and
// nothing elsewhere. It is for one goroutine at a time.
type progressBar struct {
	w     io.Writer // nil if there is no terminal
	began time.Time
	drawn time.Time
}

// barEvery is how often the bar is drawn again.
const barEvery = 100 * time.Millisecond

// NewProgress makes a bar on the standard error, if that is a terminal.
func (a *App) NewProgress() *progressBar {
	p := &progressBar{began: time.Now()}
	if f, ok := a.ErrTerminal(); ok {
		p.w = f
	}
	return p
}

// Show draws the bar if it is time to.
func (p *progressBar) Show(what string, done float64) {
	now := time.Now()
	if p.w == nil || now.Sub(p.drawn) < barEvery {
		return
	}
	p.drawn = now
	fmt.Fprint(p.w, barText(what, done, now.Sub(p.began)))
}

// barText is a bar, with what is left of the time if that can be told.
func barText(what string, done float64, took time.Duration) string {
	const width = 30
	done = max(0, min(done, 1))
	full := int(done * width)
	left := ""
	if done > 0.05 && done < 1 {
		d := time.Duration(float64(took) * (1 - done) / done)
		left = ", about " + d.Round(time.Second).String() + " left"
	}
	return fmt.Sprintf("\r\x1b[K[%s%s] %3.0f%% %s%s", strings.Repeat("#", full),
		strings.Repeat(".", width-full), 100*done, what, left)
}

// End takes the bar away.
func (p *progressBar) End() {
	if p.w != nil {
		fmt.Fprint(p.w, ClearLine)
	}
}
