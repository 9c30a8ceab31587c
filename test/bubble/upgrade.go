package bubble

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/version"
)

// upgrade takes the members from one release to the next, one after the other, back, and there
// again, as an operator does. The releases are this one, and one that speaks only the oldest
// cluster version that this one does; if that is the newest too, there is nothing to do.
type upgrade struct {
	w     *World
	by    *process // whose client asks members what they have
	rng   *rand.Rand
	stage int  // how often they have gone: next to this release if it is even, else back
	hold  bool // the version is to be held while that lasts
	freed bool // its hold may be over: whether its end was done is not known
	asked bool // a downgrade of this stage has been asked for
}

// before is what the earlier release speaks.
var before = version.Range{Oldest: version.Oldest, Newest: version.Oldest}

// upgradeLimit is how long an upgrade may take that nothing is in the way of.
const upgradeLimit = 10 * time.Minute

// upgrades is how often the members go from a release to another: there, back, and there again.
const upgrades = 3

func (u *upgrade) over() bool { return before == version.Spoken || u.stage == upgrades }

// step does the next thing that an operator would do, if it is time for it.
func (u *upgrade) step(f *faults) {
	switch {
	case u.over():
	case u.stage%2 == 0:
		u.forth(f)
	default:
		u.back(f)
	}
}

// forth replaces a member of the earlier release. When there is none the version rises, but not
// before it is let go.
func (u *upgrade) forth(f *faults) {
	old := u.of(before)
	first := len(old) == len(u.w.members)
	switch {
	case first && !u.all(func(s *clientv3.StatusResponse) bool {
		return s.StorageVersion == version.Semantic(version.Oldest) && !s.DowngradeInfo.Enabled
	}):
	case first:
		u.hold, u.asked, u.freed = len(old) > 1 && u.rng.IntN(2) == 0, false, false
		f.replace(old[u.rng.IntN(len(old))], version.Spoken)
	case u.hold && !u.asked:
		u.asked = u.downgrade(clientv3.DowngradeEnable)
	case len(old) > 0:
		f.replace(old[u.rng.IntN(len(old))], version.Spoken)
	case u.hold:
		time.Sleep(3 * time.Second) // in which it would rise
		if !u.freed && u.any(version.Newest) {
			u.w.h.violate("V1", "the cluster version has risen although it is held")
		}
		u.freed, u.hold = true, !u.downgrade(clientv3.DowngradeCancel)
	case u.stored(version.Newest):
		u.next("all members have the new version")
	}
}

// back lowers the version, and replaces each member that has nothing of the newer one on its disk.
func (u *upgrade) back(f *faults) {
	if !u.asked {
		u.asked = u.downgrade(clientv3.DowngradeEnable)
		return
	}
	for _, m := range u.of(version.Spoken) {
		if s, err := u.status(m); err == nil && s.StorageVersion == version.Semantic(version.Oldest) {
			f.replace(m, before)
			return
		}
	}
	if len(u.of(version.Spoken)) == 0 {
		u.next("all members are of the earlier release again")
	}
}

func (u *upgrade) next(what string) {
	u.w.say("%s", what)
	u.w.h.count(what)
	u.stage, u.asked = u.stage+1, false
}

// finish does what is left when the faults are over, with a crash at each step.
func (u *upgrade) finish(f *faults) {
	for end := u.w.h.now() + upgradeLimit; !u.over(); time.Sleep(2 * time.Second) {
		if u.w.h.now() > end {
			u.w.h.violate("V1", "stage %d of the upgrade does not end", u.stage)
			return
		}
		f.crash(f.member())
		u.step(f)
	}
}

// of returns the members that speak these versions, in an order that is drawn.
func (u *upgrade) of(speaks version.Range) (list []*member) {
	for _, m := range u.w.members {
		if m.release() == speaks {
			list = append(list, m)
		}
	}
	u.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func (u *upgrade) status(m *member) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(u.by.ctx, 2*time.Second)
	defer cancel()
	return u.by.etcd.Status(ctx, clientAddr(m.name))
}

// all reports whether all members answer so.
func (u *upgrade) all(so func(*clientv3.StatusResponse) bool) bool {
	return !slices.ContainsFunc(u.w.members, func(m *member) bool {
		s, err := u.status(m)
		return err != nil || !so(s)
	})
}

// stored reports whether all members have something of a cluster version on their disks.
func (u *upgrade) stored(v byte) bool {
	return u.all(func(s *clientv3.StatusResponse) bool {
		return s.StorageVersion == version.Semantic(v)
	})
}

// any is stored for one of them.
func (u *upgrade) any(v byte) bool {
	return slices.ContainsFunc(u.w.members, func(m *member) bool {
		s, err := u.status(m)
		return err == nil && s.StorageVersion == version.Semantic(v)
	})
}

// downgrade asks for one to the oldest version, or for its end, and reports whether that was done.
// It may have been although it says no; then it is refused the next time, and the version as it is
// wanted.
func (u *upgrade) downgrade(action clientv3.DowngradeAction) bool {
	ctx, cancel := context.WithTimeout(u.by.ctx, 5*time.Second)
	defer cancel()
	_, err := u.by.etcd.Downgrade(ctx, action, version.Name(version.Oldest))
	if err != nil {
		u.w.say("downgrade: %v", err)
		enabled := action == clientv3.DowngradeEnable
		return u.all(func(s *clientv3.StatusResponse) bool {
			return s.DowngradeInfo.Enabled == enabled
		})
	}
	return true
}
