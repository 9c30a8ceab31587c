// Package tier classifies tests by how long they take and what they need.
//
//	tier       runs in         may use                     retried
//	unmarked   go test ./...   virtual time, memory        never
//	RealTime   go test ./...   processes, sockets, disks   up to twice, by .ci/run
//	Campaign   .ci/campaign    minutes, random faults      never
//
// An unmarked test passes on any machine, no matter how busy. Only a few smoke tests are marked
// RealTime. Everything else that needs real processes or real time is marked Campaign.
package tier

import (
	"iter"
	"math/rand/v2"
	"os"
	"testing"
)

// RealTime gives the test this attribute, which go test -json reports.
const (
	Attribute     = "tier"
	RealTimeValue = "real-time"
)

// Variable is the environment variable that enables the campaign tier.
const Variable = "LEASEHOLD_CAMPAIGN"

// RealTime marks a test that runs real processes or waits for real time. Package rerun retries such
// a test if it fails. Call RealTime first, and from the top-level test.
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

// Budget returns how much work a random or exhaustive test should do. The budget is larger in the
// campaign tier.
func Budget(usual, campaign int) int {
	if InCampaign() {
		return campaign
	}
	return usual
}

// Seeds yields the seeds of a random test. They are always the same, except in the campaign tier,
// where they are random.
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

// InCampaign reports whether the campaign tier is enabled. Some tests search further if it is.
func InCampaign() bool { return os.Getenv(Variable) != "" }
