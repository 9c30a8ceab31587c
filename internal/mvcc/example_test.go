package mvcc_test

import (
	"errors"
	"fmt"

	"leasehold.dev/internal/mvcc"
)

// A store has one revision for each transaction. Every revision can be read.
func ExampleStore() {
	s := mvcc.New()
	for _, value := range []string{"one", "two"} {
		tx := s.Begin()
		tx.Put("greeting", []byte(value), 0)
		rev, _ := tx.End()
		fmt.Println("revision", rev)
	}
	past, _ := s.View().Range("greeting", "", mvcc.RangeOptions{Revision: 2})
	fmt.Printf("then %s, now %s\n", past.KVs[0].Value, s.Get("greeting").Value)
	// Output:
	// revision 2
	// revision 3
	// then one, now two
}

// All changes in a transaction share its revision, and the transaction sees them immediately.
func ExampleTxn() {
	s := mvcc.New()
	tx := s.Begin()
	tx.Put("a", []byte("1"), 0)
	tx.Put("b", []byte("2"), 0)
	tx.DeleteRange("a", "")
	fmt.Println("a is there:", tx.Get("a") != nil)
	rev, events := tx.End()
	for _, ev := range events {
		fmt.Printf("%d.%d %s deleted: %v\n", rev, ev.Sub, ev.KV.Key, ev.Delete)
	}
	// Output:
	// a is there: false
	// 2.0 a deleted: false
	// 2.1 b deleted: false
	// 2.2 a deleted: true
}

// A view does not change when the store does.
func ExampleView() {
	s := mvcc.New()
	put := func(key, value string) {
		tx := s.Begin()
		tx.Put(key, []byte(value), 0)
		tx.End()
	}
	put("a", "1")
	put("b", "1")
	v := s.View()
	put("a", "2")
	_ = s.Compact(s.Revision())
	for s.Scrub(1000) {
	}
	for kv := range v.Ascend("a", "\x00", 0) {
		fmt.Printf("%s=%s\n", kv.Key, kv.Value)
	}
	_, err := s.View().Range("a", "", mvcc.RangeOptions{Revision: v.Revision()})
	fmt.Println(errors.Is(err, mvcc.ErrCompacted))
	// Output:
	// a=1
	// b=1
	// true
}

// Events are read in batches of whole revisions.
func ExampleView_Events() {
	s := mvcc.New()
	for i := range 5 {
		tx := s.Begin()
		tx.Put("counter", fmt.Append(nil, i), 0)
		tx.End()
	}
	v := s.View()
	for from := int64(2); from <= v.Revision(); {
		events, next, err := v.Events(from, 2)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, ev := range events {
			fmt.Printf("%s ", ev.KV.Value)
		}
		fmt.Println("next", next)
		from = next
	}
	// Output:
	// 0 1 next 4
	// 2 3 next 6
	// 4 next 7
}

// A snapshot is a list of records. A store restored from them has the same hash.
func ExampleRestore() {
	s := mvcc.New()
	tx := s.Begin()
	tx.Put("a", []byte("1"), 0)
	tx.End()
	v := s.View()
	restored, err := mvcc.Restore(v.Revision(), v.Compacted(), v.Records())
	if err != nil {
		fmt.Println(err)
		return
	}
	want, _, _ := v.Hash(0)
	got, _, _ := restored.View().Hash(0)
	fmt.Println(restored.Revision(), got == want)
	// Output: 2 true
}
