package cache_test

import (
	"fmt"
	"testing"

	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
)

// BenchmarkHit is a read that is answered from memory.
func BenchmarkHit(b *testing.B) {
	cl := newCluster(b, 1)
	own := connect(b, cl.endpoints()...)
	c := open(b, own, "k/", cache.Options{})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("k/service-%03d", i)
		put(b, own, keys[i], "some value")
	}
	values(b, c, "k/")
	get := func(b *testing.B, i int) {
		if _, ok, err := c.Get(b.Context(), keys[i%len(keys)]); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			get(b, i)
			i++
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for i := 0; p.Next(); i++ {
				get(b, i)
			}
		})
	})
	b.Run("absent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok, err := c.Get(b.Context(), "k/service-5"); ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
	b.Run("range", func(b *testing.B) {
		p := store.Prefix("k/")
		b.ReportAllocs()
		for b.Loop() {
			if r, err := c.Range(b.Context(), p.Key, p.End); len(r.KVs) != len(keys) || err != nil {
				b.Fatal(len(r.KVs), err)
			}
		}
	})
	b.Run("writes beside", func(b *testing.B) {
		other := connect(b, cl.endpoints()...)
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					put(b, other, fmt.Sprint("k/other", i%100), "some value")
				}
			}
		}()
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			get(b, i)
			i++
		}
		close(stop)
		<-done
	})
	if s := c.Stats(); s.Fills > 100 {
		b.Errorf("%+v", s)
	}
}

// BenchmarkClock is what a reading of the clock costs, which is in each hit.
func BenchmarkClock(b *testing.B) {
	cl := newCluster(b, 1)
	c := open(b, connect(b, cl.endpoints()...), "k/", cache.Options{})
	l := c.Lease()
	for b.Loop() {
		if !l.Valid() {
			b.Fatal("not valid")
		}
	}
}
