package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rdsd/rdsd/internal/failpoint"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/succession"
	"golang.org/x/sys/unix"
)

// A planned restart: this file has the daemon that hands over, successor.go the one that
// takes over. Who starts that one and how the two talk is package succession's
// (docs/adr/0032).

// haltTime bounds how long the engine may need to stand still. It goes on for up to one second, and then needs 50 ms and what
// breaking off takes.
const haltTime = 4 * time.Second

// foreignEnd is how long the daemon, which serves, waits for the end of a process that was to take over
// and was not started by it, before it removes what that one has left.
const foreignEnd = time.Second

// scrapeTime bounds how long the daemon waits, and serves, for scrapes of its metrics that are
// in progress. Others wait for the successor.
const scrapeTime = time.Second

// handing is what a daemon needs to hand over.
type handing struct {
	starter *succession.Starter // nil: see refusal; used under mu
	refusal error               // why there is no starter; set before Run
	alone   bool                // this process is nothing but the daemon; set before Run
	netns   uint64              // its network namespace, see netns.Number; set before Run
	ctx     context.Context     // ends when the daemon is to shut down
	stop    context.CancelFunc
	mu      sync.Mutex    // held while a hand-over is in progress
	over    chan struct{} // closed when another daemon serves; under mu
	foreign bool          // that one was not started by this daemon; under mu
	lost    error         // the other daemon has ended, so that none serves; under mu
	handed  []*session    // by their numbers in the state of the last attempt; under mu
}

func newHanding() *handing {
	h := &handing{over: make(chan struct{}), refusal: fmt.Errorf("%w: this daemon is part of another program", unix.ENOTSUP)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// keepStarter starts the process that can start a successor (docs/adr/0032). folders are those
// that this daemon may write. Without the starter the daemon serves all the same.
func (d *Daemon) keepStarter(folders []string) {
	h := d.handing
	if os.Getpid() == 1 {
		h.refusal = fmt.Errorf("%w: the daemon is process 1, whose end ends the container: start the new container with rdsd -take-over", unix.ENOTSUP)
		return
	}
	if h.starter, h.refusal = succession.NewStarter(folders); h.refusal != nil {
		d.log.Warn("no planned restarts", "err", h.refusal)
		h.refusal = fmt.Errorf("%w: %w", unix.ENOTSUP, h.refusal)
	}
}

// TakenOver reports whether a daemon serves in the place of d that d has not started. It follows Run.
func (d *Daemon) TakenOver() bool {
	d.handing.mu.Lock()
	defer d.handing.mu.Unlock()
	return d.handing.foreign && d.handing.lost == nil
}

// mayHand returns an error, ENOTSUP, if d can never hand over.
func (d *Daemon) mayHand() error { return d.handing.refusal }

// hand has a successor take over. binary is its program; empty: the one at the path of this
// daemon's. If the error is nil, the successor has taken over, and Run returns: with handing.lost
// if that one has ended since. Otherwise reload says that a signal has asked for a reload, which
// is due now.
//
// What cannot be taken over of a process does not keep the daemon from being replaced: its
// session ends, and another successor is started. All that one attempt finds end together, because
// each attempt is a pause for everybody. That is so as often as there are processes when
// hand begins, and not more, so that no user can make it go on for ever.
func (d *Daemon) hand(binary string) (reload bool, err error) {
	for tries := d.admission.processes(); ; tries-- {
		reload, err = d.handOnce(func() (*candidate, error) { return d.startSuccessor(binary) })
		if tries <= 0 || !d.endFaulty(handover.FaultsIn(err)) {
			return reload, err
		}
		if reload {
			_, _ = d.Reload() // it logs the result
		}
	}
}

// errNotTaken ends the session of a process of which something cannot be taken over.
var errNotTaken = errors.New("a planned restart cannot take this process over")

// endFaulty ends the sessions with faults. It returns false if there is none, or if one of them
// is not that of a client.
func (d *Daemon) endFaulty(faults handover.Faults) bool {
	h := d.handing
	h.mu.Lock()
	handed := h.handed
	h.mu.Unlock()
	for _, f := range faults {
		if uint64(f.Session) >= uint64(len(handed)) || handed[f.Session].cl == nil {
			return false
		}
		s := handed[f.Session]
		if err := s.askIn(context.Background(), func() error {
			d.engine.Expel(s.cl, fmt.Errorf("%w: %w", errNotTaken, f.Err))
			return nil
		}); err != nil {
			return false
		}
	}
	return len(faults) > 0
}

// candidate is a process that is to take over.
type candidate struct {
	link    *succession.Link
	pid     int                 // 0: in another pid namespace
	process *succession.Process // nil: it cannot be seen
	started bool                // by this daemon's starter; else it has come by itself
	once    sync.Once
}

func (c *candidate) close() {
	c.once.Do(func() {
		c.link.Close()
		c.process.Close()
	})
}

// handOnce is one attempt.
func (d *Daemon) handOnce(start func() (*candidate, error)) (reload bool, err error) {
	h := d.handing
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false, errShutdown
	}
	if i := d.inherited; i != nil { // until then the supervisor would not heed MAINPID= of this process
		select {
		case <-i.ended:
		case <-h.ctx.Done():
			return false, errShutdown
		}
	}
	d.refuseReloads() // both daemons have one configuration
	c, err := start()
	if err != nil {
		return d.allowReloads(), err
	}
	defer c.close()
	if err := d.handTo(c.link); err != nil {
		return d.allowReloads(), d.endSuccessor(c, err)
	}
	if err := c.link.AwaitServing(c.process); err != nil {
		h.lost = fmt.Errorf("process %d: %w: its log says why", c.pid, err)
	}
	if h.foreign = !c.started; c.started {
		d.leaveTo(c.pid)
	}
	if h.lost == nil {
		d.log.Info("handed over", "pid", c.pid)
	}
	return false, nil
}

// leaveTo leaves the service to the successor that the starter has started. Called with handing.mu.
func (d *Daemon) leaveTo(pid int) {
	h := d.handing
	var signals []unix.Signal
	if d.allowReloads() {
		signals = append(signals, unix.SIGHUP)
	}
	if h.ctx.Err() != nil { // whoever asked for the end meant the service
		signals = append(signals, unix.SIGTERM)
	}
	// The starter ends first: systemd supervises only a main process that is its child.
	if err := h.starter.Leave(signals...); err != nil {
		d.log.Warn("the starter does not end", "err", err)
	}
	if h.lost == nil {
		d.notify.MainPID(pid)
	}
}

// endSuccessor ends the successor that has not taken over because of why. One that this daemon has
// not started has been told, and ends by itself. endSuccessor returns why, with what is known of its end.
func (d *Daemon) endSuccessor(c *candidate, why error) error {
	late := errors.Is(why, os.ErrDeadlineExceeded)
	if !c.started {
		c.link.GiveUp(why) // unless it knows
		_ = c.process.EndsWithin(foreignEnd)
		d.removeAside()
		if errors.Is(why, succession.ErrGone) {
			return fmt.Errorf("%w (its log says why)", why)
		}
		return why
	}
	how, err := d.handing.starter.Kill(late)
	d.removeAside()
	switch {
	case err != nil:
		return fmt.Errorf("%w; process %d is not killed: %w", why, c.pid, err)
	case errors.Is(why, succession.ErrGone):
		return fmt.Errorf("%w (%s; its log says why)", why, how)
	case late:
		return fmt.Errorf("%w (the log has what it was doing)", why)
	}
	return why
}

// handTo hands over to the successor at the other end of link. If the error is nil, that one
// serves, and Run returns.
func (d *Daemon) handTo(link *succession.Link) error {
	p := &predecessor{Daemon: d}
	if err := succession.HandOver(link, p); err != nil {
		return err
	}
	d.loop.leave(p.pause)
	close(d.handing.over)
	return nil
}

// startSuccessor starts the successor.
func (d *Daemon) startSuccessor(binary string) (*candidate, error) {
	if err := failpoint.Hit(failpoint.Successor); err != nil {
		return nil, err
	}
	link, theirs, err := succession.NewPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := &candidate{link: link, started: true}
	if c.pid, err = d.handing.starter.Start(binary, theirs); err != nil {
		c.close()
		return nil, err
	}
	if c.process, err = succession.OpenProcess(c.pid); err != nil {
		err = d.endSuccessor(c, err)
		c.close()
		return nil, err
	}
	return c, nil
}

// endHanding lets a hand-over in progress come to its end. It reports whether another daemon
// serves. Otherwise the daemon is to shut down, and no other hand-over begins.
func (d *Daemon) endHanding() bool {
	h := d.handing
	select {
	case <-h.over:
		h.mu.Lock()
	default:
		h.stop() // now, because Run's own way to do so may be late
		if !h.mu.TryLock() {
			d.log.Info("asked to end, waits for the end of the hand-over in progress")
			h.mu.Lock()
		}
	}
	defer h.mu.Unlock()
	if h.starter != nil {
		h.starter.Close()
	}
	select {
	case <-h.over:
		return true
	default:
		return false
	}
}

// predecessor is a daemon that hands over (succession.Predecessor).
type predecessor struct {
	*Daemon
	pause *pause // from Park on
}

// Opening implements succession.Predecessor.
func (p *predecessor) Opening(version uint16) (succession.Parcel, error) {
	if err := failpoint.Hit(failpoint.Passing); err != nil {
		return succession.Parcel{}, err
	}
	s, f := handover.Write(version), &handover.Files{}
	handOverOpening(s, f, p.upgrades, p.listeners)
	return succession.Parcel{State: s.Bytes(), Files: f.All}, nil
}

// Park implements succession.Predecessor.
func (p *predecessor) Park(version uint16) (parcel succession.Parcel, err error) {
	p.listeners.shut()
	if p.metrics != nil {
		p.metrics.Settle(scrapeTime)
	}
	if err := p.admission.recess(p.handing.ctx, version >= 3); err != nil {
		p.Resume()
		return parcel, err
	}
	if parcel, err = p.still(version); err != nil {
		p.Resume()
	}
	return parcel, err
}

// still brings the engine to a stand and returns the state. The engine's thread stands still then.
func (p *predecessor) still(version uint16) (parcel succession.Parcel, err error) {
	ctx, cancel := context.WithTimeout(p.handing.ctx, haltTime)
	defer cancel()
	p.countDropped()
	if p.pause, err = p.standStill(ctx); err != nil {
		return parcel, err
	}
	if err := failpoint.Hit(failpoint.Park); err != nil {
		return parcel, err
	}
	s, f := handover.Write(version), &handover.Files{}
	h, stood := p.sessionsToHand(), p.upgrades.since()
	p.handOver(s, f, h, &stood, p.summed.journal.copy())
	err = p.engine.Encode(s, h.number())
	if s.End(); err != nil {
		return parcel, err
	}
	return succession.Parcel{State: s.Bytes(), Files: f.All}, nil
}

// standStill has the engine end what lost its session in the recess or has too much to be handed
// over, and stand still then.
func (d *Daemon) standStill(ctx context.Context) (*pause, error) {
	if err := d.loop.ask(ctx, func() {
		gone := map[*session]bool{}
		d.admission.endRest(gone) // they are no excess
		d.admission.loseExcess(d.engine.Excess(d.mostHanded))
		d.admission.endRest(gone)
	}); err != nil {
		return nil, err
	}
	return d.loop.halt(ctx, d.upgrades.stands)
}

// Resume implements succession.Predecessor.
func (p *predecessor) Resume() {
	if p.pause != nil {
		p.loop.goOn(p.pause)
		p.pause = nil
	}
	p.admission.resume()
	p.listeners.open()
	p.upgrades.resumes()
}
