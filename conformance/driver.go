package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"leasehold.dev/test/process"
)

// failure is an error reported by a client.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

// answer is a line written by a driver.
type answer struct {
	ID    int      `json:"id"`
	OK    any      `json:"ok"`
	Error *failure `json:"error"`
}

// driver is a process that runs a client.
type driver struct {
	cmd *exec.Cmd

	mu    sync.Mutex // guards writes and the following fields
	in    io.WriteCloser
	last  int
	open  map[int]chan *answer
	ended error
}

// startDriver starts a driver.
func startDriver(command []string) (*driver, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = process.EndWithUs()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &driver{cmd: cmd, in: in, open: map[int]chan *answer{}}
	go d.read(out)
	return d, nil
}

func (d *driver) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		a := new(answer)
		if err == nil {
			err = decodeNumbers(line, a)
		}
		if err != nil {
			d.end(fmt.Errorf("the driver exited: %w", err))
			return
		}
		d.mu.Lock()
		c := d.open[a.ID]
		delete(d.open, a.ID)
		d.mu.Unlock()
		if c != nil {
			c <- a
		}
	}
}

// end fails all requests that are waiting for an answer.
func (d *driver) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = err
	for id, c := range d.open {
		delete(d.open, id)
		c <- &answer{Error: &failure{"DRIVER", err.Error()}}
	}
}

// send sends a request and returns a channel for the answer.
func (d *driver) send(op string, a args) (<-chan *answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended != nil {
		return nil, d.ended
	}
	d.last++
	line, err := json.Marshal(map[string]any{"id": d.last, "op": op, "args": a})
	if err != nil {
		return nil, err
	}
	c := make(chan *answer, 1)
	d.open[d.last] = c
	_, err = d.in.Write(append(line, '\n'))
	return c, err
}

func (d *driver) signal(s syscall.Signal) error { return d.cmd.Process.Signal(s) }

// kill ends the process.
func (d *driver) kill() {
	if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(err)
	}
	_ = d.cmd.Wait() // fails because the process was killed
}
