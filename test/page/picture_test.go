package page

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// picture saves a screenshot of the page if screenshots are enabled. Some of them are used in
// docs/img.
func (p *tab) picture(name string) {
	p.Helper()
	if *pictures == "" {
		return
	}
	var b []byte
	p.run(chromedp.CaptureScreenshot(&b))
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), small(p.T, b), 0o644); err != nil {
		p.Fatal(err)
	}
}

// small reduces the size of a PNG screenshot. It keeps the most frequent colors. Any other pixel,
// usually at the edge of a letter, gets the nearest of these colors.
func small(t *testing.T, file []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	box := from.Bounds()
	count := make(map[color.Color]int)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			count[from.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int {
		return cmp.Compare(count[b], count[a])
	})
	palette := color.Palette(colors[:min(len(colors), 64)])
	nearest := make(map[color.Color]uint8)
	for c := range count {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(box, palette)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[from.At(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
