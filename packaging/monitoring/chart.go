package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// The size of a chart and the positions of its axes, in points.
var (
	chartSize   = point{640, 300}
	chartCorner = point{66, 36}   // top left corner of the axes
	chartOrigin = point{622, 246} // bottom right corner
)

// lineColors are the colors of successive curves.
var lineColors = []string{green, purple, red, ink}

// A Curve is a line in a chart.
type Curve struct {
	Name string
	XY   [][2]float64
	// Dots marks each point. It is for measured values.
	Dots bool
}

// A Chart is a chart of curves.
type Chart struct {
	Title, X, Y string
	Curves      []Curve
	// LogX and LogY select logarithmic scales. Such scales omit points at or below 0.
	LogX, LogY bool
	// Marks are labeled vertical lines.
	Marks []Mark
	// MinY and MaxY limit the chart unless both are 0.
	MinY, MaxY float64
}

// A Mark is a vertical line in a chart.
type Mark struct {
	X    float64
	Name string
}

// SVG draws the chart.
func (c Chart) SVG(w io.Writer) error {
	p := &canvas{size: chartSize}
	x, y := c.axes()
	p.text(point{chartSize.x / 2, 22}, around, 13, c.Title)
	p.text(point{(chartCorner.x + chartOrigin.x) / 2, chartSize.y - 14}, around, 12, c.X)
	p.upright(point{16, (chartCorner.y + chartOrigin.y) / 2}, 12, c.Y)
	for _, v := range x.ticks() {
		at := x.place(v)
		p.line(stroke{color: faint, width: 0.5}, point{at, chartCorner.y}, point{at, chartOrigin.y})
		p.text(point{at, chartOrigin.y + 14}, around, 10, number(v))
	}
	for _, v := range y.ticks() {
		at := y.place(v)
		p.line(stroke{color: faint, width: 0.5}, point{chartCorner.x, at}, point{chartOrigin.x, at})
		p.text(point{chartCorner.x - 6, at + 3.5}, before, 10, number(v))
	}
	p.line(stroke{color: ink, width: 0.5},
		chartCorner, point{chartCorner.x, chartOrigin.y}, chartOrigin)
	p.within(chartCorner, chartOrigin, func() { c.curves(p, x, y) })
	c.legend(p)
	for i, m := range c.Marks {
		at := x.place(m.X)
		p.line(stroke{color: ink, width: 1, dashed: true},
			point{at, chartCorner.y}, point{at, chartOrigin.y})
		p.text(point{at + 3, chartCorner.y + 10 + 12*float64(i)}, after, 9, m.Name)
	}
	return p.save(w)
}

func (c Chart) curves(p *canvas, x, y axisOf) {
	for i, curve := range c.Curves {
		color := lineColors[i%len(lineColors)]
		var way []point
		for _, v := range c.points(curve) {
			way = append(way, point{x.place(v[0]), y.place(v[1])})
		}
		if len(way) > 0 {
			p.line(stroke{color: color, width: 2}, way...)
		}
		for _, at := range way {
			if curve.Dots {
				p.dot(color, at)
			}
		}
	}
}

// legend lists the names of curves that have points, in the top right corner.
func (c Chart) legend(p *canvas) {
	const size, sample = 11, 22
	at := point{chartOrigin.x - 4, chartCorner.y + 4}
	for i, curve := range c.Curves {
		if len(c.points(curve)) == 0 {
			continue
		}
		at.y += size + 3
		p.text(point{at.x - sample - 5, at.y}, before, size, curve.Name)
		p.line(stroke{color: lineColors[i%len(lineColors)], width: 2},
			point{at.x - sample, at.y - 4}, point{at.x, at.y - 4})
	}
}

// points returns the points that the scales can show.
func (c Chart) points(curve Curve) [][2]float64 {
	var out [][2]float64
	for _, v := range curve.XY {
		if c.LogX && v[0] <= 0 || c.LogY && v[1] <= 0 || math.IsInf(v[1], 0) {
			continue
		}
		out = append(out, v)
	}
	return out
}

// An axisOf maps values to positions along one axis.
type axisOf struct {
	lo, hi   float64 // values at the ends
	from, to float64 // positions of the ends
	log      bool
}

// axes returns axes for the values of all curves.
func (c Chart) axes() (x, y axisOf) {
	x = axisOf{
		lo: math.Inf(1), hi: math.Inf(-1), from: chartCorner.x, to: chartOrigin.x, log: c.LogX,
	}
	y = axisOf{
		lo: math.Inf(1), hi: math.Inf(-1), from: chartOrigin.y, to: chartCorner.y, log: c.LogY,
	}
	for _, curve := range c.Curves {
		for _, v := range c.points(curve) {
			x.lo, x.hi = min(x.lo, v[0]), max(x.hi, v[0])
			y.lo, y.hi = min(y.lo, v[1]), max(y.hi, v[1])
		}
	}
	if c.MinY != 0 || c.MaxY != 0 {
		y.lo, y.hi = c.MinY, c.MaxY
	}
	x.widen()
	y.widen()
	return x, y
}

// widen extends an axis that has at most one value.
func (a *axisOf) widen() {
	switch {
	case a.lo > a.hi:
		a.lo, a.hi = 1, 10
	case a.lo == a.hi && a.log:
		a.lo, a.hi = a.lo/2, a.hi*2
	case a.lo == a.hi:
		a.lo, a.hi = a.lo-1, a.hi+1
	}
}

// place returns the position of a value.
func (a axisOf) place(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log10(lo), math.Log10(hi), math.Log10(v)
	}
	return a.from + (a.to-a.from)*(v-lo)/(hi-lo)
}

// ticks returns round values. On a logarithmic scale, they are powers of ten, with halves and
// fifths in between if there are only a few.
func (a axisOf) ticks() []float64 {
	var out []float64
	if !a.log {
		step := roundStep((a.hi - a.lo) / 7)
		for n := math.Ceil(a.lo / step); n*step <= a.hi*(1+1e-9); n++ {
			out = append(out, n*step)
		}
		return out
	}
	first, last := math.Floor(math.Log10(a.lo)), math.Ceil(math.Log10(a.hi))
	every := math.Max(1, math.Ceil((last-first)/7))
	for e := first; e <= last; e++ {
		for _, f := range []float64{1, 2, 5} {
			v := f * math.Pow(10, e)
			shown := f == 1 && math.Mod(e-first, every) == 0 || last-first <= 3
			if shown && v >= a.lo*0.999 && v <= a.hi*1.001 {
				out = append(out, v)
			}
		}
	}
	return out
}

// roundStep returns the smallest number that is at least v and is 1, 2 or 5 times a power of ten.
func roundStep(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*unit >= v*(1-1e-9) {
			return f * unit
		}
	}
	return 10 * unit
}

// number formats a tick.
func number(v float64) string {
	if v == 0 || math.Abs(v) >= 0.001 && math.Abs(v) < 1e6 {
		return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
	}
	return fmt.Sprintf("%.0e", v)
}
