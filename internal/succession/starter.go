package succession

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

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
)

// Starter starts successors. It is a process of its own, because a daemon that serves has
// given up what a new one needs: it may execute nothing, and whatever it started would have
// its sandbox for good. The process exists since before the sandbox. It has the daemon's
// arguments, environment, user, limits and namespaces, and does nothing but to wait for a
// request. It ends with the daemon.
type Starter struct {
	l   *Link
	pid int
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
	go func() { _ = cmd.Wait() }()
	return &Starter{l: l, pid: cmd.Process.Pid}, nil
}

// Start starts a successor, which gets the file theirs. program is its path; empty: that of
// this daemon, where there may be another version by now. It returns the successor's process
// id. Leave or Kill has to follow.
func (s *Starter) Start(program string, theirs *os.File) (pid int, err error) {
	s.l.limit(s.l.part + versionTime) // the starter asks the program for its version
	if err := s.l.send(kindStart, []byte(program), int(theirs.Fd())); err != nil {
		return 0, fmt.Errorf("starter: %w", err)
	}
	m, err := s.l.recv(kindStarted, 0)
	if err != nil {
		return 0, err
	}
	if len(m.body) != 4 {
		return 0, fmt.Errorf("%w: started with %d bytes", ErrProtocol, len(m.body))
	}
	return int(le.Uint32(m.body)), nil
}

// Leave ends the starter and lets the successor live.
func (s *Starter) Leave() error {
	s.l.limit(s.l.pause)
	if err := s.l.send(kindVerdict, []byte{verdictLeave}); err != nil {
		return err
	}
	if _, err := s.l.recv(kindEnded, 0); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// Kill kills the successor, if it has not ended by itself, and says how it ended.
func (s *Starter) Kill() string {
	s.l.limit(s.l.pause)
	if err := s.l.send(kindVerdict, []byte{verdictKill}); err != nil {
		return err.Error()
	}
	m, err := s.l.recv(kindEnded, 0)
	if err != nil {
		return err.Error()
	}
	return string(m.body)
}

// Close ends the starter.
func (s *Starter) Close() error { return s.l.Close() }

// IsStarter reports whether this process is to be a starter.
func IsStarter() bool { _, is := os.LookupEnv(starterEnv); return is }

// RunStarter is a starter. It returns the exit status when the daemon has ended, or when a
// successor serves.
func RunStarter() int {
	// Signals to a whole group, such as a supervisor's, are the daemon's. They are caught and
	// not ignored, because a successor would inherit that.
	signal.Notify(make(chan os.Signal, 1))
	l, err := Open(os.NewFile(passedFD, "daemon"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "rdsd: starter:", err)
		return 1
	}
	for {
		_ = l.c.SetDeadline(time.Time{})
		m, err := l.recv(kindStart, 1)
		if errors.Is(err, ErrGone) {
			return 0
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "rdsd: starter:", err)
			return 1
		}
		if left := startOne(l, string(m.body), os.NewFile(uintptr(m.fds[0]), "hand-over")); left {
			return 0
		}
	}
}

// startOne serves one request. It reports whether the starter is needed no more.
func startOne(l *Link, program string, theirs *os.File) (left bool) {
	cmd, err := successor(program, theirs)
	theirs.Close()
	if err != nil {
		l.giveUp(err)
		return false
	}
	if err := l.send(kindStarted, le.AppendUint32(nil, uint32(cmd.Process.Pid))); err != nil {
		return true // the daemon has ended; the successor finds out by itself
	}
	m, err := l.recv(kindVerdict, 0)
	if err != nil || len(m.body) == 1 && m.body[0] == verdictLeave {
		return true
	}
	_ = cmd.Process.Kill() // unless it has ended
	_ = cmd.Wait()
	_ = l.send(kindEnded, []byte(howEnded(cmd.ProcessState)))
	return false
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
