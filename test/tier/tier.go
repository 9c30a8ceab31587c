// Package tier sorts tests by how long they take and what they need.
//
//	tier       runs in         may use                     retried
//	unmarked   go test ./...   virtual time, memory        never
//	RealTime   go test ./...   processes, sockets, disks   up to twice, by .ci/run
//	Campaign   .ci/campaign    minutes, random faults      never
//
// An unmarked test passes on any machine, however busy. Only a handful of smoke tests are
// marked RealTime; everything else that needs real processes or real seconds is marked Campaign.
package tier

import (
	"iter"
	"math/rand/v2"
	"os"
	"testing"
)

// RealTime sets this attribute of the test, which go test -json reports.
const (
	Attribute     = "tier"
	RealTimeValue = "real-time"
)

// Variable is the environment variable that enables the campaign tier.
const Variable = "LEASEHOLD_CAMPAIGN"

// RealTime marks a test that runs real processes or waits for real time. Package rerun retries such
// a test if it fails. Call it first, and from the top-level test.
func RealTime(t testing.TB) {
	t.Helper()
	t.Attr(Attribute, RealTimeValue)
}

// Campaign skips the test unless the campaign tier is enabled. Call it first.
func Campaign(t testing.TB) {
	t.Helper()
	if !InCampaign() {
		t.Skip("runs in .ci/campaign only; set " + Variable + "=1 to run it here")
	}
}

// Budget returns how much a random or exhaustive test does: more in the campaign tier.
func Budget(usual, campaign int) int {
	if InCampaign() {
		return campaign
	}
	return usual
}

// Seeds yields the seeds of a random test: always the same seeds or, in the campaign tier, random
// ones.
func Seeds(usual, campaign int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n := range Budget(usual, campaign) {
			seed := uint64(n + 1)
			if InCampaign() {
				seed = rand.Uint64()
			}
			if !yield(seed) {
				return
			}
		}
	}
}

// InCampaign reports whether the campaign tier is enabled, for tests that then search further.
func InCampaign() bool { return os.Getenv(Variable) != "" }
