package storage

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/internal/cause"
)

// runFile is a file in a data directory about the process that uses it, or used it last. No promise
// of a member depends on it.
const runFile = "run.json"

// Run is one run of a member. It has its own file, because an open data directory cannot be
// read by another process.
type Run struct {
	Cluster    string   `json:"cluster"` // in hexadecimal, as in all output for people, like Member
	Member     string   `json:"member"`
	Name       string   `json:"name"`
	ClientURLs []string `json:"client_urls"`
	Process    int      `json:"process"`
	// Started and Stopped are in UTC. A killed process records no end.
	Started time.Time `json:"started"`
	Stopped time.Time `json:"stopped,omitzero"`
	// Cause is why it has stopped, "" if that was requested. Text is the human-readable reason.
	Cause cause.Code `json:"cause,omitempty"`
	Text  string     `json:"text,omitempty"`
}

// SaveRun replaces the record of the previous run. It does not record the end of a run if the
// record of its start has disappeared, because the directory is then being removed.
func SaveRun(dir string, r Run) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	flags, ended := os.O_WRONLY|os.O_TRUNC, !r.Stopped.IsZero()
	if !ended {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(filepath.Join(dir, runFile), flags, 0o600)
	if ended && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// LastRun returns the current or the last run; zero if there is no record.
func LastRun(dir string) (r Run) {
	text, _ := os.ReadFile(filepath.Join(dir, runFile)) // without a file there is no JSON either
	if json.Unmarshal(text, &r) != nil {
		return Run{}
	}
	return r
}

// NoteFailedStart records a failed start instead of the last run. It does so only while it holds
// the lock of the directory: another process that runs there has its own record. It writes nothing
// in a directory in which no member ever ran.
func NoteFailedStart(dir string, code cause.Code, text string) error {
	lock, err := OS{}.Lock(filepath.Join(dir, logDir, lockFile), false)
	if errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r, now := LastRun(dir), time.Now().UTC()
	if !r.Started.IsZero() {
		r.Process, r.Started, r.Stopped, r.Cause, r.Text = os.Getpid(), now, now, code, text
		err = SaveRun(dir, r)
	}
	return errors.Join(err, lock.Close())
}
