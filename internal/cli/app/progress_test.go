package app

import (
	"strings"
	"testing"
	"time"
)

func TestBarText(t *testing.T) {
	for _, c := range []struct {
		done float64
		took time.Duration
		want string
	}{
		{0, 0, "[..............................]   0% grant"},
		{0.5, 3 * time.Second, "[###############...............]  50% grant, about 3s left"},
		{7, time.Second, "[##############################] 100% grant"},
	} {
		if got := strings.TrimPrefix(barText("grant", c.done, c.took), "\r\x1b[K"); got != c.want {
			t.Errorf("%v: %q, want %q", c.done, got, c.want)
		}
	}
}
