package lab

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"time"
)

// Job is a script that runs on a host.
type Job struct {
	h      *Host
	id     int
	done   chan struct{}
	status int
}

// Statuses of a job that did not end by itself.
const (
	TimedOut = -1
	Gone     = -2 // the host ended
)

// Result is the result of a job.
type Result struct {
	Out    string // stdout and stderr
	Status int    // of the script, or TimedOut, or Gone
}

// Err returns nil for status 0.
func (r Result) Err() error {
	switch r.Status {
	case 0:
		return nil
	case TimedOut:
		return errors.New("the script took too long\n" + r.Out)
	case Gone:
		return errors.New("the host ended\n" + r.Out)
	}
	return fmt.Errorf("the script ended with status %d\n%s", r.Status, r.Out)
}

func (j *Job) file() string { return fmt.Sprintf("%s%d", j.h.name, j.id) }

// Done returns a channel that is closed when the job has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// Out returns what the job has written so far.
func (j *Job) Out() string {
	b, _ := os.ReadFile(j.h.lab.File(j.file() + ".out"))
	return string(b)
}

// Kill kills the job's processes. Wait returns when they have ended.
func (j *Job) Kill() { j.h.say("kill %s\n", j.file()) }

// Wait waits until the job ends, and kills it after the limit.
func (j *Job) Wait(limit time.Duration) Result {
	select {
	case <-j.done:
	case <-time.After(limit):
		j.Kill()
		select {
		case <-j.done:
		case <-time.After(haltLimit):
		}
		return Result{j.Out(), TimedOut}
	}
	return Result{j.Out(), j.status}
}
