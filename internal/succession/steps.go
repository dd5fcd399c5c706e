package succession

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
)

// Predecessor is the daemon that hands over.
type Predecessor interface {
	// Opening returns what the successor needs to open everything. The daemon serves.
	Opening(version uint16) (Parcel, error)
	// Park stops serving and returns the state. After an error the daemon serves.
	Park(version uint16) (Parcel, error)
	// Resume goes on serving as if Park had not been called.
	Resume()
}

// Successor is the daemon that takes over. The descriptors of the parcels are its own.
type Successor interface {
	// Open opens everything that can fail. Nothing is served yet.
	Open(version uint16, p Parcel) error
	// Adopt checks the state and makes everything ready. It changes nothing that the
	// predecessor or a client could notice. handover.Faults are errors in what single sessions have.
	Adopt(version uint16, p Parcel) error
}

// HandOver passes p's state to the successor at the other end of l. If its error is nil,
// the successor serves and p must not. Otherwise p serves as before. handover.Faults are
// errors in what single sessions have: without these another successor may take over.
func HandOver(l *Link, p Predecessor) error {
	l.limit(l.part)
	version, err := l.welcome()
	if err != nil {
		return at("hello", err)
	}
	open, err := p.Opening(version)
	if err == nil {
		err = l.sendParcel(open)
	}
	if err != nil {
		l.giveUp(err)
		return at("listening sockets", err)
	}
	l.limit(l.part)
	if _, err := l.recv(kindReady, 0); err != nil {
		l.giveUp(err)
		return at("the new daemon's start", err)
	}
	state, err := p.Park(version)
	if err != nil {
		l.giveUp(err)
		return at("park", err)
	}
	if err := l.pass(state); err != nil {
		l.giveUp(err)
		p.Resume()
		return err
	}
	return nil
}

// pass is the part of the hand-over in which nobody serves.
func (l *Link) pass(state Parcel) error {
	l.limit(l.pause)
	if err := l.sendParcel(state); err != nil {
		return at("state", err)
	}
	if _, err := l.recv(kindAdopted, 0); err != nil {
		return at("adoption", l.faults(err))
	}
	if err := failpoint.Hit(failpoint.Go); err != nil {
		return at("go", err)
	}
	// The last step. Once "go" is in the successor's queue there is no way back.
	return at("go", l.send(kindGo, nil))
}

// Serves tells the predecessor that this process serves, and ends the connection. It follows
// TakeOver.
func (l *Link) Serves() {
	_ = l.send(kindServes, nil) // the predecessor may have died
	_ = l.Close()
}

// AwaitServing waits until p, which has taken over, says that it serves. The error says that p
// has ended instead, so that neither daemon serves. A successor that says nothing and lives is
// one that serves: a daemon of an earlier version, or a slow one. A nil p, which cannot be seen, has
// ended if its end of the connection is closed. AwaitServing follows HandOver.
func (l *Link) AwaitServing(p *Process) error {
	l.limit(l.pause)
	if _, err := l.recv(kindServes, 0); err != nil && (p.EndsWithin(endTime) || p == nil && errors.Is(err, ErrGone)) {
		return fmt.Errorf("%w: it has taken over and ended since", ErrGone)
	}
	return nil
}

// welcome answers the successor's hello. It returns the version of the state.
func (l *Link) welcome() (uint16, error) {
	m, err := l.recv(kindHello, 0)
	if err != nil {
		return 0, err
	}
	b, ok := bytes.CutPrefix(m.body, []byte(magic))
	if !ok || len(b) < 4 || len(b) > 4+maxText {
		err = fmt.Errorf("%w: a hello of %d bytes", ErrProtocol, len(m.body))
		l.giveUp(err)
		return 0, err
	}
	oldest, newest, text := le.Uint16(b), le.Uint16(b[2:]), string(b[4:])
	version := min(newest, handover.Newest)
	if oldest > newest || version < oldest || version < handover.Oldest {
		err = fmt.Errorf("the new daemon (%s) takes over versions %d to %d of the state, this one hands over %d to %d: %w",
			text, oldest, newest, handover.Oldest, handover.Newest, ErrVersion)
		l.giveUp(err)
		return 0, err
	}
	return version, l.send(kindWelcome, le.AppendUint16(nil, version))
}

// ErrVersion says that the two daemons have no version of the state in common.
var ErrVersion = errors.New("no common version: restart the daemon instead")

// GiveUp tells the predecessor why this process does not take over. It is for what goes wrong
// before TakeOver.
func (l *Link) GiveUp(why error) { l.giveUp(why) }

// TakeOver takes over from the predecessor at the other end of l. text is this program's
// version. After an error s must not serve. If the predecessor dies after s has adopted its
// state, s serves: gone must report whether the predecessor has ended, because the end of
// the connection alone proves nothing.
func TakeOver(l *Link, s Successor, text string, gone func() bool) error {
	l.limit(l.part)
	version, err := l.greet(text)
	if err != nil {
		return at("hello", err)
	}
	open, err := l.recvParcel()
	if err == nil {
		err = s.Open(version, open)
	}
	if err != nil {
		l.giveUp(err)
		return at("start", err)
	}
	if err := l.send(kindReady, nil); err != nil {
		return at("start", err)
	}
	l.limit(l.part + l.pause) // the predecessor's, which parks first
	state, err := l.recvParcel()
	if err == nil {
		err = s.Adopt(version, state)
	}
	if err != nil {
		l.refuse(version, err)
		return at("adoption", err)
	}
	return at("go", l.awaitGo(gone))
}

// awaitGo says that the state is adopted, and waits for the predecessor's "go".
func (l *Link) awaitGo(gone func() bool) error {
	err := l.send(kindAdopted, nil)
	if err == nil || errors.Is(err, ErrGone) { // its reason may still be in the queue
		l.limit(l.pause)
		_, err = l.recv(kindGo, 0)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// From here on the predecessor's "go" fails, unless it is in the queue already. The
		// read does not block: without a limit it cannot pass over a "go" that is there.
		_ = l.c.CloseRead()
		_ = l.c.SetReadDeadline(time.Time{})
		if _, e := l.recv(kindGo, 0); e == nil {
			return nil
		}
		return err
	}
	if errors.Is(err, ErrGone) && gone() {
		return nil
	}
	return err
}

// greet says hello. It returns the version of the state.
func (l *Link) greet(text string) (uint16, error) {
	b := le.AppendUint16([]byte(magic), handover.Oldest)
	b = le.AppendUint16(b, handover.Newest)
	if err := l.send(kindHello, append(b, text[:min(len(text), maxText)]...)); err != nil {
		return 0, err
	}
	m, err := l.recv(kindWelcome, 0)
	if err != nil {
		return 0, err
	}
	if len(m.body) != 2 {
		return 0, fmt.Errorf("%w: a welcome of %d bytes", ErrProtocol, len(m.body))
	}
	v := le.Uint16(m.body)
	if v < handover.Oldest || v > handover.Newest {
		return 0, fmt.Errorf("%w: version %d of the state", ErrProtocol, v)
	}
	return v, nil
}

// at says in which step err came.
func at(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("hand-over: %s: %w", step, err)
}
