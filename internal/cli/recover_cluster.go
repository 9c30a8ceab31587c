package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/rewind"
)

// lookAtCluster asks all members, and looks at their certificates. The error says that the cluster
// does not take us for anybody who may ask.
func (r *recovery) lookAtCluster() (*clusterState, error) {
	s := r.nobody()
	if s == nil {
		s = r.lookAt(r.spec)
	}
	s.judge()
	otherCluster := grpcstatus.Code(s.failure) == codes.FailedPrecondition && r.flags.cluster != 0
	if otherCluster || needsLogin(s.failure) {
		return nil, fmt.Errorf("the cluster cannot be asked: %w", s.failure)
	}
	r.expired = r.lookAtCertificates(s)
	return s, nil
}

// nobody is the state of a cluster of which no endpoint takes a connection, which is found out at
// once; nil if one does. A client would try until its time is up.
func (r *recovery) nobody() *clusterState {
	s := &clusterState{failure: errors.New("no endpoint takes a connection")}
	var wg sync.WaitGroup
	for _, ep := range r.spec.Endpoints {
		scheme, host, found := strings.Cut(ep, "://")
		if !found {
			scheme, host = "", ep
		}
		if strings.HasPrefix(ep, "unix") {
			return nil
		}
		x := &memberState{Name: ep, Endpoint: host, Role: "voter"}
		if scheme != "" {
			x.Name, x.url = host, ep
		}
		s.Members = append(s.Members, x)
		wg.Go(func() {
			err := connects(context.Background(), r.flags.dialTimeout, host)
			if err != nil {
				x.notConnected(err)
			}
		})
	}
	wg.Wait()
	if slices.ContainsFunc(s.Members, func(x *memberState) bool { return x.Error == "" }) {
		return nil
	}
	return s
}

// certificates says what to do about those that are not valid.
func (r *recovery) certificates() {
	d := newDisaster(cause.CertificateExpired, "certificates have expired")
	var own, authority bool
	for _, c := range r.expired {
		d.Facts = append(d.Facts, c.text)
		own = own || c.selfSigned
		authority = authority || c.authority
	}
	d.first("the clock of this machine, which says %s",
		time.Now().UTC().Format("2006-01-02T15:04:05Z"))
	if authority {
		d.on("every host", "the authority itself has expired: make a new one, and put its certificate "+
			"into each --trusted-ca-file, --peer-trusted-ca-file and --cacert, behind the old one")
	}
	for _, c := range r.expired {
		if c.file != "" {
			d.on("here", "replace %s, and the key that goes with it, by a new certificate of your "+
				"authority", c.file)
		} else {
			d.on("the host of "+c.address, "replace the files of %s by a new certificate for the same "+
				"names, and its key: both are read again at every handshake, and nothing needs a restart",
				c.flags)
		}
	}
	if own {
		d.on("every such host", "a certificate that the member has made itself (--auto-tls, "+
			"--peer-auto-tls) is made anew when the member is started again")
	}
	d.on("here", "leasehold recover, once more: members that could not talk find each other again "+
		"by themselves")
	r.found = append(r.found, d)
}

// sayWhy says what to look at because a member does not answer.
func (d *disaster) sayWhy(x *memberState) {
	switch x.Cause {
	case cause.Refused:
		d.first("%s: its host answers, but no process does: see there what the member has said last, "+
			"and start it; its data are probably there", nameOf(x))
	case cause.Hangs:
		d.first("%s: a process takes connections, but answers no call: see there whether it is stopped "+
			"or hangs (its disk, its memory), and what it has said last; it has lost nothing", nameOf(x))
		d.on("the host of "+nameOf(x), "first of all stop the process, by kill -9 if it does not end: "+
			"what it has acknowledged is on its disk, and a second one could not open its data")
	case cause.NoLeader:
		d.first("%s: it runs, and has lost nothing: without a majority nobody can log in, so it tells "+
			"no more; bring the others back", nameOf(x))
	case cause.CallFailed:
		d.first("%s: its host answers, but the call fails: %s", nameOf(x), x.Error)
	case cause.NotAMember:
		d.first("%s: no port of a member for clients answers there, but perhaps that for other "+
			"members: give a client URL with --endpoints", nameOf(x))
	default:
		d.first("%s: %s; see whether its host runs, and what is in the way (network, firewall, "+
			"address): a member that is only out of reach has lost nothing", nameOf(x), x.Error)
	}
}

// knowsNoLeader reports whether a member did not answer because a login needs a majority.
func knowsNoLeader(x *memberState) bool { return x.Cause == cause.NoLeader }

// nameOf names a member for people, with its address.
func nameOf(x *memberState) string {
	if x.Endpoint == "" || hostOf(x.Name) == x.Endpoint {
		return readable(x.Name)
	}
	return readable(x.Name) + " (" + x.Endpoint + ")"
}

// unserved is what there is to say of a cluster that does not serve.
func (r *recovery) unserved() {
	voters, answer := r.cluster.voters()
	why := readable(rpcPrefix.ReplaceAllString(r.cluster.failure.Error(), ""))
	switch {
	case r.cluster.Cluster == "":
		code, what := cause.NoAnswer, "no member answers"
		if slices.ContainsFunc(r.cluster.Members, knowsNoLeader) {
			code, what = cause.NoMajority, "the majority does not answer"
		}
		d := newDisaster(code, what, "at the endpoints: "+why)
		for _, x := range r.cluster.Members {
			d.sayWhy(x)
		}
		d.first("whether these are the right endpoints (--endpoints)")
		r.found = append(r.found, d)
	case len(answer) > len(voters)/2:
		d := newDisaster(cause.NotServing, "the cluster does not serve, though a majority answers", why)
		d.first("whether the members reach each other at their peer URLs (leasehold member list), " +
			"and what their logs say")
		r.found = append(r.found, d)
	default:
		r.found = append(r.found, r.majorityGone(len(answer), len(voters)))
	}
	if r.dir != nil && r.dir.Condition == rewind.Running {
		d := r.found[len(r.found)-1]
		d.Check = slices.Insert(d.Check, 0, r.user()+": give its address with --endpoints; its own data "+
			"are looked at when it is stopped")
	}
}

// majorityGone is what to say if too few members answer.
func (r *recovery) majorityGone(answer, voters int) *disaster {
	d := newDisaster(cause.NoMajority, "the majority does not answer",
		fmt.Sprintf("%d of %d voters answer, and %d are needed: nothing is granted, renewed or "+
			"expired, and holders stop by their own clocks", answer, voters, voters/2+1))
	for _, x := range r.cluster.Members {
		if x.Error != "" {
			d.sayWhy(x)
		}
	}
	d.on("the host of each", "bring them back: with %d more the cluster goes on, and nothing is lost",
		voters/2+1-answer)
	return d
}

// fullEnough is the part of the quota at which the members lift the alarm by themselves.
const fullEnough = 7.0 / 8

// use is how much of the quota is used: the state is the same everywhere, and the smallest
// quota counts.
func (s *clusterState) use() (state, quota int64) {
	for _, x := range s.Members {
		state = max(state, x.State)
		if x.Quota > 0 && (quota == 0 || x.Quota < quota) {
			quota = x.Quota
		}
	}
	return state, quota
}

// quota says what to do if it is used up.
func (r *recovery) quota() {
	raised := r.cluster.alarmed["NOSPACE"]
	state, quota := r.cluster.use()
	if float64(state) <= fullEnough*float64(quota) {
		raised = slices.DeleteFunc(slices.Clone(raised), r.hasFullDisk) // which is another disaster
	}
	if len(raised) == 0 {
		return
	}
	d := newDisaster(cause.QuotaUsedUp, "the quota is used up",
		"alarm NOSPACE, raised by "+r.names(raised)+": puts and grants are refused; reads, renewals, "+
			"deletes and revokes go on",
		fmt.Sprintf("the state has %s, and the smallest quota is %s", siBytes(state), siBytes(quota)))
	d.own("leasehold compaction REVISION  # the newest one: old versions of keys go, no key and no " +
		"lease does; watches that resume from before are told to begin anew")
	d.own("leasehold alarm disarm  # when the state has seven eighths of the quota or less")
	r.roomByHand(d, quota)
	d.act = r.withClient(r.makeRoom)
	r.found = append(r.found, d)
}

// hasFullDisk reports whether a member reports a full disk.
func (r *recovery) hasFullDisk(member uint64) bool {
	return slices.ContainsFunc(r.cluster.Members, func(x *memberState) bool {
		return x.id == member && slices.ContainsFunc(x.reports, func(s selfReport) bool {
			return s.code == cause.DiskFull
		})
	})
}

// roomByHand is what only a person can decide.
func (r *recovery) roomByHand(d *disaster, quota int64) {
	d.on("here", "if that is not enough: leasehold del PREFIX --prefix, "+
		"leasehold lease revoke ID, of what nobody needs")
	d.on("every host, one after the other", "or give the state more room: start the member "+
		"with --quota-backend-bytes=%d, if it has the memory (leasehold doctor)", 2*quota)
}

// makeRoom drops history, and lifts the alarm if that was enough.
func (r *recovery) makeRoom(ctx context.Context, c *clientv3.Client, d *disaster) error {
	got, err := c.Get(ctx, "health", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("find out the revision: %w", err)
	}
	rev := got.Header.GetRevision()
	_, err = c.Compact(ctx, rev, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact at revision %d: %w", rev, err)
	}
	d.did("compacted at revision %d", rev)
	if r.cluster, err = r.lookAtCluster(); err != nil {
		return err
	}
	state, quota := r.cluster.use()
	if quota > 0 && float64(state) > fullEnough*float64(quota) {
		return &exitError{exitFound, fmt.Errorf("the state still has %s of %s: make room, or raise the "+
			"quota, and call recover again", siBytes(state), siBytes(quota))}
	}
	if err := disarm(ctx, c); err != nil {
		return fmt.Errorf("lift the alarm: %w", err)
	}
	d.did("lifted the alarm: the state has %s of %s", siBytes(state), siBytes(quota))
	return nil
}

// disarm lifts the alarms of a full quota, and no others.
func disarm(ctx context.Context, c *clientv3.Client) error {
	list, err := c.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Alarms {
		if m.GetAlarm().String() != "NOSPACE" {
			continue
		}
		if _, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(m)); err != nil {
			return err
		}
	}
	return nil
}

// names are the members with these IDs, for people.
func (r *recovery) names(ids []uint64) string {
	var out []string
	for _, id := range ids {
		name := fmt.Sprintf("%x", id)
		for _, x := range r.cluster.Members {
			if x.id == id {
				name = nameOf(x)
			}
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// differing says what to do if the states of members differ.
func (r *recovery) differing() {
	for _, id := range r.cluster.alarmed["CORRUPT"] {
		i := slices.IndexFunc(r.cluster.Members, func(x *memberState) bool { return x.id == id })
		if i >= 0 && r.cluster.Members[i] == r.own {
			continue // of which the directory has told
		}
		if i >= 0 && r.cluster.Members[i].Error != "" {
			x := r.cluster.Members[i]
			d := newDisaster(cause.StatesDiffer, "the data of a member are damaged",
				"alarm CORRUPT: the state of "+nameOf(x)+" differs from that of the majority, and so it "+
					"has stopped (exit code 8); the cluster serves without it")
			r.toReplace(d, x)
			r.found = append(r.found, d)
			continue
		}
		d := newDisaster(cause.Split, "the states of members differ",
			"alarm CORRUPT, and no majority agrees, so nobody can tell which is right: writes are refused")
		d.on("here", "leasehold endpoint hashkv --cluster  # which members agree")
		for _, x := range r.cluster.Members {
			d.on("here", "leasehold snapshot save %s.backup --endpoints %s  # and leasehold snapshot "+
				"dump, to compare", shellWord(x.Name), x.Endpoint)
		}
		d.on("here", "leasehold member remove ID  # each that is wrong; the alarm goes with it")
		r.found = append(r.found, d)
	}
}

// toReplace says how a member gets its data from the others.
func (r *recovery) toReplace(d *disaster, x *memberState) {
	d.on("the host of "+nameOf(x), "move the data directory away, and keep it")
	d.on("the host of "+nameOf(x), "%s  # with its other flags of before", r.rejoin(x))
}

// silent says what to do about members that do not answer while the others serve.
func (r *recovery) silent() {
	for _, x := range r.cluster.Members {
		if x.Error == "" && x.leader == 0 || knowsNoLeader(x) {
			d := newDisaster(cause.NoLeader, "a member is cut off from the others",
				nameOf(x)+" answers, and knows no leader, while the others serve")
			d.first("from the host of %s the peer URLs of the others (leasehold member list), and its "+
				"own from theirs: network, firewall, certificates; the log of the member says what fails",
				nameOf(x))
			r.found = append(r.found, d)
			continue
		}
		if x.Error == "" || x == r.own || slices.Contains(r.cluster.alarmed["CORRUPT"], x.id) {
			continue
		}
		d := newDisaster(x.Cause, "a member does not answer",
			nameOf(x)+" does not answer: "+x.Error+"; the cluster serves without it")
		d.sayWhy(x)
		d.on("the host of "+nameOf(x), "if its data are there: start it as always, and nothing is lost")
		d.on("the host of "+nameOf(x), "if its disk is lost: %s  # with its other flags of before",
			r.rejoin(x))
		r.found = append(r.found, d)
	}
}
