package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/internal/table"
)

// short writes a time for people, in few letters.
func short(d time.Duration) string {
	switch s := int64(d / time.Second); {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return strconv.FormatFloat(float64(d/(10*time.Microsecond))/100, 'f', -1, 64) + "ms"
	case d < time.Second:
		return strconv.FormatFloat(float64(d/(100*time.Microsecond))/10, 'f', -1, 64) + "ms"
	case s < 60:
		return fmt.Sprintf("%d.%ds", s, d/(100*time.Millisecond)%10)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
	}
}

// ttl writes a TTL for people: in whole units if it has them.
func ttl(d time.Duration) string {
	if d%time.Second == 0 {
		return whole(d)
	}
	return short(d)
}

// whole writes a time without parts of a second.
func whole(d time.Duration) string {
	if d = max(0, d); d < time.Minute {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return short(d)
}

// number writes a count with a comma before every third digit.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size writes a number of bytes.
func size(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	x, i := float64(n)/1000, 0
	for ; x >= 999.95 && i < len(units)-1; i++ {
		x /= 1000
	}
	return fmt.Sprintf("%.1f %cB", x, units[i])
}

// perSecond writes a rate.
func perSecond(x float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case x > 0 && x < 10:
		return strconv.FormatFloat(x, 'f', 1, 64) + "/s"
	default:
		return number(int(x+0.5)) + "/s"
	}
}

// fit makes a text as wide as a column of a terminal: a longer one loses its end, and says so.
func fit(text string, columns int, right bool) string {
	if n := table.Width(text); n <= columns {
		pad := strings.Repeat(" ", columns-n)
		if right {
			return pad + text
		}
		return text + pad
	}
	if columns < 1 {
		return ""
	}
	n, end := 0, 0
	for i, r := range text {
		w := table.Width(string(r))
		if n+w > columns-1 {
			break
		}
		n, end = n+w, i+len(string(r))
	}
	return text[:end] + "~" + strings.Repeat(" ", columns-1-n)
}
