package plan

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs the files in testdata. Each file lists some choices and their results, as
// numbers and as sentences. To update the results, run it with -rewrite and review the diff.
//
// The arguments on a line set fields of the structs in question: "outage ttl=10s renew=3s
// recovery=6s" sets two fields of Holder and one of Issuer. Missing arguments are 0.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			q := question{t, d}
			commands := map[string]func() (string, error){
				"outage": q.outage, "chain": q.chain, "cache": q.cache, "size": q.size,
				"chance": q.chance, "choose": q.choose, "histogram": q.histogram,
			}
			answer, err := commands[d.Cmd]()
			if err != nil {
				return err.Error() + "\n"
			}
			return answer
		})
	})
}

type question struct {
	t *testing.T
	d *datadriven.TestData
}

// fill sets struct fields from the arguments on the line.
func (q question) fill(into ...any) {
	for _, a := range q.d.CmdArgs {
		for _, s := range into {
			v := reflect.ValueOf(s).Elem()
			for i := range v.NumField() {
				if name := strings.ReplaceAll(a.Key, "-", ""); name != "ttls" &&
					strings.EqualFold(v.Type().Field(i).Name, name) {
					q.set(v.Field(i), strings.Join(a.Vals, ""))
				}
			}
		}
	}
}

func (q question) set(f reflect.Value, text string) {
	switch p := f.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		q.check(err)
		*p = d
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		q.check(err)
		*p = n
	case *int:
		n, err := strconv.Atoi(text)
		q.check(err)
		*p = n
	case *bool: // set if the argument is present
		*p = true
	case *Histogram: // given below the command
	default:
		q.d.Fatalf(q.t, "no field of type %v is set", f.Type())
	}
}

func (q question) check(err error) {
	if err != nil {
		q.d.Fatalf(q.t, "%v", err)
	}
}

// paragraph formats name-value pairs and sentences as lines.
func paragraph(sentences []string, pairs ...any) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s: %v\n", pairs[i], pairs[i+1])
	}
	for _, s := range sentences {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	return b.String()
}

// outage returns the result of Bounds for the issuer named on the line.
func (q question) outage() (string, error) {
	var h Holder
	var i Issuer
	q.fill(&h, &i)
	if kind := ""; q.d.HasArg("issuer") {
		q.d.ScanArgs(q.t, "issuer", &kind)
		i = map[string]Issuer{
			"classic":    ClassicIssuer(i.Recovery),
			"refreshing": RefreshingIssuer(i.Recovery),
			"leasehold":  Leasehold(h.TTL, i.Recovery),
			"silent":     Leasehold(h.TTL, i.Recovery).Silent(),
		}[kind]
	}
	o, err := Bounds(h, i)
	if err != nil {
		return "", err
	}
	return paragraph(
		o.Explain(), "worst", o.Worst, "alone", o.Alone, "typical", o.Typical,
		"noticed", fmt.Sprint(o.NoticeFrom, " to ", o.NoticeTo), "valid", o.Valid,
		"slack", o.Slack, "survivable", o.Survivable, "attempts", o.Attempts,
		"shortest", o.ShortestTTL(),
	), nil
}

// chain returns the result of Chain. The levels come from the lines below, or from the rule of
// thumb.
func (q question) chain() (string, error) {
	var h Holder
	var x struct {
		Base   time.Duration
		Factor float64
		Levels int
	}
	q.fill(&h, &x)
	var names []string
	var holders []Holder
	for line := range strings.Lines(q.d.Input) {
		words := strings.Fields(line)
		l := h
		q.set(reflect.ValueOf(&l.TTL).Elem(), words[1])
		q.set(reflect.ValueOf(&l.Renew).Elem(), words[2])
		names, holders = append(names, words[0]), append(holders, l)
	}
	if q.d.HasArg("factor") {
		all, err := ThumbChain(h, x.Factor, x.Levels)
		if err != nil {
			return "", err
		}
		holders = all
		for i := range holders {
			names = append(names, fmt.Sprint("level", i))
		}
	}
	chain, err := Chain(x.Base, names, holders)
	if err != nil {
		return "", err
	}
	text := ""
	for _, l := range chain {
		text += fmt.Sprintf("%s: lease %v renewed every %v, above away %v, needs %v, by the thumb %v, "+
			"slack %v, worst %v\n", l.Name, l.Holder.TTL, l.Holder.Renew, l.Recovery, l.Needs, l.Thumb,
			l.Slack, l.Worst)
	}
	one, err := Bounds(Holder{TTL: holders[0].TTL}, Leasehold(holders[0].TTL, 2*s))
	q.check(err)
	return text + paragraph(ChainAdvice(chain, one)), nil
}

// cache returns the result of ChooseCaches.
func (q question) cache() (string, error) {
	var v Sharing
	q.fill(&v)
	c, err := ChooseCaches(v)
	if err != nil {
		return "", err
	}
	last := c.Curve[len(c.Curve)-1]
	return paragraph(
		c.Explain(), "benefit", decimal(c.Benefit), "worth", c.Worth,
		"break even", short(c.BreakEven), "recommended", short(c.Recommended),
		"effective", c.Effective, "load", percent(c.At.Load),
		"delay", short(c.At.Delay), "approval", c.Approval, "worst write", c.WorstWrite,
		"curve", fmt.Sprintf("%d terms to %v, where the load is %s", len(c.Curve),
			short(last.Term), percent(last.Load)),
	), nil
}

// size returns the result of Size, with costs in round numbers.
func (q question) size() (string, error) {
	v := Site{Members: 3, Cores: 2, Memory: 8e9, Network: 125e6, Busy: 0.5}
	costs := Costs{
		Source: "round numbers", Renew: 10 * time.Microsecond, Grant: 100 * time.Microsecond,
		RenewBytes: 100, LeaseBytes: 300, KeyBytes: 700, ConnBytes: 10_000, ConnTLSBytes: 20_000,
		ConnRenew: 90 * time.Microsecond, ConnRenewBytes: 200, LeaseState: 200, KeyState: 400,
		Expiries: 100_000, Restart: 2 * s,
	}
	q.fill(&v, &costs)
	r, err := Size(v, costs)
	if err != nil {
		return "", err
	}
	var limits []string
	for _, l := range r.Limits {
		limits = append(limits, fmt.Sprintf("%s %s (%s used)", l.Name, counted(l.Leases),
			percent(l.Used)))
	}
	return paragraph(
		r.Explain(), "renewals", counted(r.RenewalsASecond), "bytes",
		counted(r.BytesASecond), "cores", decimal(r.Cores), "memory",
		counted(r.Memory), "state", counted(r.State), "limits",
		strings.Join(limits, ", "), "cells", counted(r.Cells), "all end", r.AllEnd, "grant all",
		r.GrantAll, "restart", r.Restart,
	), nil
}

// weather returns the Weather given on the line. The histogram below the line describes pauses, or
// round trips if the line contains "trips".
func (q question) weather(h *Holder, into ...any) (Weather, error) {
	var w Weather
	q.fill(append(into, h, &w)...)
	seen, err := ReadHistogram(strings.NewReader(q.d.Input))
	switch {
	case q.d.Input == "":
		return w, nil
	case q.d.HasArg("trips"):
		w.RoundTrip = seen
	default:
		w.Pauses = seen
	}
	return w, err
}

// chance returns the result of Chance.
func (q question) chance() (string, error) {
	var h Holder
	w, err := q.weather(&h)
	if err != nil {
		return "", err
	}
	l, err := Chance(h, w)
	if err != nil {
		return "", err
	}
	return paragraph(
		nil, "losses a year", decimal(l.LossesAYear), "chance", percent(l.ChanceAYear),
		"by requests", decimal(l.ByRequests), "by pauses", decimal(l.ByPauses),
		"by the issuer", decimal(l.ByIssuer), "notice",
		fmt.Sprint(l.NoticeMean, ", at most ", l.Notice), "renewals a second",
		decimal(l.RenewalsASecond), "attempts", l.Attempts,
	), nil
}

// choose returns the result of ChooseLength.
func (q question) choose() (string, error) {
	var h Holder
	var wish Wish
	w, err := q.weather(&h, &wish)
	if err != nil {
		return "", err
	}
	wish.Holder, wish.Weather = h, w
	for _, a := range q.d.CmdArgs {
		if a.Key == "ttls" {
			for _, text := range a.Vals {
				d, err := time.ParseDuration(text)
				q.check(err)
				wish.TTLs = append(wish.TTLs, d)
			}
		}
	}
	c, err := ChooseLength(wish)
	if err != nil {
		return "", err
	}
	return paragraph(c.Explain(), "pairs", len(c.All), "default",
		decimal(c.Default.LossesAYear)), nil
}

// histogram reads a histogram and returns its contents.
func (q question) histogram() (string, error) {
	h, err := ReadHistogram(strings.NewReader(q.d.Input))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	q.check(h.Write(&b))
	return b.String() + paragraph(
		nil, "count", h.Count(), "max", h.Max(), "half", h.Quantile(0.5), "all", h.Quantile(1),
		"above 2ms", h.Above(2*time.Millisecond), "unseen", decimal(h.Unseen()),
	), nil
}
