package main

import (
	"bytes"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2/files"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"leasehold.dev/internal/cli"
	"leasehold.dev/internal/serve"
)

// describe writes the manual and the completions, which are generated from the commands. It returns
// their entries for a package.
func (b *build) describe() (files.Contents, error) {
	root := cli.Commands(serve.Command(), serve.RelayCommand(), serve.InitCommand(),
		serve.DevCommand(), serve.ConfigCommand(), serve.SnapshotCommand(), serve.LogCommand())
	root.DisableAutoGenTag = true // the tag contains the time
	describeFlags(root)
	made := make(map[string]string) // maps paths in a package to files in b.out
	man := filepath.Join(b.out, "man")
	for _, dir := range []string{man, filepath.Join(b.out, "completions")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	err := doc.GenManTree(root, &doc.GenManHeader{
		Title: "LEASEHOLD", Section: "1", Source: "Leasehold " + b.version, Date: &b.when,
	}, man)
	if err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		made[path.Join("/usr/share/man/man1", p.Name())] = filepath.Join(man, p.Name())
	}
	for _, c := range []struct {
		shell, at string
		write     func(*bytes.Buffer) error
	}{
		{"bash", "/usr/share/bash-completion/completions/leasehold", func(w *bytes.Buffer) error {
			return root.GenBashCompletionV2(w, true)
		}},
		{"zsh", "/usr/share/zsh/vendor-completions/_leasehold", func(w *bytes.Buffer) error {
			return root.GenZshCompletion(w)
		}},
		{"fish", "/usr/share/fish/vendor_completions.d/leasehold.fish", func(w *bytes.Buffer) error {
			return root.GenFishCompletion(w, true)
		}},
	} {
		var text bytes.Buffer
		if err := c.write(&text); err != nil {
			return nil, err
		}
		made[c.at] = filepath.Join(b.out, "completions", c.shell)
		if err := os.WriteFile(made[c.at], text.Bytes(), 0o644); err != nil {
			return nil, err
		}
	}
	var contents files.Contents
	for _, at := range slices.Sorted(maps.Keys(made)) {
		contents = append(contents, b.content(made[at], at, 0o644))
	}
	return contents, nil
}

// describeFlags uses the help text as the description of commands that parse their own flags, such
// as serve. This is needed because the manual page library cannot see those flags.
func describeFlags(c *cobra.Command) {
	for _, sub := range c.Commands() {
		describeFlags(sub)
	}
	if c.Name() != "serve" && c.Name() != "relay" {
		return
	}
	var help bytes.Buffer
	c.SetOut(&help)
	_ = c.Help() // written to memory
	c.Long = "    " + strings.ReplaceAll(strings.TrimSpace(help.String()), "\n", "\n    ")
}
