package app

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	terminal "golang.org/x/term"
)

// Columns returns the width of a terminal; ok is false if f is not a terminal.
func Columns(f *os.File) (n int, ok bool) {
	n, _, err := terminal.GetSize(int(f.Fd()))
	return n, err == nil
}

// A progressBar shows the progress of a long command on a terminal, and nothing elsewhere. It is
// not safe for concurrent use.
type progressBar struct {
	w     io.Writer // nil if there is no terminal
	began time.Time
	drawn time.Time
}

// barEvery is the interval between updates of the bar.
const barEvery = 100 * time.Millisecond

// NewProgress returns a progress bar. It draws on standard error if that is a terminal.
func (a *App) NewProgress() *progressBar {
	p := &progressBar{began: time.Now()}
	if f, ok := a.ErrTerminal(); ok {
		p.w = f
	}
	return p
}

// Show redraws the bar if barEvery has passed since the last time.
func (p *progressBar) Show(what string, done float64) {
	now := time.Now()
	if p.w == nil || now.Sub(p.drawn) < barEvery {
		return
	}
	p.drawn = now
	fmt.Fprint(p.w, barText(what, done, now.Sub(p.began)))
}

// barText returns the text of the bar, with the remaining time if it can be estimated.
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

// End removes the bar.
func (p *progressBar) End() {
	if p.w != nil {
		fmt.Fprint(p.w, ClearLine)
	}
}
