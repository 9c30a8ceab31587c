// Package page tests the web page in a browser, Debian's Chromium, against a binary that it builds.
// The browser is only started if the flag -browser is set.
package page
