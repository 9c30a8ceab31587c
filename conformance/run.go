package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// run executes one case with the drivers of one language.
type run struct {
	*testCase
	ctx     context.Context
	cluster *cluster
	clients map[string]*client
	vars    variables
	later   map[string]<-chan *answer
}

// client is a driver used in a case, with its proxies.
type client struct {
	*driver
	command []string // command that starts the driver
	proxies map[*member]*proxy
	stopped bool
}

// play runs the steps of the case.
func (r *run) play() error {
	for name, with := range r.Clients {
		if with["idle"] == nil {
			if err := r.connect(name, with); err != nil {
				return fmt.Errorf("connect %s: %w", name, err)
			}
		}
	}
	for i, s := range r.Steps {
		if err := r.step(s); err != nil {
			return fmt.Errorf("step %d %s: %w", i+1, brief(s), err)
		}
	}
	return nil
}

func brief(s args) string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// connect makes a driver connect through its proxies.
func (r *run) connect(name string, with args) error {
	c := r.clients[name]
	a := args{}
	for key, value := range with {
		a[key] = value
	}
	scheme := "http://"
	if r.cluster.given.TLS {
		scheme = "https://"
		a["ca"] = r.cluster.cert.CertFile
	}
	var list []string
	for _, m := range r.cluster.targets() {
		if old := c.proxies[m]; old != nil {
			old.close()
		}
		p, err := newProxy(m.addr)
		if err != nil {
			return err
		}
		c.proxies[m] = p
		list = append(list, scheme+p.addr())
	}
	a["endpoints"] = list
	answer, err := c.send("connect", a)
	if err != nil {
		return err
	}
	return r.judge(args{}, answer)
}

func (r *run) step(s args) error {
	expanded, err := r.vars.expandFields(s)
	if err != nil {
		return err
	}
	s = expanded
	switch {
	case s["do"] != nil:
		return r.do(s)
	case s["await"] != nil:
		c := r.later[s.text("await")]
		if c == nil {
			return fmt.Errorf("no pending answer is named %s", s.text("await"))
		}
		return r.judge(s, c)
	case s["pending"] != nil:
		return r.pending(s)
	case s["sleep"] != nil:
		time.Sleep(s.ms("sleep", 0))
		return nil
	case s["compare"] != nil:
		if d := match(s["want"], s["compare"]); d != "" {
			return fmt.Errorf("it %s", d)
		}
		return nil
	case s["cluster"] != nil:
		return r.admin(s)
	default:
		return r.fault(s)
	}
}

// ms returns an argument in milliseconds as a duration.
func (a args) ms(key string, otherwise int) time.Duration {
	n := otherwise
	if text := a.text(key); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			panic(err)
		}
	}
	return time.Duration(n) * time.Millisecond
}

func (r *run) do(s args) error {
	name, op, _ := strings.Cut(s.text("do"), ".")
	c := r.clients[name]
	if c.stopped {
		return fmt.Errorf("%s is stopped", name)
	}
	if op == "connect" {
		return r.connect(name, s)
	}
	a := args{}
	for key, value := range s {
		if !slices.Contains(ownKeys, key) {
			a[key] = value
		}
	}
	answer, err := c.send(op, a)
	if err != nil {
		return err
	}
	if later := s.text("later"); later != "" {
		r.later[later] = answer
		return nil
	}
	return r.judge(s, answer)
}

// judge waits for an answer and compares it with the expected answer.
func (r *run) judge(s args, c <-chan *answer) error {
	var a *answer
	limit := s.ms("within_ms", int(patience.Milliseconds()))
	select {
	case a = <-c:
	case <-time.After(limit):
		return fmt.Errorf("no answer within %v", limit)
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	codes := s.list("error")
	switch {
	case a.Error != nil && !slices.Contains(codes, a.Error.Code):
		return a.Error
	case a.Error == nil && len(codes) > 0 && !slices.Contains(codes, "NONE"):
		return fmt.Errorf("got no error, want %v; the answer is %v", codes, a.OK)
	}
	if text := s.text("text"); text != "" && a.Error != nil {
		if ok, err := regexp.MatchString(text, a.Error.Message); err != nil || !ok {
			return fmt.Errorf("got error %q, want %q", a.Error.Message, text)
		}
	}
	if want, ok := s["want"]; ok && a.Error == nil {
		if d := match(want, a.OK); d != "" {
			return fmt.Errorf("the answer %s; it is %v", d, a.OK)
		}
	}
	if s["save"] != nil && a.Error == nil {
		return r.vars.save(s["save"], a.OK)
	}
	return nil
}

// pending checks that no answer arrives within a short time.
func (r *run) pending(s args) error {
	name := s.text("pending")
	select {
	case a := <-r.later[name]:
		return fmt.Errorf("%s should be pending, but was answered: %v %v", name, a.OK, a.Error)
	case <-time.After(s.ms("for_ms", 200)):
		return nil
	}
}

// admin performs a step on the cluster itself.
func (r *run) admin(s args) error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	admin := r.cluster.admin
	var err error
	switch what := s.text("cluster"); what {
	case "compact":
		var revision int64
		if _, err := fmt.Sscan(s.text("revision"), &revision); err != nil {
			return err
		}
		_, err = admin.Compact(ctx, revision)
	case "delete":
		_, err = admin.Delete(ctx, s.text("key"))
	case "withdraw":
		_, err = admin.UserRevokeRole(ctx, s.text("user"), s.text("role"))
	case "permit":
		_, err = admin.UserGrantRole(ctx, s.text("user"), s.text("role"))
	case "password":
		_, err = admin.UserChangePassword(ctx, s.text("user"), s.text("password"))
	case "login":
		var a *clientv3.AuthenticateResponse
		if a, err = admin.Authenticate(ctx, s.text("user"), s.text("password")); err == nil {
			r.vars["token"] = a.Token
		}
	case "ready":
		err = r.cluster.ready(ctx)
	default:
		err = fmt.Errorf("unknown cluster operation %s", what)
	}
	return err
}

// fault injects a fault into processes or links. If no client is given, it affects members.
func (r *run) fault(s args) error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	kind := s.text("fault")
	if kind == "heal" {
		for _, c := range r.clients {
			for _, p := range c.proxies {
				p.set(func() { p.cut, p.ways = false, [2]direction{} })
			}
		}
		return nil
	}
	if name := s.text("client"); name != "" {
		return r.clientFault(ctx, kind, s)
	}
	members, err := r.cluster.choose(ctx, s.text("member"))
	for _, m := range members {
		if err == nil {
			err = r.memberFault(kind, m)
		}
	}
	return err
}

func (r *run) memberFault(kind string, m *member) error {
	switch kind {
	case "kill":
		err := m.Signal(syscall.SIGKILL)
		<-m.Done()
		return err
	case "stop":
		return m.Signal(syscall.SIGSTOP)
	case "cont":
		return m.Signal(syscall.SIGCONT)
	case "start":
		if !m.Ended() {
			return nil
		}
		return m.start(r.cluster.binary)
	}
	return fmt.Errorf("unknown fault %q", kind)
}

func (r *run) clientFault(ctx context.Context, kind string, s args) error {
	c := r.clients[s.text("client")]
	switch kind {
	case "stop":
		c.stopped = true
		return c.signal(syscall.SIGSTOP)
	case "cont":
		c.stopped = false
		return c.signal(syscall.SIGCONT)
	case "kill":
		c.kill()
		return nil
	}
	members, err := r.cluster.choose(ctx, s.text("member"))
	if err != nil {
		return err
	}
	directions := map[string][]int{"up": {up}, "down": {down}, "": {up, down}}[s.text("way")]
	for _, m := range members {
		p := c.proxies[m]
		switch kind {
		case "cut":
			p.set(func() { p.cut = true })
		case "break": // new connections are allowed
			p.set(func() { p.cut = true })
			p.set(func() { p.cut = false })
		case "hold", "delay":
			p.set(func() {
				for _, d := range directions {
					p.ways[d] = direction{delay: s.ms("ms", 0), hold: kind == "hold"}
				}
			})
		default:
			return fmt.Errorf("unknown link fault %q", kind)
		}
	}
	return nil
}

// decodeNumbers decodes an answer and preserves the notation of numbers.
func decodeNumbers(line []byte, a *answer) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	return d.Decode(a)
}
