package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/quota"
	"github.com/rdsd/rdsd/internal/shm"
	"github.com/rdsd/rdsd/internal/stats"
	"golang.org/x/sys/unix"
)

// session serves one control connection: a client process, or rdsctl. Its
// goroutine makes and maps memory, which the engine must not, and asks the
// engine for the rest.
type session struct {
	d    *Daemon
	c    *ipc.Conn
	id   ipc.Cred
	user quota.User

	role ipc.Role // 0: has not said. Guarded by d.mu

	cl   *engine.Client
	once sync.Once
	why  atomic.Pointer[error] // the engine ended the client

	// The engine has them unmapped and closed when it is through with the
	// client, which may be while this session is still at work.
	mu     sync.Mutex
	maps   []*shm.Mapping
	bell   *shm.Doorbell // the client's: we ring it
	own    *shm.Doorbell // ours: the client rings it
	shared uint64        // bytes of maps
}

func (s *session) run() {
	defer func() {
		s.end()
		s.d.mu.Lock()
		delete(s.d.open, s)
		s.d.admission.leave(s)
		s.d.mu.Unlock()
		s.d.sessions.Done()
	}()
	s.c.SetReadDeadline(time.Now().Add(helloTimeout))
	m, err := s.c.Recv()
	if err != nil {
		s.badClient("hello", err)
		return
	}
	hello, ok := m.Body.(*ipc.Hello)
	if !ok {
		s.badClient("hello", fmt.Errorf("first message is %T", m.Body))
		return
	}
	s.c.SetReadDeadline(time.Time{})
	if err := hello.Check(); err != nil {
		s.fail(m.ID, err)
		s.badClient("hello", err)
		return
	}
	s.d.mu.Lock()
	err = s.d.admission.spoke(s, hello.Role, s.d.config().Limits.MaxClients)
	s.d.mu.Unlock()
	switch {
	case err != nil:
		s.fail(m.ID, err)
	case hello.Role == ipc.RoleClient:
		err = s.serveClient(m.ID, hello)
	default:
		err = s.serveCtl(m.ID)
	}
	if err != nil {
		s.badClient("session", err)
	}
}

// badClient counts and logs what a process did wrong, once per connection.
// Numbers are no fault of one process, and silence is logged in sums.
func (s *session) badClient(what string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, errShutdown) ||
		errors.Is(err, unix.EUSERS) || errors.Is(err, unix.ENOBUFS) {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if what == "hello" {
			s.d.silent.Add(1)
			s.d.e.Count(stats.ClientViolations)
		}
		return
	}
	s.d.e.Count(stats.ClientViolations)
	s.warn("client ended: "+what, err)
}

// warn logs what the process did wrong.
func (s *session) warn(msg string, err error, more ...any) {
	args := append([]any{"pid", s.id.PID, "uid", s.id.UID}, more...)
	s.d.lines.write(time.Now(), slog.LevelWarn, s.id.UID, msg, append(args, "err", err)...)
}

// goodbye tells the process why its session ends, and ends it.
func (s *session) goodbye(reason error) {
	s.once.Do(func() {
		_ = s.c.Send(0, &ipc.Goodbye{Text: reason.Error(), Ends: errors.Is(reason, errShutdown)})
		s.c.Close()
	})
}

// fail answers a request with an error. That the daemon ends is no answer but
// the end of the session.
func (s *session) fail(id uint32, err error) error {
	if errors.Is(err, errShutdown) {
		s.goodbye(err)
		return err
	}
	return s.c.SendErr(id, err)
}

// end detaches the client. Its memory is unmapped when no work request uses it.
func (s *session) end() {
	if why := s.why.Load(); why != nil {
		s.goodbye(*why)
	}
	s.goodbyeQuiet()
	if s.cl == nil {
		s.free()
		return
	}
	done := make(chan struct{})
	if !s.d.e.Do(func() {
		s.d.e.Detach(s.cl)
		close(done)
	}) {
		return // the engine has ended: the process is about to, too
	}
	select {
	case <-done:
	case <-s.d.loopDone:
	}
}

func (s *session) goodbyeQuiet() { s.once.Do(func() { s.c.Close() }) }

// free unmaps and closes what the session holds.
func (s *session) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.maps {
		m.Close()
	}
	s.d.e.Memory().Give(&s.user, len(s.maps), s.shared, 0)
	s.maps, s.shared = nil, 0
	if s.bell != nil {
		s.bell.Close()
	}
	if s.own != nil {
		s.own.Close()
	}
}

// unmapBuffer unmaps m, whose number nobody is just sending.
func (s *session) unmapBuffer(m *shm.Mapping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := uint64(len(m.Mem))
	m.Close()
	s.d.e.Memory().Give(&s.user, 1, 0, size)
}

// handOver answers request id with the descriptor of m, which is the client's
// alone then. The lock: what is closed in the middle of this could come back as
// the number of another client's memory.
func (s *session) handOver(id uint32, answer ipc.Response, m *shm.Mapping) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer m.CloseFD()
	if m.FD < 0 {
		return net.ErrClosed // the engine has ended the client meanwhile
	}
	return s.c.Send(id, answer, m.FD)
}

// handOverAll is handOver of everything a client gets at first.
func (s *session) handOverAll(id uint32, answer ipc.Response, fds []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.c.Send(id, answer, fds...)
	for _, m := range s.maps {
		m.CloseFD()
	}
	s.own.CloseSend()
	s.bell.CloseRecv()
	return err
}

// take reserves memory for one mapping.
func (s *session) take(shared, registered uint64) error {
	err := s.d.e.Memory().Take(&s.user, shared, registered)
	if err != nil {
		s.d.e.Count(stats.QuotaRefused)
	}
	return err
}

func (s *session) memfd(name string, size int, readOnly bool) (*shm.Mapping, error) {
	create := createMemfd
	if readOnly {
		create = createMemfdReadOnly
	}
	if err := s.take(uint64(size), 0); err != nil {
		return nil, err
	}
	m, err := s.populate(size, func() (*shm.Mapping, error) { return create(name, size) })
	if err != nil {
		s.d.e.Memory().Give(&s.user, 1, uint64(size), 0)
		return nil, err
	}
	s.maps = append(s.maps, m)
	s.shared += uint64(size)
	return m, nil
}

// serveClient attaches the process and answers its requests until it leaves.
func (s *session) serveClient(id uint32, hello *ipc.Hello) error {
	p, err := engine.GrantParams(hello.Params)
	if err != nil {
		s.fail(id, err)
		return err
	}
	if err := s.attach(id, hello, p); err != nil {
		s.fail(id, err)
		return err
	}
	for {
		m, err := s.c.Recv()
		if err != nil {
			return err
		}
		if s.c.HungUp() {
			return io.EOF // nobody waits for what it has asked
		}
		if err := s.handle(m); err != nil {
			return err
		}
	}
}

func (s *session) attach(id uint32, hello *ipc.Hello, p shm.Params) error {
	seg, err := s.memfd(failpoint.Segment, shm.SegmentSize(p), false)
	if err != nil {
		return err
	}
	table, err := s.memfd(failpoint.Table, shm.TableSize(p.Slots, p.Cells), true)
	if err != nil {
		return err
	}
	if s.own, err = newDoorbell(failpoint.DaemonDoorbell); err != nil {
		return err
	}
	if s.bell, err = newDoorbell(failpoint.ClientDoorbell); err != nil {
		return err
	}
	at := engine.Attachment{Name: printable(hello.Name), PID: s.id.PID, User: s.user, Params: p, Recv: shm.NewArena()}
	if at.Seg, err = shm.NewSegment(seg.Mem, p); err != nil {
		return err
	}
	at.Table = shm.NewTable(table.Mem, p.Slots, p.Cells)
	fds := []int{seg.FD, table.FD, s.own.Send, s.bell.Recv}
	var windows [][]byte
	for range p.SendWindows {
		m, err := s.memfd(failpoint.SendWindow, shm.WindowSize, false)
		if err != nil {
			return err
		}
		windows = append(windows, m.Mem)
		fds = append(fds, m.FD)
	}
	for range p.RecvWindows {
		m, err := s.memfd(failpoint.RecvWindow, shm.WindowSize, true)
		if err != nil {
			return err
		}
		at.Recv.AddWindow(m.Mem)
		fds = append(fds, m.FD)
	}
	bell := s.bell.Send
	rung := s.own.Recv
	at.Bell = func() { shm.Ring(bell) }
	at.OnKill = func(why error) {
		s.why.Store(&why)
		go func() {
			s.warn("client broke the rules", why, "name", at.Name)
			s.goodbye(why)
		}()
	}
	at.OnFree = func() { go s.free() }
	at.OnEnd = func() { s.d.l.unwatchBell(rung) } // while the descriptor is still ours
	at.Shared = s.shared
	c := engine.NewClient(&at)
	ask := s.ask(func() error {
		if err := s.d.l.watchBell(rung, c); err != nil {
			return err
		}
		if err := s.d.e.Attach(c, windows...); err != nil {
			s.d.l.unwatchBell(rung)
			return err
		}
		return nil
	})
	if ask != nil {
		return ask
	}
	s.cl = c
	return s.handOverAll(id, &ipc.HelloOK{Version: ipc.Version, Features: hello.Features & ipc.FeatureRefuses, Instance: s.d.info.Instance, Params: p,
		MaxSockets: uint32(min(uint64(s.d.config().Limits.MaxSockets), s.user.Quota[config.Sockets])), MaxBuffers: engine.MaxBuffers,
		MaxMessage: shm.MaxMessage, MaxBytes: min(s.d.config().Limits.MaxRegisteredBytes, s.user.Quota[config.RegisteredBytes]),
		SpinNs: clientSpin(s.d.config().Spin, runtime.NumCPU())}, fds)
}

// ask runs f on the engine's goroutine and returns its error.
func (s *session) ask(f func() error) error {
	var err error
	if e := s.d.ask(context.Background(), func() { err = f() }); e != nil {
		return e
	}
	return err
}

// handle answers one request. An error ends the session.
func (s *session) handle(m *ipc.Message) error {
	switch r := m.Body.(type) {
	case *ipc.Alloc:
		return s.alloc(m.ID, r)
	case *ipc.GrowSend:
		return s.growSend(m.ID)
	case *ipc.Release:
		return s.later(m.ID, r)
	case *ipc.Free:
		return s.later(m.ID, r)
	case ipc.Request:
		var resp ipc.Response
		err := engine.InPlace(s.ask, func(p *engine.RingPlace) (err error) {
			resp, err = s.d.e.Serve(s.cl, r, p)
			return err
		})
		return s.answer(m.ID, resp, err)
	}
	return fmt.Errorf("unexpected message %T", m.Body)
}

func (s *session) answer(id uint32, ok ipc.Response, err error) error {
	if err != nil {
		return s.fail(id, err)
	}
	return s.c.Send(id, ok)
}

// alloc makes a buffer for RDMA: a memfd that both sides map.
func (s *session) alloc(id uint32, r *ipc.Alloc) error {
	size, err := engine.BufferSize(r.Size)
	if err != nil {
		return s.fail(id, err)
	}
	if err := s.take(0, size); err != nil {
		return s.fail(id, err)
	}
	m, err := s.populate(int(size), func() (*shm.Mapping, error) { return createMemfd(failpoint.Buffer, int(size)) })
	if err != nil {
		s.d.e.Memory().Give(&s.user, 1, 0, size)
		return s.fail(id, err)
	}
	var buffer uint32
	err = s.ask(func() (err error) {
		buffer, err = s.d.e.AddBuffer(s.cl, m.Mem, func() { go s.unmapBuffer(m) })
		return err
	})
	if err != nil {
		s.unmapBuffer(m)
		return s.fail(id, err)
	}
	return s.handOver(id, &ipc.AllocOK{Buffer: buffer, Size: size}, m)
}

// later answers when nobody can touch what r ends any more; other requests go on
// meanwhile.
func (s *session) later(id uint32, r ipc.Request) error {
	err := engine.InPlace(s.ask, func(p *engine.RingPlace) error {
		return s.d.e.ServeLater(s.cl, r, p, func(err error) { go s.answer(id, &ipc.OK{}, err) })
	})
	if err != nil {
		return s.fail(id, err)
	}
	return nil
}

// growSend adds a window to the client's send arena.
func (s *session) growSend(id uint32) error {
	windows := uint32(0)
	if err := s.take(shm.WindowSize, 0); err != nil {
		return s.fail(id, err)
	}
	m, err := s.populate(shm.WindowSize, func() (*shm.Mapping, error) { return createMemfd(failpoint.SendWindow, shm.WindowSize) })
	if err != nil {
		s.d.e.Memory().Give(&s.user, 1, shm.WindowSize, 0)
		return s.fail(id, err)
	}
	err = s.ask(func() error {
		n, err := s.d.e.Grow(s.cl, m.Mem)
		if err != nil {
			return err
		}
		// Nobody frees the session's memory before this has returned: the
		// client lives.
		s.maps = append(s.maps, m)
		s.shared += shm.WindowSize
		windows = uint32(n)
		return nil
	})
	if err != nil {
		m.Close()
		s.d.e.Memory().Give(&s.user, 1, shm.WindowSize, 0)
		return s.fail(id, err)
	}
	return s.handOver(id, &ipc.GrowSendOK{Windows: windows}, m)
}

// serveCtl answers rdsctl.
func (s *session) serveCtl(id uint32) error {
	if err := s.c.Send(id, &ipc.HelloOK{Version: ipc.Version, Instance: s.d.info.Instance}); err != nil {
		return err
	}
	who := ctl.Caller{UID: s.user.UID, Admin: s.user.Trusted}
	for {
		s.c.SetReadDeadline(time.Now().Add(ctlTimeout))
		m, err := s.c.Recv()
		if err != nil {
			return err
		}
		r, ok := m.Body.(*ipc.Ctl)
		if !ok {
			return fmt.Errorf("unexpected request %T", m.Body)
		}
		if err := s.c.SendJSON(m.ID, ctl.Serve(context.Background(), r.JSON, who, backend{s.d})); err != nil {
			return err
		}
	}
}

// printable makes a name that a process gave itself fit for logs and
// terminals.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
}
