package transport

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/metadata"

	"leasehold.dev/test/corpus"
)

// TestCorpus checks that this release reads the beginnings of streams and the frames in a file that
// never changes, and writes them identically. Later releases must read them too, and write them the
// same way.
func TestCorpus(t *testing.T) {
	h := hello{cluster: 1 << 60, from: 2, to: 3, instance: instance{process: 4, incarnation: 5}}
	if got, err := parseHello(h.String()); err != nil || got != h {
		t.Errorf("%q is read as %+v, %v", h.String(), got, err)
	}
	formats := Formats{Oldest: 1, Newest: 2}
	if got, err := parseFormats(formats.wire()); err != nil || got != formats {
		t.Errorf("%q is read as %v, %v", formats.wire(), got, err)
	}
	a := answer{instance: instance{process: 4, incarnation: 5}, format: 2}
	if got, ok := readAnswer(a.header()); !ok || got != a {
		t.Errorf("%v is read as %+v", a.header(), got)
	}
	text := func(md metadata.MD, key string) []byte { return []byte(md.Get(key)[0]) }
	out, _ := metadata.FromOutgoingContext(hello{
		instance: h.instance, formats: formats, version: 1, decided: 300, mark: 1 << 40,
	}.context(t.Context(), []string{"http://a:1"}))
	records := []corpus.Record{
		{Name: keyHello, Bytes: []byte(h.String())},
		{Name: keyProcess, Bytes: text(a.header(), keyProcess)},
		{Name: keyFormat, Bytes: text(a.header(), keyFormat)},
	}
	for _, key := range []string{keyFormats, keyVersion, keyURL, keyMark} {
		records = append(records, corpus.Record{Name: key, Bytes: text(out, key)})
	}
	for _, messages := range [][]string{{}, {""}, {"one"}, {"one", "", "three"}} {
		b := newFrame(1, 0)
		for _, m := range messages {
			b.add(bytesMessage(m))
		}
		frame := b.seal().data
		got, err := split(frame)
		if err != nil || fmt.Sprintf("%s", got) != fmt.Sprintf("%s", messages) {
			t.Errorf("%x is read as %q, %v", frame, got, err)
		}
		records = append(records, corpus.Record{Name: fmt.Sprintf("frame of %q", messages), Bytes: frame})
	}
	corpus.Check(t, "testdata/v1/streams.txt", records)
}

// TestTrailingDataRefused checks that extra data after the start of a stream is an error, because a
// newer release could have written it.
func TestTrailingDataRefused(t *testing.T) {
	for _, more := range []string{" 7", "7x", " x", ".", " ."} {
		if h, err := parseHello("1 2 3 4 5" + more); err == nil {
			t.Errorf("hello with %q is read as %+v", more, h)
		}
		if f, err := parseFormats("1 2" + more); err == nil {
			t.Errorf("formats with %q are read as %v", more, f)
		}
		var h hello
		if err := h.readVersion(metadata.MD{keyVersion: {"1 300" + more}}); err == nil {
			t.Errorf("a version with %q is read as %+v", more, h)
		}
		md := answer{instance: instance{process: 4, incarnation: 5}, format: 2}.header()
		md.Set(keyFormat, "2"+more)
		if a, ok := readAnswer(md); ok {
			t.Errorf("an answer with %q is read as %+v", more, a)
		}
	}
	if _, err := split([]byte{2, 0, 0, 0, 0}); !errors.Is(err, errCorrupt) {
		t.Errorf("a frame of another format: %v", err)
	}
}
