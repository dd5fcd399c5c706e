package daemon

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/ipc"
	"github.com/rdsd/rdsd/internal/netns"
	"github.com/rdsd/rdsd/internal/stats"
	"github.com/rdsd/rdsd/internal/succession"
	"golang.org/x/sys/unix"
)

// A successor that this daemon does not start asks for its place at the control socket (rdsd
// -take-over): a new container, whose image has the new program. This file has both ends of that
// request. From then on the two talk as a daemon and the successor that it has started.

// leastToken is how long the secret of upgrade.token has to be.
const leastToken = 16

// readToken reads the secret that the file of upgrade.token has, without white space around it.
func readToken(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("upgrade.token: %w", err)
	}
	b = bytes.TrimSpace(b)
	if len(b) < leastToken || len(b) > ipc.MaxToken {
		return nil, fmt.Errorf("upgrade.token: %s has a secret of %d bytes, it has to have %d to %d: %w", path, len(b), leastToken, ipc.MaxToken, unix.EINVAL)
	}
	return b, nil
}

// mayBeTakenOver lets processes that the daemon does not start take over from it.
func (d *Daemon) mayBeTakenOver() {
	d.handing.alone, d.handing.netns = true, netns.Number()
}

// mayTakeOver returns an error unless the process at the other end of c may take over as r says.
func (d *Daemon) mayTakeOver(c *connection, r *ipc.TakeOver) error {
	h := d.handing
	if !h.alone {
		return fmt.Errorf("%w: this daemon is part of another program", unix.ENOTSUP)
	}
	if err := d.knows(c, r.Token); err != nil {
		return err
	}
	if h.netns != 0 && r.NetNS != 0 && h.netns != r.NetNS {
		return fmt.Errorf("%w: the new daemon is in network namespace %d, this one in %d: run both in the same one (host network), because connections and addresses do not go over",
			unix.EXDEV, r.NetNS, h.netns)
	}
	return nil
}

// knows returns an error unless the process is the daemon's user, root, or knows the secret.
func (d *Daemon) knows(c *connection, token []byte) error {
	if c.user.Trusted {
		return nil
	}
	who := fmt.Sprintf("uid %d, which is neither root nor this daemon's user (%d)", c.id.UID, os.Getuid())
	path := d.config().Upgrade.Token
	switch {
	case path == "":
		return fmt.Errorf("%w: %s: run the new daemon as that user, or give both the same secret (upgrade.token)", unix.EACCES, who)
	case len(token) == 0:
		return fmt.Errorf("%w: %s, and has sent no secret: set upgrade.token for the new daemon", unix.EACCES, who)
	}
	want, err := readToken(path)
	if err != nil {
		return fmt.Errorf("%w: this daemon cannot compare the secret: %w", unix.EACCES, err)
	}
	if subtle.ConstantTimeCompare(token, want) != 1 {
		return fmt.Errorf("%w: %s, and has another secret than this daemon (upgrade.token)", unix.EACCES, who)
	}
	return nil
}

// takeOver answers a process that asks for this daemon's place, and begins to hand over to it. The
// session ends with that.
func (s *session) takeOver(id uint32, r *ipc.TakeOver) error {
	d, program := s.d, fmt.Sprintf("take-over by uid %d", s.id.UID)
	err := d.mayTakeOver(s.connection, r)
	if err == nil {
		err = d.upgrades.begin(program)
	}
	if err != nil {
		s.warn("take-over refused", err)
		return s.fail(id, err)
	}
	d.summed.write(time.Now(), slog.LevelInfo, nil, "upgrade begun", "attempt", d.upgradeState().Attempt, "program", program, "pid", s.id.PID)
	c, err := s.candidate(id)
	if err != nil {
		d.upgradeFailed(err)
		return s.fail(id, err)
	}
	go d.upgrade(func() (bool, error) { return d.handToCandidate(c) })
	return nil
}

// candidate passes the process its end of a connection, and this daemon's pidfd.
func (s *session) candidate(id uint32) (*candidate, error) {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(self)
	link, theirs, err := succession.NewPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := &candidate{link: link, pid: s.id.PID}
	c.process, _ = succession.PeerProcess(s) // nil: it cannot be seen
	if err := s.Send(id, &ipc.TakeOverOK{Path: s.d.listeners.file.Path()}, int(theirs.Fd()), self); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// handToCandidate hands over to c, which ends itself if that fails. If it fails because of single
// sessions, these end, so that the next candidate can take over.
func (d *Daemon) handToCandidate(c *candidate) (reload bool, err error) {
	defer c.close()
	reload, err = d.handOnce(func() (*candidate, error) { return c, nil })
	if err == nil {
		return reload, nil
	}
	if d.endFaulty(handover.FaultsIn(err)) {
		err = fmt.Errorf("%w; those sessions have ended: start the new daemon again", err)
	}
	c.link.GiveUp(err) // if it was not even begun
	return reload, err
}

// errNotOurs says that the daemon of this host does not answer at the control socket, though one has its files.
var errNotOurs = errors.New("another machine's daemon uses this folder: no daemon of this host listens at its control socket, and the statistics file beside it is locked; " +
	"give each host a folder of its own (socket, stats)")

// FindPredecessor asks the daemon at the control socket of cfg for its place. It returns nil if there is none. The
// error says why that daemon, which goes on, does not hand over.
func FindPredecessor(ctx context.Context, cfg *config.Config, log *slog.Logger) (*succession.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, failpoint.Limit(succession.PartTime))
	defer cancel()
	c, err := ipc.Dial(ctx, cfg.Socket)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		if stats.Live(cfg.Stats) {
			return nil, fmt.Errorf("take over: %s: %w", cfg.Socket, errNotOurs)
		}
		log.Info("nothing to take over from, starts as usual", "socket", cfg.Socket)
		return nil, nil
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("take over: %w: run the new daemon as the user and group of the daemon there, which own the control socket", err)
	case err != nil:
		return nil, fmt.Errorf("take over: %w", err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	link, err := askForPlace(c, cfg)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("take over from the daemon at %s, which goes on: %w", cfg.Socket, err)
	}
	return link, nil
}

// askForPlace is FindPredecessor with a daemon that there is.
func askForPlace(c *ipc.Client, cfg *config.Config) (*succession.Link, error) {
	r := &ipc.TakeOver{NetNS: netns.Number()}
	if cfg.Upgrade.Token != "" {
		var err error
		if r.Token, err = readToken(cfg.Upgrade.Token); err != nil {
			return nil, err
		}
	}
	hello, _, err := c.Call(&ipc.Hello{Role: ipc.RoleCtl, Features: ipc.FeatureTakeOver}, nil)
	if err != nil {
		return nil, err
	}
	if hello.(*ipc.HelloOK).Features&ipc.FeatureTakeOver == 0 {
		return nil, fmt.Errorf("%w: its version does not know -take-over: run rdsctl daemon upgrade there, or restart it", unix.ENOTSUP)
	}
	answer, fds, err := c.Call(r, nil)
	if err != nil {
		return nil, err
	}
	if len(fds) != 2 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("%w: %d descriptors instead of 2", ipc.ErrProtocol, len(fds))
	}
	link, err := succession.Open(os.NewFile(uintptr(fds[0]), "hand-over"))
	if err != nil {
		unix.Close(fds[1])
		return nil, err
	}
	p, err := succession.PidfdProcess(fds[1])
	if path := answer.(*ipc.TakeOverOK).Path; err == nil && path != cfg.Socket {
		err = fmt.Errorf("its control socket is %s there: mount the folder at the same place here (socket)", path)
		p.Close()
	}
	if err != nil {
		link.GiveUp(err)
		link.Close()
		return nil, err
	}
	link.PeerIs(p)
	return link, nil
}
