package draw

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of pictures, in points.
const (
	width  = 640
	height = 300
)

var (
	ink    = color.NRGBA{0x22, 0x2b, 0x36, 0xff}
	faint  = color.NRGBA{0xd5, 0xda, 0xe0, 0xff}
	green  = color.NRGBA{0x2e, 0x8b, 0x57, 0xff}
	blue   = color.NRGBA{0x8f, 0xb8, 0xde, 0xff}
	red    = color.NRGBA{0xc0, 0x39, 0x2b, 0xff}
	sand   = color.NRGBA{0xf5, 0xd0, 0x8a, 0xff}
	purple = color.NRGBA{0x6c, 0x4a, 0xb6, 0xff}
)

// lineColors are those of curves, in turn.
var lineColors = []color.Color{green, purple, red, ink}

// newPlot is an empty picture with its title.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White
	p.TextHandler = plainText()
	for _, s := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle,
		&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font = sans(s.Font.Size)
		s.Handler = p.TextHandler
		s.Color = ink
	}
	p.Title.TextStyle.Font.Size = 13
	p.Legend.Top = true
	return p
}

// sans is the font that every reader of SVG has something for.
func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// fallbacks are fonts as wide as Liberation Sans, for readers who lack it.
const fallbacks = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"

// save writes a picture.
func save(w io.Writer, p *plot.Plot, high vg.Length) error {
	c := vgsvg.New(width, high)
	const edge = 12
	whole := draw.New(c)
	whole.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: high}, {Y: high}})
	p.Draw(draw.Crop(whole, edge, -2*edge, edge, -edge))
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return err
	}
	text := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte(fallbacks))
	_, err := w.Write(text)
	return err
}

// A Curve is a line of a chart.
type Curve struct {
	Name string
	XY   [][2]float64
	// Dots marks the points, as of what was measured.
	Dots bool
}

// A Chart is a chart of curves.
type Chart struct {
	Title, X, Y string
	Curves      []Curve
	// LogX and LogY choose logarithmic scales; points at 0 and below are left
	// out then.
	LogX, LogY bool
	// Marks are vertical lines with a name.
	Marks []Mark
	// MinY and MaxY bound the chart unless both are 0.
	MinY, MaxY float64
}

// A Mark is a vertical line of a chart.
type Mark struct {
	X    float64
	Name string
}

// SVG draws the chart.
func (c Chart) SVG(w io.Writer) error {
	p := newPlot(c.Title)
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = faint, faint
	p.Add(grid)
	for i, curve := range c.Curves {
		pts := c.points(curve)
		if len(pts) == 0 {
			continue
		}
		line, err := plotter.NewLine(pts)
		if err != nil {
			return fmt.Errorf("draw %s: %w", curve.Name, err)
		}
		line.Color, line.Width = lineColors[i%len(lineColors)], vg.Points(2)
		p.Add(line)
		p.Legend.Add(curve.Name, line)
		if curve.Dots {
			dots, err := plotter.NewScatter(pts)
			if err != nil {
				return fmt.Errorf("draw %s: %w", curve.Name, err)
			}
			dots.Shape, dots.Color = draw.CircleGlyph{}, line.Color
			p.Add(dots)
		}
	}
	if c.LogX {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powers{}
	}
	if c.LogY {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, powers{}
	}
	if c.MinY != 0 || c.MaxY != 0 {
		p.Y.Min, p.Y.Max = c.MinY, c.MaxY
	}
	p.Add(verticals(c.Marks))
	return save(w, p, height)
}

func (c Chart) points(curve Curve) plotter.XYs {
	var pts plotter.XYs
	for _, v := range curve.XY {
		if c.LogX && v[0] <= 0 || c.LogY && v[1] <= 0 || math.IsInf(v[1], 0) {
			continue
		}
		pts = append(pts, plotter.XY{X: v[0], Y: v[1]})
	}
	return pts
}

// powers are ticks at powers of ten, or at 1, 2 and 5 if there are few.
type powers struct{}

// Ticks returns the ticks between two values, as plot.Ticker wants it.
func (powers) Ticks(lo, hi float64) []plot.Tick {
	first, last := math.Floor(math.Log10(lo)), math.Ceil(math.Log10(hi))
	every := math.Max(1, math.Ceil((last-first)/7))
	var out []plot.Tick
	for e := first; e <= last; e++ {
		for _, f := range []float64{1, 2, 5} {
			v := f * math.Pow(10, e)
			if v < lo*0.999 || v > hi*1.001 {
				continue
			}
			label := ""
			if f == 1 && math.Mod(e-first, every) == 0 || last-first <= 3 {
				label = number(v)
			}
			if label != "" || every == 1 {
				out = append(out, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return out
}

// number prints a tick.
func number(v float64) string {
	if v >= 0.001 && v < 1e6 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprintf("%.0e", v)
}

// verticals are dashed lines with their names at the top.
type verticals []Mark

// Plot draws them, as plot.Plotter wants it.
func (v verticals) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	style := draw.LineStyle{
		Color: ink, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)},
	}
	for i, m := range v {
		at := x(m.X)
		c.StrokeLine2(style, at, c.Min.Y, at, c.Max.Y)
		text := draw.TextStyle{Color: ink, Font: sans(9), Handler: p.TextHandler, XAlign: draw.XLeft}
		c.FillText(text, vg.Point{
			X: at + vg.Points(3), Y: c.Max.Y - vg.Points(10+12*float64(i)),
		}, m.Name)
	}
}

// timeTicks are round instants.
type timeTicks struct{}

// Ticks returns the ticks between two instants in seconds.
func (timeTicks) Ticks(_, hi float64) []plot.Tick {
	end := time.Duration(hi * float64(time.Second))
	var out []plot.Tick
	step := stepOf(end, 12)
	for d := time.Duration(0); d <= end; d += step {
		out = append(out, plot.Tick{Value: d.Seconds(), Label: d.String()})
	}
	return out
}
