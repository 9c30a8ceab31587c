package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// AskPassword prompts for a password and reads a line, without echo if standard input is a
// terminal.
func (a *App) AskPassword(prompt string) (string, error) {
	a.Say("%s", prompt)
	defer a.Say("\n")
	if f, ok := a.Stdin.(*os.File); ok {
		restore := silence(f)
		defer restore()
	}
	line, err := readLine(a.Stdin)
	if err != nil {
		return "", fmt.Errorf("failed during password entry: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// readLine reads exactly one line. The remaining input is left for the next reader.
func readLine(r io.Reader) (string, error) {
	var line strings.Builder
	b := make([]byte, 1)
	for {
		n, err := r.Read(b)
		switch {
		case n == 1 && b[0] == '\n', errors.Is(err, io.EOF):
			return line.String(), nil
		case err != nil:
			return "", err
		case n == 1:
			line.WriteByte(b[0])
		}
	}
}
