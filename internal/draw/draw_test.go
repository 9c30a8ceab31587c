package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"leasehold.dev/plan"
)

func story(t *testing.T) Timeline {
	t.Helper()
	o, err := plan.Bounds(plan.Holder{TTL: 10 * time.Second}, plan.ClassicIssuer(8*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return WorstCase(o)
}

// Goal: every kind of span and mark has a look of its own in ASCII, and spans a
// colour.
func TestLooks(t *testing.T) {
	seen := map[rune]bool{}
	for k := holds; k <= stops; k++ {
		l := lookOf(k)
		if seen[l.ascii] || l.name == "" || l.ascii >= utf8.RuneSelf {
			t.Errorf("kind %d: %+v", k, l)
		}
		seen[l.ascii] = true
		if _, ok := colors[k]; k <= nobody && !ok {
			t.Errorf("kind %d has no colour", k)
		}
	}
}

// Goal: the text fits the width that was asked for, and keeps its lanes. Method:
// widths from nothing to wide.
func TestTextFits(t *testing.T) {
	for _, width := range []int{0, 40, 57, 80, 200} {
		for _, ascii := range []bool{true, false} {
			var out bytes.Buffer
			if err := Text(&out, story(t), Style{Width: width, ASCII: ascii}); err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(out.String(), "\n") {
				if n := utf8.RuneCountInString(line); i > 0 && n > max(width, minWidth) {
					t.Errorf("width %d: line %q has %d letters", width, line, n)
				}
				if ascii && len(line) != utf8.RuneCountInString(line) {
					t.Errorf("not ASCII: %q", line)
				}
			}
			for _, lane := range []string{"holder", "lease", "issuer", "next"} {
				if !strings.Contains(out.String(), lane+"  ") {
					t.Errorf("no lane %s in\n%s", lane, out.String())
				}
			}
		}
	}
}

// Goal: the picture of a small story, to the letter.
func TestText(t *testing.T) {
	var out bytes.Buffer
	if err := Text(&out, story(t), Style{Width: 60, ASCII: true}); err != nil {
		t.Fatal(err)
	}
	want := `worst case: the holder dies as it renews, the issuer as it is worst
holder  G#####R#####!
 lease  ============================================
issuer                                !xxxxxxxxxxxxx^
  next              ................................T#####
        |0s               |10s              |20s
`
	lines := strings.SplitAfter(out.String(), "\n")
	if got := strings.Join(lines[:6], ""); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Goal: pictures are well-formed, say what they show, and come out the same each
// time. How they look was looked at.
func TestSVG(t *testing.T) {
	chart := Chart{
		Title: "a <title> & more", X: "x", Y: "y", LogX: true, LogY: true,
		Curves: []Curve{
			{Name: "one", XY: [][2]float64{{0, 1}, {1, 1e-7}, {10, 3}}},
			{Name: "empty"},
			{Name: "two", XY: [][2]float64{{1, 1}, {5, 0}}, Dots: true},
		},
		Marks: []Mark{{2, "here"}},
	}
	few := Chart{
		Title: "linear", Curves: []Curve{{Name: "c", XY: [][2]float64{{0, 0}, {1, 1}}}}, MinY: -1,
		MaxY: 2,
	}
	for name, d := range map[string]struct {
		draw  func(io.Writer) error
		words []string
	}{
		"chart": {chart.SVG, []string{
			"a &lt;title&gt; &amp; more", ">one<", ">two<", ">here<",
			"1e-07",
		}},
		"linear": {few.SVG, []string{"linear"}},
		"timeline": {
			func(w io.Writer) error { return TimelineSVG(w, "my title", story(t), story(t)) },
			[]string{"my title", ">holder<", ">issuer<", ">next<", ">nobody holds<", ">20s<"},
		},
	} {
		var a, b bytes.Buffer
		if err := errors.Join(d.draw(&a), d.draw(&b)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: not the same twice", name)
		}
		for _, word := range d.words {
			if !strings.Contains(a.String(), word) {
				t.Errorf("%s: no %q", name, word)
			}
		}
		if !strings.Contains(a.String(), fonts) {
			t.Errorf("%s: no fonts to fall back on", name)
		}
		dec := xml.NewDecoder(&a)
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// Goal: ticks are round, stand within the axis, and there are neither too few nor too many.
func TestTicks(t *testing.T) {
	for name, c := range map[string]struct {
		axis axisOf
		want []float64
	}{
		"linear":      {axisOf{lo: 0, hi: 105}, []float64{0, 20, 40, 60, 80, 100}},
		"below one":   {axisOf{lo: -0.2, hi: 0.9}, []float64{-0.2, 0, 0.2, 0.4, 0.6, 0.8}},
		"two decades": {axisOf{lo: 2, hi: 60, log: true}, []float64{2, 5, 10, 20, 50}},
		"many":        {axisOf{lo: 1e-9, hi: 10, log: true}, []float64{1e-9, 1e-7, 1e-5, 1e-3, 0.1, 10}},
	} {
		got := c.axis.ticks()
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// Goal: values come to stand where they belong. Method: ends and middles of both scales.
func TestPlace(t *testing.T) {
	linear := axisOf{lo: 10, hi: 20, from: 100, to: 0}
	log := axisOf{lo: 1, hi: 100, from: 0, to: 50, log: true}
	for _, c := range []struct{ got, want float64 }{
		{linear.place(10), 100},
		{linear.place(15), 50},
		{linear.place(20), 0},
		{log.place(1), 0},
		{log.place(10), 25},
		{log.place(100), 50},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}

// Lines break at spaces only, and a long word stays whole.
func TestWrap(t *testing.T) {
	got := strings.Join(Wrap("  a bb ccc dddddddd e ", 5), "|")
	if got != "a bb|ccc|dddddddd|e" || Wrap("", 5) != nil {
		t.Errorf("got %q", got)
	}
}

// The marks of an axis are round numbers.
func TestSteps(t *testing.T) {
	for end, want := range map[time.Duration]time.Duration{
		time.Second: 200 * time.Millisecond, 20 * time.Second: 5 * time.Second,
		time.Minute: 10 * time.Second, 3 * time.Millisecond: time.Millisecond,
	} {
		if got := stepOf(end, 6); got != want {
			t.Errorf("%v in at most 6 steps: of %v, want %v", end, got, want)
		}
	}
}
