package succession

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"golang.org/x/sys/unix"
)

const (
	starterEnv   = "RDSD_STARTER"   // set for a starter: the folders that its daemon may write, see checkProgram
	successorEnv = "RDSD_SUCCESSOR" // set for a successor
	passedFD     = 3                // of the connection, in a starter and in a successor
)

// The verdicts of kindVerdict.
const (
	verdictKill  = 0
	verdictLeave = 1
	verdictLate  = 2 // as verdictKill, after it has written where it stands
)

// stackPart of the time for an answer is what a late successor has to write the stacks of its goroutines. One that is
// stopped writes nothing.
const stackPart = 5

// Starter starts successors. It is a process of its own, because a daemon that serves has
// given up what a new one needs: it may execute nothing, and whatever it started would have
// its sandbox for good. The process exists since before the sandbox. It has the daemon's
// arguments, environment, user, limits and namespaces, and does nothing but to wait for a
// request. It ends with the daemon. One goroutine may use a Starter.
type Starter struct {
	l     *Link
	pid   int
	asked uint32        // the number of the last request
	part  time.Duration // how long Start waits
	ended chan struct{} // closed when the process has ended
}

// NewStarter starts a starter, which runs this program again. folders are those that the
// daemon may write: nothing in them is ever started.
func NewStarter(folders []string) (*Starter, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starter: %w", err)
	}
	l, theirs, err := NewPair()
	if err != nil {
		return nil, fmt.Errorf("starter: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Command(own, os.Args[1:]...)
	cmd.Env = append(environ(), starterEnv+"="+joinFolders(folders))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the daemon
	if err := cmd.Start(); err != nil {
		l.Close()
		return nil, fmt.Errorf("starter: %w", err)
	}
	s := &Starter{l: l, pid: cmd.Process.Pid, part: failpoint.Limit(PartTime + versionTime), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// PID is the process id of the starter.
func (s *Starter) PID() int { return s.pid }

// Start starts a successor, which gets the file theirs. program is its path; empty: that of
// this daemon, where there may be another version by now. It returns the successor's process
// id. Leave or Kill has to follow. After an error nothing has to follow: a successor that
// is started too late is killed.
func (s *Starter) Start(program string, theirs *os.File) (pid int, err error) {
	s.asked++
	s.l.limit(s.part) // the starter asks the program for its version
	if err := s.say(kindStart, []byte(program), int(theirs.Fd())); err != nil {
		return 0, fmt.Errorf("starter: %w", lost(err))
	}
	m, err := s.hear(kindStarted)
	if err == nil && len(m) != 4 {
		err = fmt.Errorf("%w: started with %d bytes", ErrProtocol, len(m))
	}
	if err != nil {
		s.l.limit(s.l.pause)
		_ = s.say(kindVerdict, []byte{verdictKill})
		return 0, fmt.Errorf("starter: %w", lost(err))
	}
	return int(le.Uint32(m)), nil
}

// ErrNoStarter says that the starter was killed. A daemon in its sandbox cannot have another.
var ErrNoStarter = errors.New("the starter has ended, without which there are no planned restarts: restart the daemon")

// lost is err, or ErrNoStarter if err says that the starter has ended.
func lost(err error) error {
	if errors.Is(err, ErrGone) {
		return ErrNoStarter
	}
	return err
}

// Leave ends the starter and lets the successor live, whose parent is then the starter's own.
// Before that the successor gets the signals, of those that a starter passes on: SIGHUP and
// SIGTERM. The daemon itself may not send them, because the successor is outside its sandbox.
func (s *Starter) Leave(signals ...syscall.Signal) error {
	s.l.limit(s.l.pause)
	verdict := []byte{verdictLeave}
	for _, sig := range signals {
		verdict = append(verdict, byte(sig))
	}
	switch err := s.say(kindVerdict, verdict); {
	case errors.Is(err, ErrGone) && len(signals) == 0: // it was killed before
		return nil
	case err != nil:
		return lost(err)
	}
	if _, err := s.hear(kindEnded); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	select {
	case <-s.ended: // its socket is closed before its children have another parent
		return nil
	case <-time.After(s.l.pause):
		return fmt.Errorf("starter: process %d: %w", s.pid, os.ErrDeadlineExceeded)
	}
}

// Kill kills the successor, if it has not ended by itself, and says how it ended. One that is late
// writes the stacks of its goroutines to the log first, because nothing else says why.
func (s *Starter) Kill(late bool) (how string, err error) {
	s.l.limit(s.l.pause)
	verdict := byte(verdictKill)
	if late {
		verdict = verdictLate
	}
	if err := s.say(kindVerdict, []byte{verdict}); err != nil {
		return "", lost(err)
	}
	b, err := s.hear(kindEnded)
	return string(b), lost(err)
}

// say sends a packet that belongs to the last request.
func (s *Starter) say(k kind, body []byte, fds ...int) error {
	return s.l.send(k, append(le.AppendUint32(nil, s.asked), body...), fds...)
}

// hear receives the packet of kind want for the last request. It passes over late answers
// to other requests.
func (s *Starter) hear(want kind) ([]byte, error) {
	for {
		p, err := s.l.next()
		if err != nil {
			return nil, fmt.Errorf("wait for %v: %w", want, err)
		}
		number, body, err := p.numbered()
		switch {
		case err != nil:
			return nil, err
		case number != s.asked:
		case p.kind == kindNotStarted:
			return nil, fmt.Errorf("%w: %.*s", ErrRefused, maxText, body)
		default:
			return body, p.is(want, 0)
		}
	}
}

// numbered takes the number of the request off the body of p.
func (p *packet) numbered() (number uint32, body []byte, err error) {
	if len(p.body) < 4 {
		return 0, nil, fmt.Errorf("%w: %v without a number", ErrProtocol, p.kind)
	}
	return le.Uint32(p.body), p.body[4:], nil
}

// Close ends the starter.
func (s *Starter) Close() error { return s.l.Close() }

// IsStarter reports whether this process is to be a starter.
func IsStarter() bool { _, is := os.LookupEnv(starterEnv); return is }

// RunStarter is a starter. It returns the exit status when the daemon has ended, or when a
// successor serves. It writes errors to log, which must not block: the daemon waits for a starter
// that lives and does not answer.
func RunStarter(log io.Writer) int {
	// Signals to a whole group, such as a supervisor's, are the daemon's. They are caught and
	// not ignored, because a successor would inherit that.
	signal.Notify(make(chan os.Signal, 1))
	l, err := Open(os.NewFile(passedFD, "daemon"))
	if err != nil {
		fmt.Fprintln(log, "rdsd: starter:", err)
		return 1
	}
	o := order{l: l}
	for {
		left, err := o.next()
		switch {
		case left, errors.Is(err, ErrGone):
			return 0
		case err != nil:
			fmt.Fprintln(log, "rdsd: starter:", err)
			return 1
		}
	}
}

// order is the request that a starter carries out.
type order struct {
	l      *Link
	number uint32
	cmd    *exec.Cmd // the successor; nil: it was not started, or has ended
}

// next serves one packet of the daemon. left says that the starter is needed no more.
func (o *order) next() (left bool, err error) {
	p, err := o.l.next()
	if err != nil {
		return false, err
	}
	defer p.closeFiles()
	number, body, err := p.numbered()
	switch {
	case err != nil:
		return false, err
	case p.kind == kindStart && len(p.fds) == 1:
		o.kill(false) // the daemon has given the last one up
		o.number = number
		return false, o.start(string(body), p)
	case p.kind == kindVerdict && len(p.fds) == 0 && len(body) > 0:
		if number != o.number || o.cmd == nil {
			return false, nil // of one that was not started
		}
		if body[0] == verdictLeave {
			o.pass(body[1:])
			return true, nil
		}
		return false, o.say(kindEnded, []byte(o.kill(body[0] == verdictLate)))
	}
	return false, fmt.Errorf("%w: %v with %d descriptors", ErrProtocol, p.kind, len(p.fds))
}

// start starts the successor, which gets the descriptor of p.
func (o *order) start(program string, p *packet) error {
	theirs := os.NewFile(uintptr(p.fds[0]), "hand-over")
	p.fds = nil
	defer theirs.Close()
	var err error
	if o.cmd, err = successor(program, theirs); err != nil {
		text := err.Error()
		return o.say(kindNotStarted, []byte(text[:min(len(text), maxText)]))
	}
	return o.say(kindStarted, le.AppendUint32(nil, uint32(o.cmd.Process.Pid)))
}

// pass sends the successor signals.
func (o *order) pass(signals []byte) {
	for _, b := range signals {
		if sig := syscall.Signal(b); sig == unix.SIGHUP || sig == unix.SIGTERM {
			_ = o.cmd.Process.Signal(sig) // unless it has ended
		}
	}
}

// kill ends the successor and says how it ended.
func (o *order) kill(late bool) string {
	if o.cmd == nil {
		return ""
	}
	p := o.cmd.Process
	kill := func() { _ = p.Kill() } // unless it has ended
	if late {
		_ = p.Signal(unix.SIGQUIT)
		defer time.AfterFunc(o.l.pause/stackPart, kill).Stop()
	} else {
		kill()
	}
	_ = o.cmd.Wait()
	defer func() { o.cmd = nil }()
	return howEnded(o.cmd.ProcessState)
}

func (o *order) say(k kind, body []byte) error {
	return o.l.send(k, append(le.AppendUint32(nil, o.number), body...))
}

// howEnded says how a successor ended.
func howEnded(st *os.ProcessState) string {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == unix.SIGKILL {
		return "killed"
	}
	return st.String()
}

// successor starts program with the daemon's arguments.
func successor(program string, theirs *os.File) (*exec.Cmd, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if program == "" {
		program = own
	}
	path, err := checkProgram(program, program == own, splitFolders(os.Getenv(starterEnv)))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, os.Args[1:]...)
	cmd.Env = append(environ(), successorEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// Succeeds returns the connection to the predecessor, nil if this process has none because
// it is no successor. It may be called once.
func Succeeds() (*Link, error) {
	if os.Getenv(successorEnv) == "" {
		return nil, nil
	}
	if err := os.Unsetenv(successorEnv); err != nil {
		return nil, err
	}
	unix.CloseOnExec(passedFD)
	return Open(os.NewFile(passedFD, "hand-over"))
}
