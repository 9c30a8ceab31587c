package draw

import (
	"io"
	"time"
)

// colors are those of spans.
var colors = map[Kind]string{
	holds: green, leased: blue, down: red, nobody: sand,
}

// Of pictures of timelines, in points.
const (
	timelineWidth = 640
	timelineTop   = 36 // the title
	timelineLeft  = 78 // the names of lanes
	timelineRight = 618
	rowHeight     = 26
	axisHeight    = 24
	legendHeight  = 30
)

// TimelineSVG draws timelines one below the other, on one scale of time.
func TimelineSVG(w io.Writer, title string, list ...Timeline) error {
	l := &lanes{}
	rows := 0
	for _, t := range list {
		l.end = max(l.end, t.End)
		rows += len(t.Lanes) + 1
	}
	bottom := float64(timelineTop + rowHeight*rows)
	l.canvas = &canvas{size: point{timelineWidth, bottom + axisHeight + legendHeight}}
	l.text(point{timelineWidth / 2, 22}, around, 13, title)
	y := float64(timelineTop)
	for _, t := range list {
		y += rowHeight
		l.text(point{timelineLeft, y - 8}, after, 10, t.Title)
		for _, lane := range t.Lanes {
			l.lane(lane, y+rowHeight/2)
			y += rowHeight
		}
	}
	l.axis(bottom)
	l.legend(list, bottom+axisHeight+legendHeight/2)
	return l.save(w)
}

// lanes draw on one scale of time.
type lanes struct {
	*canvas
	end time.Duration
}

func (l *lanes) x(d time.Duration) float64 {
	return timelineLeft + (timelineRight-timelineLeft)*float64(d)/float64(l.end)
}

func (l *lanes) lane(lane Lane, middle float64) {
	const half = rowHeight * 0.32
	l.text(point{timelineLeft - 9, middle + 3.5}, before, 10, lane.Name)
	for _, s := range lane.Spans {
		l.box(colors[s.Kind], point{l.x(s.From), middle - half}, point{l.x(s.To), middle + half})
	}
	for _, m := range lane.Marks {
		l.mark(point{l.x(m.At), middle}, half*1.25, m.Kind)
	}
}

// axis is a line with round instants below it.
func (l *lanes) axis(y float64) {
	s := stroke{color: ink, width: 0.5}
	l.line(s, point{timelineLeft, y}, point{timelineRight, y})
	step := stepOf(l.end, 12)
	for d := time.Duration(0); d <= l.end; d += step {
		l.line(s, point{l.x(d), y}, point{l.x(d), y + 4})
		l.text(point{l.x(d), y + 15}, around, 10, d.String())
	}
}

// legend names what occurs.
func (l *lanes) legend(list []Timeline, y float64) {
	const size = 9
	seen := map[Kind]bool{}
	for _, t := range list {
		for _, lane := range t.Lanes {
			for _, s := range lane.Spans {
				seen[s.Kind] = true
			}
			for _, m := range lane.Marks {
				seen[m.Kind] = true
			}
		}
	}
	x := float64(timelineLeft)
	for _, k := range looks {
		if !seen[k.kind] {
			continue
		}
		if fill, ok := colors[k.kind]; ok {
			l.box(fill, point{x, y - 5}, point{x + 10, y + 5})
		} else {
			l.mark(point{x + 5, y}, 5, k.kind)
		}
		l.text(point{x + 13, y + 3}, after, size, k.name)
		x += 13 + letterWidth*size*float64(len(k.name)) + 8
	}
}

// mark draws an instant: a cross where something fails, an arrow where a lease
// changes hands or the issuer is back, a tick elsewhere.
func (l *lanes) mark(at point, half float64, k Kind) {
	by := func(dx, dy float64) point { return point{at.x + dx, at.y + dy} }
	switch k {
	case crash, stops:
		s := stroke{color: ink, width: 2}
		if k == crash {
			s.color = "#000000"
		}
		l.line(s, by(-4, -4), by(4, 4))
		l.line(s, by(-4, 4), by(4, -4))
	case grant, takeover:
		l.fill(ink, by(-4, 4), by(-4, -4), by(4, 0))
	case recovery:
		l.fill(ink, by(-4, 4), by(4, 4), by(0, -4))
	default:
		l.line(stroke{color: ink, width: 1.5}, by(0, -half), by(0, half))
	}
}
