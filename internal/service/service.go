// Package service is what rdsd and systemd say to each other: sockets that
// systemd opened, and notices of the daemon's state. Without systemd it does
// nothing.
package service

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Names of the sockets, FileDescriptorName= of a socket unit.
const (
	ControlName = "control" // the control socket, ListenSequentialPacket=
	PeersName   = "rds"     // TCP, ListenStream=, for one of the addresses of listen each
)

// Sockets are those systemd opened. It keeps them open and removes their files,
// so that nobody is turned away while the daemon restarts.
type Sockets struct {
	Control *net.UnixListener // nil: none
	Peers   []*net.TCPListener
}

// TakeSockets returns the sockets that were passed to this process. Call it
// once: it forgets where they came from. Errors name a socket that rdsd has no
// use for.
func TakeSockets() (*Sockets, error) {
	byName, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("sockets of systemd: %w", err)
	}
	s := &Sockets{}
	var errs []error
	for name, ls := range byName {
		for _, l := range ls {
			errs = append(errs, s.add(name, l))
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Sockets) add(name string, l net.Listener) error {
	refuse := func(want string) error {
		at := ""
		if l != nil {
			at = " " + l.Addr().Network() + " " + l.Addr().String()
			l.Close()
		}
		return fmt.Errorf("sockets of systemd: %s%s: want %s", name, at, want)
	}
	switch u, _ := l.(*net.UnixListener); name {
	case ControlName:
		if u == nil || u.Addr().Network() != "unixpacket" || s.Control != nil {
			return refuse("one ListenSequentialPacket=")
		}
		u.SetUnlinkOnClose(false)
		s.Control = u
	case PeersName:
		t, ok := l.(*net.TCPListener)
		if !ok {
			return refuse("ListenStream= with an IP address")
		}
		s.Peers = append(s.Peers, t)
	default:
		return refuse(fmt.Sprintf("FileDescriptorName=%s or %s", ControlName, PeersName))
	}
	return nil
}

// Peer returns the listener at addr and forgets it; nil: there is none.
func (s *Sockets) Peer(addr netip.AddrPort) net.Listener {
	if s == nil {
		return nil
	}
	for i, l := range s.Peers {
		if a := l.Addr().(*net.TCPAddr).AddrPort(); netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) == addr {
			s.Peers = append(s.Peers[:i], s.Peers[i+1:]...)
			return l
		}
	}
	return nil
}

// TakeControl returns the control socket and forgets it; nil: there is none.
func (s *Sockets) TakeControl() *net.UnixListener {
	if s == nil {
		return nil
	}
	l := s.Control
	s.Control = nil
	return l
}

// Left names the sockets nobody took.
func (s *Sockets) Left() (names []string) {
	if s == nil {
		return nil
	}
	if s.Control != nil {
		names = append(names, s.Control.Addr().String())
	}
	for _, l := range s.Peers {
		names = append(names, l.Addr().String())
	}
	return names
}

// Close closes what nobody took.
func (s *Sockets) Close() {
	if s == nil {
		return
	}
	if s.Control != nil {
		s.Control.Close()
	}
	for _, l := range s.Peers {
		l.Close()
	}
	s.Control, s.Peers = nil, nil
}

// Notifier tells systemd about the daemon. The zero value tells nobody.
type Notifier struct {
	log *slog.Logger
	// Watchdog is within which time Alive is expected again; 0: not at all.
	Watchdog time.Duration
}

// NewNotifier reads what systemd wants to know: nil, whose methods do nothing, if
// it did not start the process. What cannot be told is logged.
func NewNotifier(log *slog.Logger) *Notifier {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	n := &Notifier{log: log}
	var err error
	if n.Watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("systemd's watchdog", "err", err)
	}
	return n
}

// Ready: the daemon serves, also: again after Reloading.
func (n *Notifier) Ready(status string) { n.tell(daemon.SdNotifyReady + "\nSTATUS=" + status) }

// Status is one line for systemctl status.
func (n *Notifier) Status(status string) { n.tell("STATUS=" + status) }

// Reloading: the configuration is being read; Ready follows.
func (n *Notifier) Reloading() {
	n.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Stopping: the daemon ends.
func (n *Notifier) Stopping() { n.tell(daemon.SdNotifyStopping) }

// Alive feeds the watchdog.
func (n *Notifier) Alive() { n.tell(daemon.SdNotifyWatchdog) }

func (n *Notifier) tell(state string) {
	if n == nil || n.log == nil {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Debug("systemd was not told", "state", state, "err", err)
	}
}
