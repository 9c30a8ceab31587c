package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestAccessQuickstart runs the commands in docs/security.md, "Access control in ten minutes", in
// an empty directory: with init-access on one member, and by hand on another. If the comment after
// a command is "OK" or starts with "Error: ", it is the command's expected output.
func TestAccessQuickstart(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Access control in ten minutes\n")
	section, _, _ := strings.Cut(after, "\n## ")
	parts := strings.Split(section, "```")
	if len(parts) != 7 {
		t.Fatalf("the section has %d parts, want three blocks of commands", len(parts))
	}
	at := newShell(t)
	at.runs(parts[1])
	at.wants("leasehold put k v", "Error: etcdserver: user name is empty")
	at = newShell(t)
	at.runs(parts[3])
	at.runs(parts[5])
	at.wants("leasehold put k v", "OK")
}

// shell runs commands against its own member, in a directory that contains a backup program.
type shell struct {
	t   *testing.T
	dir string
	env []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	bin := t.TempDir()
	path, err := filepath.Abs(server.Path(t))
	if err == nil {
		err = os.Symlink(path, filepath.Join(bin, "leasehold"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "backup.sh"), []byte("#!/bin/sh\necho saved\n"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.env = harness.Environ("PATH="+bin+":"+os.Getenv("PATH"), "HOME="+s.dir,
		"LEASEHOLD_ENDPOINTS="+startMember(t, "--bcrypt-cost=4").url)
	return s
}

// runs runs each line of a block.
func (s *shell) runs(block string) {
	s.t.Helper()
	for line := range strings.Lines(strings.TrimSpace(block)) {
		command, comment, _ := strings.Cut(strings.TrimSpace(line), "  #")
		s.wants(command, strings.TrimSpace(comment))
	}
}

// wants runs a command. If the comment is "OK" or starts with "Error: ", the output must contain
// it. The command must fail if and only if the comment starts with "Error: ".
func (s *shell) wants(command, comment string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "sh", "-ec", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	fails := strings.HasPrefix(comment, "Error: ")
	if fails != (err != nil) || (fails || comment == "OK") && !strings.Contains(string(out), comment) {
		s.t.Errorf("%s  # %s\n%v: %s", command, comment, err, out)
	}
}
