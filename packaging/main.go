// Command packaging builds Leasehold's release files using only Go tools. The files are static
// binaries, Debian and RPM packages, container images, manual pages, completions, the licenses of
// all code in the binaries, and bills of materials. Two runs on the same sources produce identical
// files.
//
//	go run -C packaging . -version 0.1.0 -out /tmp/dist
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/internal/version"
)

// build is one run of the command.
type build struct {
	root, out, version string
	when               time.Time // timestamp of all files
	targets            []target
}

// target is a platform to build for.
type target struct{ os, arch string }

// binary returns the name of the binary file for a target.
func (b *build) binary(t target) string {
	name := fmt.Sprintf("leasehold-%s-%s", t.os, t.arch)
	if t.os == "windows" {
		name += ".exe" // client only, because serve exits with an error on Windows
	}
	return filepath.Join(b.out, name)
}

var all = []target{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
}

func main() {
	b := &build{root: "..", targets: all}
	only := ""
	flag.StringVar(&b.out, "out", "dist", "the directory to write to")
	flag.StringVar(&b.version, "version", version.Version, "the version of the packages")
	flag.StringVar(&only, "only", "", "build only this target, such as linux/amd64")
	flag.Parse()
	if only != "" {
		goos, arch, _ := strings.Cut(only, "/")
		b.targets = []target{{goos, arch}}
	}
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func (b *build) run() error {
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	if err := b.readTime(); err != nil {
		return err
	}
	docs, err := b.describe()
	if err != nil {
		return err
	}
	for _, t := range b.targets {
		steps := []func(target) error{b.compile, b.bill, b.licences}
		if t.os == "linux" {
			steps = append(steps, func(t target) error { return b.packages(t, docs) }, b.image)
		}
		for _, step := range steps {
			if err := step(t); err != nil {
				return fmt.Errorf("%s/%s: %w", t.os, t.arch, err)
			}
		}
	}
	return b.sums()
}

// readTime sets the time to SOURCE_DATE_EPOCH or, if that is not set, to the time of the latest
// commit.
func (b *build) readTime() error {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.Command("git", "-C", b.root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return fmt.Errorf("cannot read the time of the latest commit; set SOURCE_DATE_EPOCH: %w", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	b.when = time.Unix(seconds, 0).UTC()
	return err
}

// compile builds a static binary that contains nothing specific to this machine.
func (b *build) compile(t target) error {
	out, err := filepath.Abs(b.binary(t))
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace",
		"-ldflags", "-s -w -buildid=", "-o", out, "./cmd/leasehold")
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// sums writes the SHA-256 of each file in the format of sha256sum -c.
func (b *build) sums() error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(b.out)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, e := range entries {
		if e.Name() == name || e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(b.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return cmp.Or(err, os.WriteFile(filepath.Join(b.out, name), lines.Bytes(), 0o644))
}
