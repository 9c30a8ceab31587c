// Package page tests the web page in a browser, Debian's Chromium, against a binary that it builds.
// The browser starts only if the -browser flag is set.
package page
