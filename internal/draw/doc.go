// Package draw makes pictures of what package plan computes: timelines as text for
// a terminal and as SVG, curves as SVG. It draws what it is given, computes nothing,
// and the same input gives the same bytes. All functions may be called concurrently.
package draw
