package lease_test

import (
	"errors"
	"fmt"

	"leasehold.dev/lease"
)

// Example is the classic lessor test: a 5 s lease with the key "foo" is not renewed, so the key is
// deleted with the lease.
func Example() {
	l := lease.New(lease.Config{})
	l.Promote(0) // the only member is the primary

	info, err := l.Grant(lease.Terms{ID: 1, TTL: 5000})
	if err != nil {
		panic(err)
	}
	if err := l.Attach(info.ID, "foo"); err != nil {
		panic(err)
	}
	fmt.Println("foo is attached to lease", l.LeaseOf("foo"))

	// The program owns the clock. It waits until there might be something to do, collects the
	// decisions, and feeds them back.
	for l.Len() > 0 {
		now, _ := l.Next() // a program would sleep until then
		l.Advance(now)
		for _, due := range l.Due(100) {
			ended, ok := l.Expire(due)
			fmt.Printf("at %d ms lease %d is gone (%v) with %v\n", now, due.ID, ok, ended.Keys)
		}
		for _, c := range l.Silent(100) {
			fmt.Printf("at %d ms lease %d is silent, %d ms remain\n", now, c.ID, c.Remaining)
			l.Checkpoint([]lease.Checkpoint{c})
		}
	}
	fmt.Println("foo is attached to lease", l.LeaseOf("foo"))

	// Output:
	// foo is attached to lease 1
	// at 2001 ms lease 1 is silent, 3000 ms remain
	// at 4002 ms lease 1 is silent, 999 ms remain
	// at 5001 ms lease 1 is gone (true) with [foo]
	// foo is attached to lease 0
}

// A renewal restores the full TTL until the lease's expiry has been decided.
func ExampleLessor_Renew() {
	l := lease.New(lease.Config{})
	l.Promote(0)
	l.Grant(lease.Terms{ID: 1, TTL: 1000})

	l.Advance(400)
	renewal, err := l.Renew(1, 0)
	fmt.Println(renewal.TTL, err)

	l.Advance(1401)
	due := l.Due(100)
	_, err = l.Renew(1, 0)
	fmt.Println(err)

	l.Expire(due[0])
	_, err = l.Renew(1, 0)
	fmt.Println(err)

	// Output:
	// 1000 <nil>
	// lease: expiring
	// lease: not found
}

// At most one lease holds a name, and its token fences off former holders.
func ExampleLessor_Grant() {
	l := lease.New(lease.Config{})
	first, _ := l.Grant(lease.Terms{ID: 1, TTL: 1000, Name: "server1", Owner: "alice"})

	_, err := l.Grant(lease.Terms{ID: 2, TTL: 1000, Name: "server1", Owner: "bob"})
	fmt.Println(err)

	l.Revoke(1)
	second, err := l.Grant(lease.Terms{ID: 2, TTL: 1000, Name: "server1", Owner: "bob"})
	fmt.Println(second.Token > first.Token, err)

	// Output:
	// lease: name "server1" is held by lease 0000000000000001 of owner "alice"
	// true <nil>
}

// A View can be read while the Lessor continues, and another Lessor can recover from it.
func ExampleView() {
	l := lease.New(lease.Config{})
	l.Grant(lease.Terms{ID: 2, TTL: 2000})
	l.Grant(lease.Terms{ID: 1, TTL: 1000})
	view := l.View()
	l.Revoke(1)

	state := view.State()
	for info := range view.All() {
		fmt.Println(info.ID, info.TTL)
		state.Add(&info)
	}

	other := lease.New(lease.Config{})
	err := other.Recover(state)
	fmt.Println(l.Len(), other.Len(), err)

	// Output:
	// 1 1000
	// 2 2000
	// 1 2 <nil>
}

// A holder that is about to stop hands its lease over to the next holder. The name is never free in
// between, and only the new token is valid afterwards.
func ExampleLessor_HandOver() {
	l := lease.New(lease.Config{})
	l.Promote(0)
	old, _ := l.Grant(lease.Terms{ID: 1, TTL: 1000, Name: "primary", Owner: "a"})

	info, err := l.HandOver(1, old.Token, lease.Terms{Owner: "b", Secret: lease.Secret{}})
	fmt.Println(info.Name, "belongs to", info.Owner, info.Token > old.Token, err)

	_, err = l.Renew(1, old.Token)
	fmt.Println(err)
	renewal, err := l.Renew(1, info.Token)
	fmt.Println(renewal.TTL, err)

	// Output:
	// primary belongs to b true <nil>
	// lease: not found
	// 1000 <nil>
}

// One call renews all leases of a group, however many there are. Lease 2 was revoked and lease 3
// has left the group, so the call does not renew them.
func ExampleLessor_RenewGroup() {
	l := lease.New(lease.Config{})
	l.Promote(0)
	g := lease.GroupID(1)
	l.OpenGroup(g, 1000)
	for id := range lease.ID(3) {
		l.Grant(lease.Terms{ID: id + 1, TTL: 1000})
		l.Join(g, id+1, 0)
	}
	l.Revoke(2)
	l.Leave(g, 3, lease.LastRenewal)

	l.Advance(300)
	l.RenewGroup(g)
	left, ok := l.Left(g)
	fmt.Println(left, ok)
	for id := range lease.ID(3) {
		fmt.Println(l.Remaining(id + 1))
	}

	// Output:
	// [2] true
	// 1000 true
	// 0 false
	// 700 true
}

// With a lock delay, the name of an expired lease stays reserved for a while.
func ExampleTerms_lockDelay() {
	l := lease.New(lease.Config{})
	l.Promote(0)
	l.Grant(lease.Terms{ID: 1, TTL: 1000, Name: "disk", LockDelay: 500})

	for _, now := range []lease.Instant{1001, 1502} {
		l.Advance(now)
		for _, due := range l.Due(100) {
			ended, _ := l.Expire(due)
			fmt.Printf("at %d ms lease %d is gone: %v\n", now, due.ID, ended.Gone)
		}
		_, err := l.Grant(lease.Terms{ID: 2, TTL: 1000, Name: "disk"})
		fmt.Println(err)
	}

	// Output:
	// at 1001 ms lease 1 is gone: false
	// lease: name "disk" is under a lock delay of 500 ms because lease 0000000000000001 expired
	// at 1502 ms lease 1 is gone: true
	// <nil>
}

// Errors report who holds a name, which bound a TTL violates, and which lease is full.
func ExampleNameError() {
	l := lease.New(lease.Config{MinTTL: 100, MaxKeys: 1})
	l.Grant(lease.Terms{ID: 1, TTL: 1000, Name: "server1", Owner: "alice"})

	_, err := l.Grant(lease.Terms{ID: 2, TTL: 1000, Name: "server1"})
	var taken *lease.NameError
	if errors.As(err, &taken) {
		fmt.Println("held by", taken.Holder.Owner)
	}
	_, err = l.Grant(lease.Terms{ID: 2, TTL: 10})
	var bounds *lease.TTLError
	if errors.As(err, &bounds) {
		fmt.Println("at least", bounds.Min, "ms")
	}
	l.Attach(1, "a")
	err = l.Attach(1, "b")
	var full *lease.KeyLimitError
	if errors.As(err, &full) {
		fmt.Println("at most", full.Limit, "key")
	}

	// Output:
	// held by alice
	// at least 100 ms
	// at most 1 key
}
