// Package draw makes pictures of the results of package plan: timelines as text for a terminal
// and as SVG, curves as SVG. It only draws its input, and the same input gives the same bytes.
// All functions may be called concurrently.
package draw
