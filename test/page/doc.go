// Package page tests the page for people in a browser, Debian's Chromium, against a binary that
// it builds. It starts no browser without the flag -browser.
package page
