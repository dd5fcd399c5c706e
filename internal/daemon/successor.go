package daemon

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/succession"
)

// Successor makes a daemon that takes over from another one (succession.Successor). After an
// error of a method there is no daemon.
type Successor struct {
	// Super, Config and Log are those of NewUnder.
	Super  Supervisor
	Config config.Config
	Log    *slog.Logger

	// Confine is called before anything is read that comes from clients or peers.
	Confine func(*Daemon)
	// Asked returns an error if this process was asked to end. Then it does not take over.
	Asked func() error
	// Serves tells the predecessor that this daemon serves. It is called once, then Gone.
	Serves func()
	// Gone waits for the predecessor's end, for a while. It is called once.
	Gone func() bool

	daemon *Daemon
}

// inheritance is what a daemon takes over before it opens anything.
type inheritance struct {
	upgrades  *upgrades
	listeners *listeners
}

// inherited is what a daemon that takes over does when it begins to serve.
type inherited struct {
	heirs  *heirs
	stood  time.Time     // when the predecessor's engine took nothing in any more
	serves func()        // tells the predecessor
	gone   func() bool   // waits for the predecessor's end, for a while
	ended  chan struct{} // closed after that
}

// Open implements succession.Successor.
func (s *Successor) Open(_ uint16, p succession.Parcel) (err error) {
	f := &handover.Files{All: p.Files}
	defer f.Close()
	if err := failpoint.Hit(failpoint.Taking); err != nil {
		return err
	}
	i := &inheritance{&upgrades{}, &listeners{gate: newGate()}}
	if err := handover.Adopt(p.State, func(s *handover.State) { handOverOpening(s, f, i.upgrades, i.listeners) }); err != nil {
		return err
	}
	s.Super.inherits = i
	if s.daemon, err = NewUnder(s.Super, s.Config, s.Log); err != nil {
		return err
	}
	s.Confine(s.daemon)
	return nil
}

// Adopt implements succession.Successor. The engine's thread does not run yet.
func (s *Successor) Adopt(_ uint16, p succession.Parcel) error {
	f := &handover.Files{All: p.Files}
	defer f.Close()
	if err := failpoint.Hit(failpoint.Adopt); err != nil {
		return err
	}
	r, err := handover.Read(p.State)
	if err != nil {
		return err
	}
	d, stood := s.daemon, time.Time{}
	h := newHeirs(d, r)
	d.handOver(r, f, h, &stood, &d.summed.journal)
	err = d.engine.Adopt(r, h)
	h.complete(r)
	r.End()
	if err = cmp.Or(err, r.Close(), failpoint.Hit(failpoint.Adopted), s.Asked()); err != nil {
		h.leave()
		return err
	}
	d.noteDrains()
	d.loop.show()
	d.loop.long.note() // the predecessor may have been about to look for holes
	d.inherited = &inherited{heirs: h, stood: stood, serves: s.Serves, gone: s.Gone, ended: make(chan struct{})}
	return nil
}

// Leave removes the files of a daemon that does not take over after all. The process must end
// after that. Clients and the predecessor notice nothing.
func (s *Successor) Leave() {
	if d := s.daemon; d != nil {
		d.listeners.close()
		_ = errors.Join(d.listFile.Close(), d.statFile.Close())
	}
}

// Daemon is the daemon that has taken over, ready to Run.
func (s *Successor) Daemon() *Daemon { return s.daemon }

// takeOver has d serve in the place of its predecessor. The engine's thread has started.
func (d *Daemon) takeOver() {
	i := d.inherited
	if i == nil {
		return
	}
	if err := errors.Join(d.listeners.own(d.config().SocketMode), d.ownStats()); err != nil {
		d.log.Error("takes over, but not all files", "err", err)
	}
	i.heirs.start()
	d.tookOver(i.stood)
}

// waitForEnd tells the predecessor, if there is one, that d serves, and waits for its end: a
// supervisor heeds only the main process. Run calls it once.
func (d *Daemon) waitForEnd() {
	i := d.inherited
	if i == nil {
		return
	}
	if i.serves != nil {
		i.serves()
	}
	if i.gone != nil {
		i.gone()
	}
	close(i.ended)
}
