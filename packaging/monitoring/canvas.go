package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
)

// Colors used in pictures.
const (
	ink    = "#222b36"
	faint  = "#d5dae0"
	green  = "#2e8b57"
	blue   = "#8fb8de"
	red    = "#c0392b"
	sand   = "#f5d08a"
	purple = "#6c4ab6"
)

// fonts lists fonts with the same widths. Each SVG viewer has at least one of them.
const fonts = "Liberation Sans,Arial,Helvetica,sans-serif"

// A point is a position in a picture; y grows downward.
type point struct{ x, y float64 }

// A canvas collects the elements of one SVG picture.
type canvas struct {
	size point
	out  bytes.Buffer
}

// Anchors: the position of a text relative to its point.
const (
	after  = "start"
	before = "end"
	around = "middle"
)

// text writes a line of text. The font size is in points, and the point is on the baseline.
func (c *canvas) text(at point, anchor string, size float64, s string) {
	fmt.Fprintf(&c.out, `<text x="%s" y="%s" text-anchor="%s" font-size="%s">%s</text>`+"\n",
		num(at.x), num(at.y), anchor, num(size), escaped(s))
}

// upright writes a vertical text that reads upward. Its middle is at the point.
func (c *canvas) upright(at point, size float64, s string) {
	fmt.Fprintf(&c.out, `<g transform="translate(%s %s) rotate(-90)">`, num(at.x), num(at.y))
	c.text(point{}, around, size, s)
	c.out.WriteString("</g>\n")
}

// A stroke is the style of a line.
type stroke struct {
	color  string
	width  float64
	dashed bool
}

// line draws a line through points.
func (c *canvas) line(s stroke, points ...point) {
	dashes := ""
	if s.dashed {
		dashes = ` stroke-dasharray="4 3"`
	}
	fmt.Fprintf(&c.out, `<polyline fill="none" stroke="%s" stroke-width="%s"%s points="%s"/>`+"\n",
		s.color, num(s.width), dashes, list(points))
}

// fill fills the polygon with these corners.
func (c *canvas) fill(color string, points ...point) {
	fmt.Fprintf(&c.out, `<polygon fill="%s" points="%s"/>`+"\n", color, list(points))
}

// box fills the rectangle with two given opposite corners.
func (c *canvas) box(color string, a, b point) {
	c.fill(color, a, point{b.x, a.y}, b, point{a.x, b.y})
}

// dot draws a small disc.
func (c *canvas) dot(color string, at point) {
	fmt.Fprintf(&c.out, `<circle fill="%s" cx="%s" cy="%s" r="2.5"/>`+"\n",
		color, num(at.x), num(at.y))
}

// within calls draw and clips what it draws to the rectangle.
func (c *canvas) within(a, b point, draw func()) {
	x, y, w, h := num(a.x), num(a.y), num(b.x-a.x), num(b.y-a.y)
	fmt.Fprintf(&c.out, `<svg x="%s" y="%s" width="%s" height="%s" viewBox="%s %s %s %s">`+"\n",
		x, y, w, h, x, y, w, h)
	draw()
	c.out.WriteString("</svg>\n")
}

// save writes the picture.
func (c *canvas) save(w io.Writer) error {
	x, y := num(c.size.x), num(c.size.y)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%spt" height="%spt" `+
		`viewBox="0 0 %s %s" font-family="%s" fill="%s">`+"\n"+
		`<rect width="%s" height="%s" fill="#ffffff"/>`+"\n%s</svg>\n",
		x, y, x, y, fonts, ink, x, y, c.out.Bytes())
	return err
}

// num formats a coordinate with at most two decimals.
func num(v float64) string {
	b := strconv.AppendFloat(nil, v, 'f', 2, 64)
	b = bytes.TrimRight(b, "0")
	return string(bytes.TrimSuffix(b, []byte(".")))
}

func list(points []point) string {
	var b []byte
	for i, p := range points {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(append(append(b, num(p.x)...), ','), num(p.y)...)
	}
	return string(b)
}

func escaped(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic(err) // writing to a buffer does not fail
	}
	return b.String()
}
