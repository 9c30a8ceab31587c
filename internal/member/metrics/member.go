package metrics

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/backup/keeper"
	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
)

// Member is the part of a member that scrapes read. Its functions are safe for concurrent use.
type Member struct {
	ID     uint64
	View   func() *fsm.View
	Status func() *replica.Status
	State  func() *State
	Disk   interface {
		Usage() storage.Usage
		LogBytes() uint64
	}
	Peers interface {
		Since(member uint64) (time.Time, bool)
		Traffic(member uint64) transport.Traffic
	}
	Watchers       func() int
	DiskFull       func() bool
	Copied, Panics func() uint64
	StorageVersion func() byte

	// Principals is the number of principals that have their own labels. Rank ranks the principals.
	// It returns false if the member did not respond in time. Refusals returns the number of
	// requests rejected because of limits, by principal.
	Principals int
	Rank       func(context.Context, *access.Ranking) bool
	Refusals   func(access.Resource) map[string]uint64

	Certificates []Certificate
	Backups      *keeper.Keeper // nil if there are no backups
}

// State contains statistics about the member's state. Only the state's owner can read them. The
// core publishes them once per tick.
type State struct {
	fsm.Stats
	Leases, Attached int
	Holding          int             // leases that hold ranges
	Open             int             // caches that are open at this member
	Caches           directory.Stats // caches of this leader, slightly out of date
	Lags             []replica.Lag   // lags of the other members, at the leader
	Silences         []silence.State // how other members respond
	NearMisses       uint64          // number of near misses in renewals
}

// Register adds metrics that are read from a member.
func (m *Metrics) Register(of *Member) {
	gauges := append(stateGauges(of), etcdGauges(of)...)
	for _, g := range append(gauges, cacheGauges(of)...) {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: g.space, Name: g.name, Help: g.help, ConstLabels: g.labels,
		}, g.read))
	}
	for _, c := range m.counters(of) {
		m.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: c.space, Name: c.name, Help: c.help,
		}, c.read))
	}
	m.Registry.MustRegister(peers{of}, principals{of}, backups{of.Backups},
		certificates{of.Certificates})
}

// scraped is a metric whose value is read at each scrape.
type scraped struct {
	space, name, help string
	read              func() float64
	labels            prometheus.Labels
}

func ownMetric(name, help string, read func() float64) scraped {
	return scraped{"leasehold", name, help, read, nil}
}

func etcdMetric(name, help string, read func() float64) scraped {
	return scraped{"etcd", name, help, read, nil}
}

// counters returns the metrics that are counted elsewhere, and the number of leader changes, which
// has two names.
func (m *Metrics) counters(of *Member) []scraped {
	leaders := func() float64 { return float64(m.leaders.Load()) }
	return []scraped{
		ownMetric("leader_changes_total", "Leader changes seen by this member.", leaders),
		etcdMetric("server_leader_changes_seen_total", "Leader changes seen by this member.", leaders),
		ownMetric("leases_granted_total", "Leases granted since start.",
			func() float64 { return float64(of.State().Granted) }),
		ownMetric("leases_revoked_total", "Leases revoked by clients since start.",
			func() float64 { return float64(of.State().Revoked) }),
		ownMetric("leases_expired_total", "Leases expired since start.",
			func() float64 { return float64(of.State().Expired) }),
		ownMetric("lease_checkpoints_total", "Checkpoints of silent leases since start.",
			func() float64 { return float64(of.State().Checkpointed) }),
		ownMetric("lease_renewal_near_misses_total", "Renewals that arrived with less than a quarter of "+
			"the TTL left, since this member became the leader.",
			func() float64 { return float64(of.State().NearMisses) }),
		ownMetric("cache_invalidations_total", "Invalidations sent since this member became the leader.",
			func() float64 { return float64(of.State().Caches.Sent) }),
		ownMetric("caches_outlived_total", "Caches whose leases ended while writes waited for "+
			"them, since this member became the leader.",
			func() float64 { return float64(of.State().Caches.Outlived) }),
		ownMetric("copied_members_total", "Number of times that a second process with a member's identity "+
			"was rejected, as seen by this member. The log names both processes.",
			func() float64 { return float64(of.Copied()) }),
		ownMetric("panics_total", "Calls that panicked and were aborted. The log has the stack traces.",
			func() float64 { return float64(of.Panics()) }),
	}
}

func stateGauges(of *Member) []scraped {
	return []scraped{
		ownMetric("leases", "Number of leases.", func() float64 { return float64(of.State().Leases) }),
		ownMetric("lease_attached_keys", "Keys attached to leases.",
			func() float64 { return float64(of.State().Attached) }),
		ownMetric("lease_overdue_seconds", "How long the most overdue lease has been past its expiry. "+
			"Alert on this.",
			func() float64 { return float64(of.Status().Overdue) / 1000 }),
		ownMetric("store_revision", "Current revision of the store.",
			func() float64 { return float64(of.View().KV.Revision()) }),
		ownMetric("state_bytes", "Approximate size of the state, which the quota limits; the same on "+
			"every member. Sum of keys, leases, sessions and members.",
			func() float64 { return float64(of.View().Bytes.Sum()) }),
		ownMetric("store_bytes", "Size of keys and their history.",
			func() float64 { return float64(of.View().Bytes.Keys) }),
		ownMetric("lease_bytes", "Size of leases and of the ranges that they hold.",
			func() float64 { return float64(of.View().Bytes.Leases) }),
		ownMetric("session_bytes", "Size of sessions and of the responses kept for them.",
			func() float64 { return float64(of.View().Bytes.Sessions) }),
		ownMetric("disk_bytes", "Size of the data directory.",
			func() float64 { return float64(of.Disk.Usage().DiskBytes) }),
		ownMetric("log_bytes", "Size of the log since the last snapshot.",
			func() float64 { return float64(of.Disk.LogBytes()) }),
		ownMetric("raft_term", "Raft term.", func() float64 { return float64(of.Status().Term) }),
		ownMetric("raft_applied_index", "Last applied log index.",
			func() float64 { return float64(of.View().Index) }),
		ownMetric("is_leader", "1 on the leader, else 0.",
			func() float64 { return oneIf(of.Status().Primary) }),
		ownMetric("watchers", "Watchers on all streams.",
			func() float64 { return float64(of.Watchers()) }),
		ownMetric("cluster_version", "Cluster version, as a number.",
			func() float64 { return float64(of.View().Version.Number) }),
		ownMetric("storage_version", "Newest cluster version that the data on disk "+
			"requires. Any release that supports it can use the data.",
			func() float64 { return float64(of.StorageVersion()) }),
		ownMetric("disk_full", "1 while the disk is full. A follower then forwards writes; a "+
			"leader rejects them.", func() float64 { return oneIf(of.DiskFull()) }),
		alarm(of, fsm.NoSpace, "NOSPACE"), alarm(of, fsm.Corrupt, "CORRUPT"),
	}
}

func alarm(of *Member, kind fsm.AlarmKind, name string) scraped {
	a := ownMetric("alarm", "1 while the alarm is active on any member.",
		func() float64 { return oneIf(raised(of.View().Alarms, kind)) })
	a.labels = prometheus.Labels{"alarm": name}
	return a
}

func raised(alarms []fsm.Alarm, kind fsm.AlarmKind) bool {
	return slices.ContainsFunc(alarms, func(a fsm.Alarm) bool { return a.Kind.Shown() == kind })
}

func cacheGauges(of *Member) []scraped {
	return []scraped{
		ownMetric("leases_holding", "Leases that hold ranges for a cache.",
			func() float64 { return float64(of.State().Holding) }),
		ownMetric("caches_open", "Caches open at this member.",
			func() float64 { return float64(of.State().Open) }),
		ownMetric("caches_wide", "Caches that have not reported their content, so this leader "+
			"assumes that they cache everything in the ranges that they hold.",
			func() float64 { return float64(of.State().Caches.Wide) }),
		ownMetric("caches_pending", "Caches with pending invalidations from this leader.",
			func() float64 { return float64(of.State().Caches.Unacknowledged) }),
		ownMetric("cache_ranges", "Keys and ranges that caches may have, as recorded by this leader.",
			func() float64 { return float64(of.State().Caches.Spans) }),
		ownMetric("cache_writes_waiting", "Writes waiting for caches.",
			func() float64 { return float64(of.State().Caches.Waiting) }),
	}
}

// etcdGauges returns the etcd gauges that probes, alerts and dashboards use most, under the same
// names as in etcd.
func etcdGauges(of *Member) []scraped {
	fact := func(name, label, value string) scraped {
		return scraped{
			"etcd", name, fmt.Sprintf("Always 1. The label contains the %s.", label),
			func() float64 { return 1 },
			prometheus.Labels{label: value},
		}
	}
	inUse := func() int64 { return of.View().Bytes.Sum() }
	return []scraped{
		fact("server_version", "server_version", version.EtcdVersion),
		fact("cluster_version", "cluster_version", version.EtcdAPIVersion),
		fact("server_id", "server_id", memberLabel(of.ID)),
		etcdMetric("server_has_leader", "1 if the member has a leader, else 0.",
			func() float64 { return oneIf(of.Status().Leader != 0) }),
		etcdMetric("server_is_leader", "1 on the leader, else 0.",
			func() float64 { return oneIf(of.Status().Primary) }),
		etcdMetric("server_is_learner", "1 on a learner, else 0.",
			func() float64 { return oneIf(of.View().Learner(of.ID)) }),
		etcdMetric("server_proposals_committed_total", "Last log index that this member knows to be "+
			"committed.", func() float64 { return float64(of.Status().Index) }),
		etcdMetric("server_proposals_applied_total", "Last log index applied by this member.",
			func() float64 { return float64(of.View().Index) }),
		etcdMetric("mvcc_db_total_size_in_bytes", "Size of the data directory.",
			func() float64 { return float64(max(int64(of.Disk.Usage().DiskBytes), inUse())) }),
		etcdMetric("mvcc_db_total_size_in_use_in_bytes",
			"Size of the state, which the quota limits; same as leasehold_state_bytes.",
			func() float64 { return float64(inUse()) }),
		etcdMetric("server_quota_backend_bytes", "Quota for the state, in bytes.",
			func() float64 { return float64(of.View().Quota) }),
		etcdMetric("debugging_mvcc_keys_total", "Keys in the store.",
			func() float64 { return float64(of.View().KV.Len()) }),
		etcdMetric("debugging_mvcc_current_revision", "Current revision of the store.",
			func() float64 { return float64(of.View().KV.Revision()) }),
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
