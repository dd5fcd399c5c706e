// Package service connects rdsd to systemd: it takes the sockets that systemd opened and
// notifies systemd of the daemon's state. It does nothing if systemd did not start the
// daemon.
package service

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Names of the sockets (FileDescriptorName= of a socket unit).
const (
	ControlName = "control" // the control socket, ListenSequentialPacket=
	PeersName   = "rds"     // TCP (ListenStream=), one socket for each address of the setting listen
)

// Sockets are the sockets that systemd opened. systemd keeps them open while the daemon
// restarts, so that no client is refused then, and removes their files.
type Sockets struct {
	Control *net.UnixListener // nil: none
	Peers   []*net.TCPListener
}

// TakeSockets returns the sockets that systemd passed to this process. It may be called
// once: it clears the environment that names them. Errors name a socket that rdsd has no
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

// Close closes the sockets that are still in s.
func (s *Sockets) Close() {
	if s.Control != nil {
		s.Control.Close()
	}
	for _, l := range s.Peers {
		l.Close()
	}
	s.Control, s.Peers = nil, nil
}

// Notifier notifies systemd of the daemon's state. The zero value does nothing.
type Notifier struct {
	log *slog.Logger
	// Watchdog is the time within which systemd expects the next Alive. It is 0 if systemd
	// expects none.
	Watchdog time.Duration
}

// NewNotifier reads what systemd expects from the environment. It returns nil, whose
// methods do nothing, if systemd did not start the process. Notices that cannot be sent are
// logged.
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

// Ready says that the daemon serves. It is also due after Reloading.
func (n *Notifier) Ready(status string) { n.tell(daemon.SdNotifyReady + "\nSTATUS=" + status) }

// Status sets the line that systemctl status shows.
func (n *Notifier) Status(status string) { n.tell("STATUS=" + status) }

// Reloading says that the configuration is being read. Ready has to follow.
func (n *Notifier) Reloading() {
	n.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// MainPID says that the process pid is the service's from now on. systemd takes it from the
// process that has been the service's main process until then.
func (n *Notifier) MainPID(pid int) { n.tell(fmt.Sprintf("MAINPID=%d", pid)) }

// Stopping says that the daemon is ending.
func (n *Notifier) Stopping() { n.tell(daemon.SdNotifyStopping) }

// Alive resets systemd's watchdog.
func (n *Notifier) Alive() { n.tell(daemon.SdNotifyWatchdog) }

func (n *Notifier) tell(state string) {
	if n == nil || n.log == nil {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Debug("systemd was not told", "state", state, "err", err)
	}
}
