package audit

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestReset checks that a reused entry keeps no data from the previous call.
func TestReset(t *testing.T) {
	var e Entry
	for _, f := range reflect.ValueOf(&e).Elem().Fields() {
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint64:
			f.SetUint(1)
		}
	}
	e.Time = e.Time.Add(1)
	e.AddKey([]byte("a"), []byte("b"))
	for _, f := range reflect.ValueOf(e).Fields() {
		if f.IsZero() {
			t.Fatalf("%v is not set: %+v", f.Type(), e)
		}
	}
	keys := e.Keys
	e.Reset()
	if len(e.Keys) != 0 || keys[0] != (Range{}) {
		t.Errorf("%d keys are left, and of the first %+v", len(e.Keys), keys[0])
	}
	if e.Keys = nil; !reflect.DeepEqual(e, Entry{}) {
		t.Errorf("left is %+v", e)
	}
}

// busyDisk lets a test record entries during each write.
type busyDisk struct {
	disk
	meanwhile func()
}

// Write implements io.Writer.
func (d *busyDisk) Write(b []byte) (int, error) {
	d.meanwhile()
	return d.disk.Write(b)
}

// TestMemoryOfBatches checks that the memory of a batch is reused only after the batch is written.
func TestMemoryOfBatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	l := newLog(t, nil, false)
	made := uint64(0)
	several := func() {
		for range []int{1, 20, 2000}[rng.IntN(3)] {
			made++
			e := Entry{Event: "call", Seq: made, Detail: Text(strings.Repeat("x", rng.IntN(maxText)))}
			if err := l.Record(&e); err != nil {
				t.Error(err)
			}
		}
	}
	writes, last := 50, make(chan struct{})
	d := &busyDisk{disk: disk{room: 1 << 30}, meanwhile: func() {
		if writes--; writes > 0 {
			several()
		} else {
			close(last)
		}
	}}
	l.to = d
	several()
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	<-last
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	found := uint64(0)
	for line := range bytes.Lines(d.data.Bytes()) {
		var r struct{ Seq uint64 }
		if err := json.Unmarshal(line, &r); err != nil || r.Seq != found+1 {
			t.Fatalf("after record %d: %q, %v", found, line, err)
		}
		found++
	}
	if found != made {
		t.Errorf("%d records are written of %d", found, made)
	}
}
