package direct

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// poller waits for the connections of all streams that rest. It has an epoll of its own, and Go's
// poller waits for that as for any file: one goroutine waits, and no thread.
//
// A connection is known by a number that no other ever has. The kernel forgets a file that is
// closed, and an event that was on its way has the number of a stream that is there no more: what
// has the same file descriptor next is never taken for it.
type poller struct {
	answers answers
	file    *os.File
	raw     syscall.RawConn
	events  [64]syscall.EpollEvent
	wg      sync.WaitGroup

	mu    sync.Mutex // guards what follows
	rests map[uint64]*Rest
	last  uint64
}

// newPoller returns a poller that runs until it is closed.
func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that os watches it
		return nil, errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(fd))
	}
	p := &poller{
		file: os.NewFile(uintptr(fd), "epoll"), rests: make(map[uint64]*Rest), answers: newAnswers(),
	}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	p.wg.Go(p.run)
	p.wg.Go(p.answers.run)
	return p, nil
}

// close ends the poller. No stream may rest, or begin to, any more.
func (p *poller) close() {
	_ = p.file.Close() // wakes run
	p.answers.close()
	p.wg.Wait()
}

// Where many streams rest, one has something to say at nearly any time. To wait a moment then for
// what others say saves most of the wake-ups of threads, which are most of what a renewal costs.
const (
	many  = 256
	pause = 4 * time.Millisecond
)

// run tells streams that there is something to read.
func (p *poller) run() {
	n := 0
	try := func(fd uintptr) bool {
		n, _ = syscall.EpollWait(int(fd), p.events[:], 0)
		return n > 0
	}
	for p.raw.Read(try) == nil {
		rest := 0
		for i := range p.events[:n] {
			e := &p.events[i]
			p.mu.Lock()
			r := p.rests[uint64(uint32(e.Fd))|uint64(uint32(e.Pad))<<32]
			rest = len(p.rests)
			p.mu.Unlock()
			if r != nil {
				r.readable(e.Events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0)
			}
		}
		if n < len(p.events) && rest >= many {
			time.Sleep(pause)
		}
	}
}

// edge is EPOLLET, which syscall has as a negative number.
const edge = 1 << 31

// add lets a stream be told when there is something to read, or is already.
func (p *poller) add(r *Rest) error {
	p.mu.Lock()
	if r.id == 0 {
		p.last++
		r.id = p.last
	}
	p.rests[r.id] = r
	p.mu.Unlock()
	return p.control(r, syscall.EPOLL_CTL_ADD, syscall.EPOLLIN|syscall.EPOLLRDHUP|edge)
}

// remove lets a stream not be told any more.
func (p *poller) remove(r *Rest) {
	p.mu.Lock()
	delete(p.rests, r.id)
	p.mu.Unlock()
	_ = p.control(r, syscall.EPOLL_CTL_DEL, 0) // if it is closed, the kernel has forgotten it
}

func (p *poller) control(r *Rest, op int, events uint32) error {
	var err, fail error
	e := syscall.EpollEvent{Events: events, Fd: int32(r.id), Pad: int32(r.id >> 32)}
	outer := p.raw.Control(func(epoll uintptr) {
		err = r.socket.raw.Control(func(fd uintptr) {
			fail = os.NewSyscallError("epoll_ctl", syscall.EpollCtl(int(epoll), op, int(fd), &e))
		})
	})
	return errors.Join(outer, err, fail)
}
