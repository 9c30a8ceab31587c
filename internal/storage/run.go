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

// runFile lies in a data directory, and says who runs on it, or has run on it last. Nothing that
// members promise rests on it.
const runFile = "run.json"

// Run is one run of a member. What is open can be read by nobody else, so this is beside it.
type Run struct {
	Cluster    string   `json:"cluster"` // the IDs are in hexadecimal digits, as people see them
	Member     string   `json:"member"`
	Name       string   `json:"name"`
	ClientURLs []string `json:"client_urls"`
	Process    int      `json:"process"`
	// Started and Stopped are in UTC. One that is killed leaves no word of its end.
	Started time.Time `json:"started"`
	Stopped time.Time `json:"stopped,omitzero"`
	// Cause is why it has stopped, empty if it was asked to. Text is for people.
	Cause cause.Code `json:"cause,omitempty"`
	Text  string     `json:"text,omitempty"`
}

// SaveRun puts a run in the place of the one before. The end of a run has no place where its
// beginning is gone: somebody is removing the directory.
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

// LastRun returns the run that goes on, or the last one; all zero if there is no word of it.
func LastRun(dir string) (r Run) {
	text, _ := os.ReadFile(filepath.Join(dir, runFile)) // without a file, nothing: no JSON either
	if json.Unmarshal(text, &r) != nil {
		return Run{}
	}
	return r
}

// NoteFailedStart puts a start that failed in the place of the last run. It does so only while it
// holds the lock of the directory: another process that runs there has a word of its own. Where no
// member ever ran it writes nothing.
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
