package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func showHealth(list []health) answer {
	return answer{json: list, simple: func(p *page) {
		for _, h := range list {
			if h.Error == "" {
				p.printf("%s is healthy: successfully committed proposal: took = %v\n",
					h.Endpoint, h.Took)
			}
		}
	}, fields: func(p *page) {
		for _, h := range list {
			p.quoted("Endpoint", h.Endpoint)
			p.field("Health", h.Health)
			p.field("Took", h.Took)
			p.field("Error", h.Error)
			p.printf("\n")
		}
	}, table: func() ([]string, [][]string) {
		var rows [][]string
		for _, h := range list {
			rows = append(rows, []string{
				h.Endpoint, strconv.FormatBool(h.Health), h.Took, h.Error,
			})
		}
		return []string{"endpoint", "health", "took", "error"}, rows
	}}
}

// statusHead names the columns of endpoint status.
var statusHead = []string{
	"endpoint", "ID", "version", "storage version", "db size", "in use",
	"percentage not in use", "quota", "is leader", "is learner", "raft term",
	"raft index", "raft applied index", "errors", "downgrade target version",
	"downgrade enabled",
}

func statusRow(s status) []string {
	r := (*pb.StatusResponse)(s.Resp)
	return []string{
		s.Endpoint,
		fmt.Sprintf("%x", r.GetHeader().GetMemberId()),
		r.GetVersion(),
		r.GetStorageVersion(),
		siBytes(r.GetDbSize()),
		siBytes(r.GetDbSizeInUse()),
		fmt.Sprintf("%d%%", percentFree(r.GetDbSize(), r.GetDbSizeInUse())),
		siBytes(r.GetDbSizeQuota()),
		strconv.FormatBool(r.GetLeader() == r.GetHeader().GetMemberId()),
		strconv.FormatBool(r.GetIsLearner()),
		fmt.Sprint(r.GetRaftTerm()),
		fmt.Sprint(r.GetRaftIndex()),
		fmt.Sprint(r.GetRaftAppliedIndex()),
		strings.Join(r.GetErrors(), ", "),
		r.GetDowngradeInfo().GetTargetVersion(),
		strconv.FormatBool(r.GetDowngradeInfo().GetEnabled()),
	}
}

// percentFree is how much of size is not in use. An empty database has nothing
// free (etcdctl divides by zero).
func percentFree(size, inUse int64) int64 {
	if size == 0 {
		return 0
	}
	return 100 - inUse*100/size
}

// siBytes writes a size with a unit, powers of 1000, one decimal below ten.
func siBytes(n int64) string {
	u := uint64(n)
	if u < 10 {
		return fmt.Sprintf("%d B", u)
	}
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	unit, size := 0, 1.0
	for float64(u)/size >= 1000 && unit < len(units)-1 {
		unit, size = unit+1, size*1000
	}
	tenths := math.Floor(float64(u)/size*10+0.5) / 10
	if tenths < 10 {
		return fmt.Sprintf("%.1f %s", tenths, units[unit])
	}
	return fmt.Sprintf("%.0f %s", tenths, units[unit])
}

func showStatus(list []status) answer {
	rows := func() (rows [][]string) {
		for _, s := range list {
			rows = append(rows, statusRow(s))
		}
		return rows
	}
	return answer{json: list, simple: func(p *page) {
		p.rows(rows())
	}, fields: func(p *page) {
		for _, s := range list {
			p.statusFields(s)
		}
	}, table: func() ([]string, [][]string) {
		return statusHead, rows()
	}}
}

// rows writes a table without its lines.
func (p *page) rows(rows [][]string) {
	for _, row := range rows {
		p.printf("%s\n", strings.Join(row, ", "))
	}
}

func (p *page) statusFields(s status) {
	r := (*pb.StatusResponse)(s.Resp)
	p.header(r.GetHeader())
	p.quoted("Version", r.GetVersion())
	p.quoted("StorageVersion", r.GetStorageVersion())
	p.field("DBSize", r.GetDbSize())
	p.field("DBSizeInUse", r.GetDbSizeInUse())
	p.field("DBSizeQuota", r.GetDbSizeQuota())
	p.field("Leader", r.GetLeader())
	p.field("IsLearner", r.GetIsLearner())
	p.field("RaftIndex", r.GetRaftIndex())
	p.field("RaftAppliedIndex", r.GetRaftAppliedIndex())
	p.field("Errors", r.GetErrors())
	p.quoted("Endpoint", s.Endpoint)
	p.quoted("DowngradeTargetVersion", r.GetDowngradeInfo().GetTargetVersion())
	p.field("DowngradeEnabled", r.GetDowngradeInfo().GetEnabled())
	p.printf("\n")
}

func showHashKV(list []hashKV) answer {
	rows := func() (rows [][]string) {
		for _, h := range list {
			r := (*pb.HashKVResponse)(h.Resp)
			rows = append(rows, []string{
				h.Endpoint, fmt.Sprint(r.GetHash()), fmt.Sprint(r.GetHashRevision()),
			})
		}
		return rows
	}
	return answer{json: list, simple: func(p *page) {
		p.rows(rows())
	}, fields: func(p *page) {
		for _, h := range list {
			r := (*pb.HashKVResponse)(h.Resp)
			p.header(r.GetHeader())
			p.quoted("Endpoint", h.Endpoint)
			p.field("Hash", r.GetHash())
			p.field("HashRevision", r.GetHashRevision())
			p.printf("\n")
		}
	}, table: func() ([]string, [][]string) {
		return []string{"endpoint", "hash", "hash_revision"}, rows()
	}}
}
