package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"leasehold.dev/plan"
)

// TestPlans checks that the page gets the same answers as the command, for each question, with and
// without values.
func TestPlans(t *testing.T) {
	p := New(Offer{ReadOnly: true})
	for line := range strings.Lines(`outage
caches
capacity
length
levels
length --rtt=30ms --loss=0.01 --losses=1 --leases=5e4 --ttls=4s,10s,25s --failures=2 --recovery=1s
length --losses=1e-9 --margin=1s
levels --core=4s --levels=4 --factor=3 --renew-share=0.3 --rtt=10ms
levels --ttls=10s,25s,70s --recovery=2s --drift=0.01 --retry=1s
outage --ttl=5s --renew=1s --rtt=30ms --retry=200ms --margin=10ms --drift=0.002 --silent=true
outage --ttl=1m --recovery=4s
outage --ttl=5s --issuer=classic
caches --reads=20 --writes=0.1 --caches=50 --term=4s --propagation=1ms --processing=2ms
caches --longest-wait=1m --skew=5ms
capacity --leases=2e6 --ttl=20s --renew=5s --keys=2 --members=5 --cores=4 --memory=16
capacity --network=10 --busy=0.25
capacity --leases=5e4 --connections=5e4 --tls=true --files=1024 --quota=4
`) {
		name, flags, _ := strings.Cut(strings.TrimSpace(line), " ")
		q := plan.Questions[name]()
		fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
		q.Flags(fs)
		if err := fs.Parse(strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		want, err := q.Answer()
		if err != nil {
			t.Fatal(err)
		}
		query := "?" + strings.ReplaceAll(strings.ReplaceAll(flags, "--", ""), " ", "&")
		w := ask(p, "GET", prefix+plans+name+query)
		var got answer
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s (%v)", line, w.Code, w.Body, err)
		}
		if fmt.Sprint(got.Figures, got.Head, got.Rows, got.Sentences) !=
			fmt.Sprint(want.Figures, want.Head, want.Rows, want.Sentences) {
			t.Errorf("%s: %+v, not %+v", line, got, want)
		}
		for _, in := range got.Inputs {
			f := fs.Lookup(in.Name)
			if f == nil || in.Value != strings.Trim(f.Value.String(), "[]") || in.Usage != f.Usage {
				t.Errorf("%s: the input %+v is not that of the command", line, in)
			}
		}
	}
}

// TestPlanInputs checks that the page gets the inputs it needs for fields and sliders, with their
// types and values. Times are in seconds.
func TestPlanInputs(t *testing.T) {
	list := make(map[string]input)
	for at := range plan.Questions {
		var got answer
		w := ask(New(Offer{}), "GET", prefix+plans+at)
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		for _, in := range got.Inputs {
			in.Usage = ""
			list[at+" "+in.Name] = in
		}
	}
	for _, want := range []input{
		{Name: "outage drift", Kind: "float64", Value: "0.001", Number: 0.001},
		{Name: "outage silent", Kind: "bool", Value: "false"},
		{Name: "outage issuer", Kind: "string", Value: "leasehold", Choices: plan.Issuers},
		{Name: "caches propagation", Kind: "duration", Value: "500µs", Number: 0.0005},
		{Name: "capacity members", Kind: "int", Value: "3", Number: 3},
		{Name: "levels ttls", Kind: "durationSlice"},
	} {
		got := list[want.Name]
		_, want.Name, _ = strings.Cut(want.Name, " ")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
}

// TestBadPlans checks that a nonsensical question gets an explanation, and that answers carry the
// same browser restrictions as files.
func TestBadPlans(t *testing.T) {
	for query, want := range map[string]string{
		"outage?ttl=soon":                            "use a duration such as 10s",
		"outage?ttl=1h&renew=9h":                     "renew at a third",
		"outage?ttl=25h":                             "at most 24 hours",
		"outage?ttl=-1s":                             "use a duration such as 10s",
		"outage?drift=NaN":                           "from 1e-9 to 1e12",
		"outage?drift=1&ttl=10s":                     "clock drift",
		"outage?reads=1":                             `unknown input "reads"`,
		"outage?ttl=%zz":                             "name=value pairs",
		"outage?silent=perhaps":                      "use true or false",
		"outage?issuer=<b>":                          "choose leasehold",
		"caches?reads=0":                             "nothing to cache",
		"caches?caches=<b>":                          "use 0, or a number",
		"caches?writes=Inf":                          "use 0, or a number",
		"caches?writes=-1":                           "use 0, or a number",
		"caches?caches=0.5":                          "use at least 1",
		"capacity?members=2.5":                       "use a whole number",
		"capacity?members=9":                         "use 1, or 3 to 7",
		"capacity?leases=0":                          "number of leases",
		"capacity?leases=0.5":                        "use 1 or more",
		"capacity?busy=2":                            "share in use",
		"levels?levels=11":                           "use 1 to 10",
		"levels?renew-share=1":                       "between 0 and 1",
		"levels?ttls=10s,soon":                       "use durations such as 10s,25s",
		"levels?ttls=10s,25h":                        "at most 24 hours",
		"length?ttls=-1s":                            "at most 24 hours",
		"length?ttls=1s" + strings.Repeat(",1s", 20): "no more than twenty",
		"length?losses=0":                            "no lease is safe forever",
		"length?loss=1":                              "request loss",
		"length?rtt-file=/etc/hosts":                 `unknown input "rtt-file"`,
	} {
		w := ask(New(Offer{}), "GET", prefix+plans+query)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) ||
			!strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	for _, at := range []string{"", "x", "outage/", "outage.svg"} {
		if w := ask(New(Offer{}), "GET", prefix+plans+at); w.Code != http.StatusNotFound {
			t.Errorf("%q: %d", at, w.Code)
		}
	}
	if w := ask(New(Offer{}), "POST", prefix+plans+"outage"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestExtremePlans checks that no question keeps a member busy for long or makes it fail, however
// extreme its numbers.
func TestExtremePlans(t *testing.T) {
	values := map[string][]string{
		"duration": {"0", "1ns", "1µs", "1ms", "7ms", "10s", "1h", "24h"},
		"float64":  {"0", "5e-324", "1e-9", "0.5", "1", "3", "1e6", "1e12", "1.7e308"},
		"int":      {"1", "3", "7"}, "bool": {"true", "false"}, "string": plan.Issuers,
		"durationSlice": {"", "0", "1ns,1s", "10s,25s,70s", "24h", "1s,2s,3s,24h"},
	}
	p := New(Offer{})
	rnd := rand.New(rand.NewPCG(20, 26))
	answered := make(map[string]int)
	// The names are sorted so that each run asks the same questions.
	names := slices.Sorted(maps.Keys(plan.Questions))
	for range 400 {
		for _, name := range names {
			fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
			plan.Questions[name]().Flags(fs)
			query := url.Values{}
			fs.VisitAll(func(f *pflag.Flag) {
				if list := values[f.Value.Type()]; rnd.IntN(3) == 0 {
					query.Set(f.Name, list[rnd.IntN(len(list))])
				}
			})
			w := ask(p, "GET", prefix+plans+name+"?"+query.Encode())
			if w.Code == http.StatusBadRequest {
				continue
			}
			answered[name]++
			text := w.Body.String()
			if w.Code != http.StatusOK || len(text) > 50_000 || strings.Contains(text, "NaN") ||
				strings.Contains(text, "Inf") {
				t.Fatalf("%s?%s: %d %.3000s", name, query.Encode(), w.Code, text)
			}
		}
	}
	for _, name := range names {
		if answered[name] < 40 {
			t.Errorf("only %d of %s were answered", answered[name], name)
		}
	}
}

// TestPlansOneAtATime checks that questions are answered one at a time, and not for clients that
// have disconnected. Questions need no permission, so they must not use all cores.
func TestPlansOneAtATime(t *testing.T) {
	p := New(Offer{})
	r := httptest.NewRequest("GET", prefix+plans+"outage", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.planning <- struct{}{}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r.WithContext(ctx))
	if w.Body.Len() > 0 {
		t.Errorf("answered though another is: %s", w.Body)
	}
	<-p.planning
	for _, query := range []string{"outage", "outage?ttl=1h&renew=9h"} {
		ask(p, "GET", prefix+plans+query)
		if len(p.planning) > 0 {
			t.Fatalf("%s has not made room for the next", query)
		}
	}
}
