package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// session serves one control connection: a client process, or rdsctl. Its goroutine makes
// and maps memory, which the engine must not, and asks the engine for the rest.
type session struct {
	*connection
	d *Daemon

	feeds  feeds                 // of rdsctl
	cl     *engine.Client        // nil: no client is attached
	why    atomic.Pointer[error] // why the engine ended the client; nil: it has not
	memory sessionMemory

	// Of a client.
	params shm.Params
	// waits are the requests that wait, by what they wait for. Only the engine's thread uses
	// it, or whoever has the engine while it stands still.
	waits map[engine.Awaited]uint32
	late  lateAnswers
	// untold is the last window of the send arena, if the process has not been sent it.
	untold *grown
}

func newSession(d *Daemon, c *connection) *session {
	return &session{connection: c, d: d, feeds: feeds{user: &c.user}, waits: map[engine.Awaited]uint32{},
		memory: sessionMemory{conn: c, engine: d.engine, populator: d.populator}}
}

const helloTimeout = 5 * time.Second // how long a connection may be silent before its Hello

// run serves the connection until it ends. The session may be one that another daemon has
// begun.
func (s *session) run() {
	defer func() {
		if s.again != nil {
			s.again.CloseFDs() // a request that is not carried out
		}
		s.detach()
		s.d.admission.exit(s.connection)
	}()
	if s.memory.sealed != nil {
		s.badClient("memory", s.memory.sealed)
		return
	}
	for s.role == 0 {
		if !s.greet() {
			return
		}
	}
	var err error
	if s.cl != nil {
		err = s.serveClient()
	} else {
		err = s.serveCtl()
	}
	if err != nil {
		s.badClient("session", err)
	}
}

// greet answers Hello, unless a recess breaks that off. It returns false if the session ends
// with that.
func (s *session) greet() bool {
	s.d.admission.limit(s.connection, time.Now().Add(helloTimeout))
	m, err := s.d.admission.next(s.connection)
	if err != nil {
		s.badClient("hello", err)
		return false
	}
	hello, ok := m.Body.(*ipc.Hello)
	if !ok {
		s.badClient("hello", fmt.Errorf("first message is %T", m.Body))
		return false
	}
	s.d.admission.limit(s.connection, time.Time{})
	if err := hello.Check(); err != nil {
		_ = s.fail(m.ID, err)
		s.badClient("hello", err)
		return false
	}
	err = s.carryOut(m, func(m *ipc.Message) error {
		err := s.begin(m.ID, hello)
		if err != nil {
			_ = s.fail(m.ID, err)
		}
		return err
	})
	if err != nil {
		s.badClient("session", err)
	}
	return err == nil
}

// begin admits the connection, attaches a client, and answers Hello.
func (s *session) begin(id uint32, hello *ipc.Hello) error {
	err := s.d.admission.admit(s.connection, hello.Role, s.d.config().Limits.MaxClients)
	if err == nil && hello.Role == ipc.RoleClient {
		if err = s.attach(id, hello); errors.Is(err, errReplaced) {
			s.memory.undo()
			s.d.admission.unadmit(s.connection)
		}
		return err
	}
	if err == nil {
		err = s.Send(id, &ipc.HelloOK{Version: ipc.Version, Features: hello.Features & ipc.FeatureTakeOver, Instance: s.d.info.Instance})
	}
	return err
}

// errAnswersUnread ends a session whose process does not read.
var errAnswersUnread = errors.New("the process does not read what the daemon sends on its control connection (is it stopped?)")

// badClient counts and logs what a process did wrong, once per connection. It passes over
// an ordinary end and over limits, which are no fault of one process. Connections that say
// nothing are logged in sums. An rdsctl that does not read has only harmed itself, so its end is
// no violation.
func (s *session) badClient(what string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, errShutdown) ||
		errors.Is(err, unix.EUSERS) || errors.Is(err, unix.ENOBUFS) {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if what == "hello" {
			s.d.admission.saidNothing.Add(1)
			s.d.engine.Count(stats.ClientViolations)
			return
		}
		if err = errAnswersUnread; s.role == ipc.RoleCtl {
			s.say(slog.LevelInfo, "rdsctl ended", err)
			if s.d.admission.rests() {
				s.goodbye(errReplaced)
			}
			return
		}
	}
	s.d.engine.Count(stats.ClientViolations)
	s.warn("client ended: "+what, err)
}

// warn logs what the process did wrong.
func (s *session) warn(msg string, err error, more ...any) { s.say(slog.LevelWarn, msg, err, more...) }

// say logs something about the process.
func (s *session) say(level slog.Level, msg string, err error, more ...any) {
	args := append([]any{"pid", s.id.PID, "uid", s.id.UID}, more...)
	s.d.summed.write(time.Now(), level, s.id.UID, msg, append(args, "err", err)...)
}

// detach ends the session: the engine lets go of the client. The memory is unmapped when no
// work request uses it. If the session goes on in another daemon, this one keeps nothing.
func (s *session) detach() {
	if s.left {
		s.memory.leave()
		return
	}
	if s.d.admission.isOver() {
		s.memory.remain() // what the process has been given stays readable
	}
	if why := s.why.Load(); why != nil {
		s.goodbye(*why)
	}
	s.end()
	if s.cl == nil {
		s.memory.free()
		return
	}
	_ = engine.InPlace(func(f func() error) error { return s.askIn(context.Background(), f) },
		func(p *engine.RingPlace) error { return s.d.engine.Leave(s.cl, p) }) // or the engine has ended, and the process is about to
}

// ask runs f on the engine's thread and returns its error. If a recess breaks the request off, f
// does not run.
func (s *session) ask(f func() error) error { return s.askIn(s.now, f) }

// askIn runs f on the engine's thread and returns its error. If ctx ends first, f does not run.
func (s *session) askIn(ctx context.Context, f func() error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	var err error
	if e := s.d.loop.ask(ctx, func() { err = f() }); e != nil {
		return e
	}
	return err
}
