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

// runFile is a file in a data directory that describes the process that is using the directory, or
// that used it last. None of a member's promises depend on this file.
const runFile = "run.json"

// Run describes one run of a member. It is stored in its own file, because another process cannot
// read an open data directory.
type Run struct {
	// in hexadecimal, like Member and all human-readable output
	Cluster    string   `json:"cluster"`
	Member     string   `json:"member"`
	Name       string   `json:"name"`
	ClientURLs []string `json:"client_urls"`
	Process    int      `json:"process"`
	// Started and Stopped are in UTC. If the process is killed, Stopped is not recorded.
	Started time.Time `json:"started"`
	Stopped time.Time `json:"stopped,omitzero"`
	// Cause is the reason why the member stopped, or "" if that was requested. Text is a
	// human-readable description.
	Cause cause.Code `json:"cause,omitempty"`
	Text  string     `json:"text,omitempty"`
}

// SaveRun replaces the record of the previous run. It does not record the end of a run if the
// record of its start is gone, because that means that the directory is being removed.
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

// LastRun returns the current or last run, or the zero value if none is recorded.
func LastRun(dir string) (r Run) {
	text, _ := os.ReadFile(filepath.Join(dir, runFile)) // if the read fails, so does Unmarshal
	if json.Unmarshal(text, &r) != nil {
		return Run{}
	}
	return r
}

// NoteFailedStart replaces the record of the last run with a failed start. It does so only while it
// holds the directory's lock, because if another process runs there, the record belongs to that
// process. It writes nothing to a directory where no member has ever run.
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
