package top

import (
	"bytes"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"
)

const (
	leasesMetric = "leasehold_leases"
	syncMetric   = "leasehold_log_sync_duration_seconds"
)

// counter is a counter that is shown as a rate. If it is summed, each member counts its own events.
// Otherwise, all members count the same events, and the highest count is shown.
type counter struct {
	title, metric string
	outcome       string // value of the metric's label, or "" if it has no label
	summed        bool
}

var renewed = counter{"renewed", "leasehold_lease_renewals_total", "renewed", true}

var counters = []counter{
	{"granted", "leasehold_leases_granted_total", "", false},
	renewed,
	{"expired", "leasehold_leases_expired_total", "", false},
	{"revoked", "leasehold_leases_revoked_total", "", false},
	{"near misses", "leasehold_lease_renewal_near_misses_total", "", true},
}

// metrics are the metrics of a member by name. Counters start at 0 when the member starts.
type metrics map[string]*dto.MetricFamily

// metricsIn parses the output of /metrics. It returns nil if the text is invalid, or if it is not
// from Leasehold.
func metricsIn(text []byte) metrics {
	parser := expfmt.NewTextParser(prometheus.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil || families[leasesMetric] == nil {
		return nil
	}
	// Drop the many other metrics. Otherwise, the history would keep them for a minute.
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool {
		return !strings.HasPrefix(name, "leasehold_lease") && name != syncMetric
	})
	return families
}

// sum returns a counter or a gauge. If outcome is not empty, only the value with that label counts.
func (f metrics) sum(name, outcome string) (n float64) {
	for _, m := range f[name].GetMetric() {
		if outcome == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == outcome {
			n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return n
}

// histogram returns a histogram that has no labels, or nil if there is none.
func (f metrics) histogram(name string) *dto.Histogram {
	if all := f[name].GetMetric(); len(all) > 0 {
		return all[0].GetHistogram()
	}
	return nil
}

// bound is an upper bound in seconds, or a lower one if over is set: a value in a histogram's last
// bucket has no upper bound. The zero bound is unknown.
type bound struct {
	seconds float64
	over    bool
}

// p99 returns the lowest bound that at least 99% of the values since an earlier reading do not
// exceed, or the highest finite bound if they do. If the member has restarted since, all values
// count.
func p99(now, old *dto.Histogram) (b bound) {
	if len(old.GetBucket()) != len(now.GetBucket()) || old.GetSampleCount() > now.GetSampleCount() {
		old = nil
	}
	count := now.GetSampleCount() - old.GetSampleCount()
	if count == 0 {
		return bound{}
	}
	for i, bucket := range now.GetBucket() { // sorted by their bounds
		if math.IsInf(bucket.GetUpperBound(), 1) {
			break
		}
		n := bucket.GetCumulativeCount()
		if old != nil {
			n -= min(n, old.GetBucket()[i].GetCumulativeCount())
		}
		b.seconds = bucket.GetUpperBound()
		if float64(n) >= 0.99*float64(count) {
			return b
		}
	}
	b.over = true
	return b
}

// slower returns the larger of two bounds.
func slower(a, b bound) bound {
	if b.seconds > a.seconds || b.seconds == a.seconds && b.over {
		return b
	}
	return a
}

// String returns the bound as a short duration.
func (b bound) String() string {
	if b == (bound{}) {
		return "-"
	}
	s := short(time.Duration(b.seconds * float64(time.Second)))
	if b.over {
		return ">" + s
	}
	return s
}

// lookBack is the time span covered by histograms. It is long enough to contain a useful number of
// syncs.
const lookBack = time.Minute

// history holds the snapshots of the last minute, oldest first. It begins with an empty snapshot,
// so it always has a newest one.
type history []snapshot

func (h history) newest() *snapshot { return &h[len(h)-1] }

// rate returns a counter's rate per second between the last two snapshots, or "-" if it is unknown.
// If id is empty, it is the rate of the whole cluster, otherwise the rate of one member.
func (h history) rate(c counter, id string) string {
	now, before := h.newest(), &h[len(h)-2]
	total, found := 0.0, false
	for member, x := range now.metrics {
		y := before.metrics[member]
		d := x.sum(c.metric, c.outcome) - y.sum(c.metric, c.outcome)
		if id != "" && member != id || y == nil || d < 0 {
			continue // the member did not respond, or was restarted
		}
		found = true
		if c.summed {
			total += d
		} else {
			total = max(total, d)
		}
	}
	took := now.at.Sub(before.at).Seconds()
	if !found || took <= 0 {
		return "-"
	}
	if total /= took; total > 0 && total < 10 {
		return strconv.FormatFloat(total, 'f', 1, 64) + "/s"
	}
	return humanize.Comma(int64(total+0.5)) + "/s"
}

// recent returns the p99 of a member's histogram over the last minute.
func (h history) recent(id, metric string) bound {
	now := h.newest().metrics[id].histogram(metric)
	for i := range len(h) - 1 {
		if old := h[i].metrics[id]; old != nil {
			return p99(now, old.histogram(metric))
		}
	}
	return p99(now, nil)
}
