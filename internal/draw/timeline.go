package draw

import (
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"leasehold.dev/plan"
)

// plainText lays out text without markup.
func plainText() text.Handler { return text.Plain{Fonts: font.DefaultCache} }

// colors are those of spans.
var colors = map[plan.Kind]color.Color{
	plan.Holds: green, plan.Leased: blue, plan.Down: red, plan.Nobody: sand,
}

// TimelineSVG draws timelines one below the other, on one scale of time.
func TimelineSVG(w io.Writer, title string, list ...plan.Timeline) error {
	p := newPlot(title)
	l := &lanes{list: list}
	for _, t := range list {
		p.X.Max = max(p.X.Max, t.End.Seconds())
		l.rows += len(t.Lanes) + 1
	}
	p.X.Min, p.X.Tick.Marker = 0, timeTicks{}
	p.Y.Min, p.Y.Max = 0, float64(l.rows)
	p.HideY()
	p.Add(l)
	return save(w, p, vg.Length(90+26*l.rows)+legendHeight)
}

const (
	nameWidth    = 60 // points left of the axis for the names of lanes
	legendHeight = 30
)

// lanes draw timelines from the top down.
type lanes struct {
	list []plan.Timeline
	rows int
}

// GlyphBoxes makes room for names on the left, as plot.GlyphBoxer wants it.
func (*lanes) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	return []plot.GlyphBox{{
		X: 0, Y: 0, Rectangle: vg.Rectangle{
			Min: vg.Point{X: -nameWidth, Y: -legendHeight}, Max: vg.Point{X: 0, Y: 0},
		},
	}}
}

// Plot draws them, as plot.Plotter wants it.
func (l *lanes) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	pen := pen{c: c, style: draw.TextStyle{
		Color: ink, Font: sans(10), Handler: p.TextHandler, YAlign: draw.YCenter,
	}}
	row := float64(l.rows)
	for _, t := range l.list {
		row--
		pen.text(vg.Point{X: c.Min.X, Y: y(row + 0.45)}, draw.XLeft, t.Title)
		for _, lane := range t.Lanes {
			row--
			middle := y(row + 0.5)
			half := (y(row+1) - y(row)) * 0.32
			pen.text(vg.Point{X: c.Min.X - vg.Points(9), Y: middle}, draw.XRight, lane.Name)
			for _, s := range lane.Spans {
				from, to := x(s.From.Seconds()), x(s.To.Seconds())
				pen.box(from, to, [2]vg.Length{middle - half, middle + half}, colors[s.Kind])
			}
			for _, m := range lane.Marks {
				pen.mark(x(m.At.Seconds()), middle, half*1.25, m.Kind)
			}
		}
	}
	l.legend(pen, c)
}

// legend names what occurs, below the axis.
func (l *lanes) legend(p pen, c draw.Canvas) {
	seen := map[plan.Kind]bool{}
	for _, t := range l.list {
		for _, lane := range t.Lanes {
			for _, s := range lane.Spans {
				seen[s.Kind] = true
			}
			for _, m := range lane.Marks {
				seen[m.Kind] = true
			}
		}
	}
	p.style.Font.Size = 9
	at := vg.Point{X: c.Min.X, Y: c.Min.Y - vg.Points(legendHeight) + vg.Points(10)}
	for _, k := range looks {
		if !seen[k.kind] {
			continue
		}
		if fill, ok := colors[k.kind]; ok {
			p.box(at.X, at.X+vg.Points(10), [2]vg.Length{at.Y - 5, at.Y + 5}, fill)
		} else {
			p.mark(at.X+vg.Points(5), at.Y, 5, k.kind)
		}
		at.X += vg.Points(13)
		p.text(at, draw.XLeft, k.name)
		at.X += p.style.Width(k.name) + vg.Points(8)
	}
}

// A pen draws the parts of lanes.
type pen struct {
	c     draw.Canvas
	style draw.TextStyle
}

func (p pen) text(at vg.Point, align text.XAlignment, s string) {
	style := p.style
	style.XAlign = align
	p.c.FillText(style, at, s)
}

func (p pen) box(from, to vg.Length, y [2]vg.Length, fill color.Color) {
	p.c.FillPolygon(fill, []vg.Point{
		{X: from, Y: y[0]}, {X: to, Y: y[0]}, {X: to, Y: y[1]}, {X: from, Y: y[1]},
	})
}

// mark draws an instant: a cross where something fails, a bar where a lease
// changes hands, a tick elsewhere.
func (p pen) mark(x, y, half vg.Length, k plan.Kind) {
	line := draw.LineStyle{Color: ink, Width: vg.Points(1.5)}
	switch k {
	case plan.Crash, plan.Stops:
		if k == plan.Crash {
			line.Color = color.Black
		}
		line.Width = vg.Points(2)
		p.c.StrokeLine2(line, x-4, y-4, x+4, y+4)
		p.c.StrokeLine2(line, x-4, y+4, x+4, y-4)
	case plan.Grant, plan.Takeover:
		p.c.FillPolygon(ink, []vg.Point{{X: x - 4, Y: y - 4}, {X: x - 4, Y: y + 4}, {X: x + 4, Y: y}})
	case plan.Recover:
		p.c.FillPolygon(ink, []vg.Point{{X: x - 4, Y: y - 4}, {X: x + 4, Y: y - 4}, {X: x, Y: y + 4}})
	default:
		p.c.StrokeLine2(line, x, y-half, x, y+half)
	}
}
