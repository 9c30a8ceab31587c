package transport

import "testing"

// BenchmarkRoundTrip is the time of one small message there and one back, alone,
// as between a leader and a follower when one client writes.
func BenchmarkRoundTrip(b *testing.B) {
	m, other := pair(b, options{})
	other.echo.Store(other.Transport)
	message := bytesMessage(make([]byte, 100))
	b.ReportAllocs()
	for b.Loop() {
		m.Send(2, message)
		<-m.got
	}
}

// BenchmarkThroughput is the time a message when there are always many.
func BenchmarkThroughput(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"100B", 100}, {"4KiB", 4 << 10}, {"1MiB", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			m, other := pair(b, options{})
			message := bytesMessage(make([]byte, c.size))
			const window = 32 // as many as are never dropped
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			sent := 0
			for b.Loop() {
				m.Send(2, message)
				if sent++; sent > window {
					<-other.got
				}
			}
			for range min(sent, window) {
				<-other.got
			}
		})
	}
}
