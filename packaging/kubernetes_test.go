package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	strict "sigs.k8s.io/yaml"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
)

// pods stands in for Kubernetes and runs the containers of the manifests. Each pod is a process
// with the arguments and environment of its container, its own address, and a directory as its
// volume.
type pods struct {
	t      *testing.T
	binary string
	dir    string
	set    corev1.Container
	found  corev1.Container
	byName map[string]*process.Process
}

func newPods(t *testing.T) *pods {
	t.Helper()
	dir := t.TempDir()
	binary, err := process.Build(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	set := decode[appsv1.StatefulSet](t, "kubernetes/base/statefulset.yaml")
	job := decode[batchv1.Job](t, "kubernetes/found/job.yaml")
	return &pods{
		t: t, binary: binary, dir: dir, set: set.Spec.Template.Spec.Containers[0],
		found: job.Spec.Template.Spec.Containers[0], byName: map[string]*process.Process{},
	}
}

func decode[T any](t *testing.T, path string) (out T) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := strict.UnmarshalStrict(text, &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

var (
	reference = regexp.MustCompile(`\$\((\w+)\)`)
	podName   = regexp.MustCompile(`leasehold-(\d)\.leasehold-peers`)
)

func address(ordinal string) string { return "127.0.40.1" + ordinal }

// command returns the command that runs a container in the pod with the given ordinal.
func (p *pods) command(c corev1.Container, ordinal int) *exec.Cmd {
	values := map[string]string{}
	var env []string
	for _, e := range c.Env {
		v := e.Value
		if e.ValueFrom != nil { // the reference is to metadata.name
			v = fmt.Sprintf("leasehold-%d", ordinal)
		}
		v = reference.ReplaceAllStringFunc(v, func(r string) string { return values[r[2:len(r)-1]] })
		values[e.Name] = v
		v = podName.ReplaceAllStringFunc(v, func(n string) string { return address(n[len("leasehold-"):][:1]) })
		v = strings.ReplaceAll(v, "0.0.0.0", address(fmt.Sprint(ordinal)))
		v = strings.ReplaceAll(v, "//leasehold:", "//"+address("0")+":")
		v = strings.ReplaceAll(v, "/var/lib/leasehold", p.volume(ordinal))
		env = append(env, e.Name+"="+v)
	}
	cmd := exec.Command(p.binary, c.Args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func (p *pods) volume(ordinal int) string {
	return filepath.Join(p.dir, fmt.Sprint("volume-", ordinal))
}

// start starts the pod with the given ordinal.
func (p *pods) start(ordinal int) {
	p.t.Helper()
	if err := os.MkdirAll(p.volume(ordinal), 0o700); err != nil {
		p.t.Fatal(err)
	}
	log := filepath.Join(p.dir, fmt.Sprint("log-", ordinal))
	run, err := process.Start(p.command(p.set, ordinal), log, "")
	if err != nil {
		p.t.Fatal(err)
	}
	p.byName[fmt.Sprint(ordinal)] = run
	p.t.Cleanup(func() {
		_ = run.Signal(syscall.SIGKILL)
		_ = run.Wait()
		if p.t.Failed() {
			p.t.Logf("pod %d:\n%s", ordinal, run.Tail())
		}
	})
}

// ctl runs a command in a pod until it succeeds, and returns its output.
func (p *pods) ctl(ordinal int, args ...string) (out string) {
	p.t.Helper()
	harness.Eventually(p.t, strings.Join(args, " "), func() error {
		var stderr bytes.Buffer
		cmd := exec.Command(p.binary, append([]string{"--endpoints", address(fmt.Sprint(ordinal)) + ":2379"}, args...)...)
		cmd.Stderr = &stderr
		b, err := cmd.Output()
		if out = string(b); err != nil {
			return fmt.Errorf("%w: %s", err, stderr.String())
		}
		return nil
	})
	return out
}

// voters waits until the cluster has n started voters.
func (p *pods) voters(n int) {
	p.t.Helper()
	harness.Eventually(p.t, fmt.Sprint(n, " voters"), func() error {
		list := p.ctl(0, "member", "list")
		if strings.Count(list, "started") != n || strings.Count(list, ", false") != n {
			return errors.New(list)
		}
		return nil
	})
}

// TestKubernetes follows docs/install.md, but with processes: it founds a cluster, starts three
// pods, replaces one that lost its volume, and scales to five. Without the job, no pod founds a
// cluster.
func TestKubernetes(t *testing.T) {
	p := newPods(t)
	p.start(0)
	p.start(1)
	p.start(2)
	for i := range 3 {
		harness.Eventually(t, "the pod waits for a cluster", func() error {
			if log := p.byName[fmt.Sprint(i)].Tail(); !strings.Contains(log, "waiting to join") {
				return errors.New(log)
			}
			return nil
		})
	}
	_ = p.byName["0"].Signal(syscall.SIGKILL) // only one process at a time can mount the volume
	_ = p.byName["0"].Wait()
	if out, err := p.command(p.found, 0).CombinedOutput(); err != nil {
		t.Fatalf("the job: %v\n%s", err, out)
	}
	if out, err := p.command(p.found, 0).CombinedOutput(); err == nil {
		t.Errorf("the job founds a second cluster in the same volume:\n%s", out)
	}
	p.start(0)
	p.voters(3)
	p.ctl(1, "put", "a", "kept")

	// Pod 2 loses its volume.
	_ = p.byName["2"].Signal(syscall.SIGKILL)
	_ = p.byName["2"].Wait()
	if err := os.RemoveAll(p.volume(2)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(p.ctl(0, "member", "list")) {
		if id, rest, _ := strings.Cut(line, ", "); strings.Contains(rest, "leasehold-2") {
			p.ctl(0, "member", "remove", id)
		}
	}
	p.start(2)
	p.voters(3)
	if got := p.ctl(2, "get", "a", "--print-value-only"); got != "kept\n" {
		t.Errorf("the replaced member has %q", got)
	}

	p.start(3)
	p.start(4)
	p.voters(5)
}
