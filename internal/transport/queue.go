package transport

// limits are the bounds of a queue.
type limits struct{ count, bytes int }

// These variables are the bounds of the queue to one member. Raft limits its own unanswered
// messages, so these bounds are for other traffic, and in case Raft's limits fail. Without a
// connection, only the newest messages are kept, to be sent when the next connection opens. So a
// vote survives while the member dials, but old heartbeats do not.
var (
	connectedLimits = limits{count: 1 << 14, bytes: 64 << 20}
	idleLimits      = limits{count: 64, bytes: 1 << 20}
)

// A queue holds messages in the order they were pushed. It is not safe for concurrent use.
type queue struct {
	items []queued // the queue begins at head
	head  int
	bytes int
}

type queued struct {
	m    Message
	size int
}

func (q *queue) len() int { return len(q.items) - q.head }

// push appends m and returns true if the queue stays within lim. An empty queue accepts one message
// of any size.
func (q *queue) push(m Message, lim limits) bool {
	size := m.Size()
	if n := q.len(); n > 0 && (n >= lim.count || q.bytes+size > lim.bytes) {
		return false
	}
	q.items = append(q.items, queued{m, size})
	q.bytes += size
	return true
}

// pop removes the first message. The queue must not be empty.
func (q *queue) pop() Message {
	first := q.items[q.head]
	q.items[q.head] = queued{}
	q.head++
	q.bytes -= first.size
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head >= 256 && q.head > len(q.items)/2:
		// Move the items to the front, because a queue that never becomes empty must not grow
		// without bound.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return first.m
}

// take moves messages totaling about size bytes to dst. It moves at least one.
func (q *queue) take(dst []Message, size int) []Message {
	for left := size; q.len() > 0; {
		next := q.items[q.head].size + lengthSize
		if next > left && left < size {
			break
		}
		left -= next
		dst = append(dst, q.pop())
	}
	return dst
}

// trim drops the oldest messages until the queue is within lim, and returns how many it dropped.
// One message of any size can remain.
func (q *queue) trim(lim limits) int {
	before := q.len()
	for q.len() > 1 && (q.len() > lim.count || q.bytes > lim.bytes) {
		q.pop()
	}
	return before - q.len()
}
