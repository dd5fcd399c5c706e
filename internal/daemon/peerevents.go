package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/engine"
	"github.com/rdsd/rdsd/verbs"
)

// maxPeerEvents is how many events of peers wait for the log.
const maxPeerEvents = 256

// peerEvents carries the engine's events about peers to the log. The engine never waits
// for the log: an event that finds the queue full is lost and counted.
type peerEvents struct {
	queue chan peerEvent
	lost  atomic.Uint64
}

type peerEvent struct {
	about engine.Place
	event string
	err   error
}

func newPeerEvents() *peerEvents {
	return &peerEvents{queue: make(chan peerEvent, maxPeerEvents)}
}

// put queues an event. It never blocks.
func (p *peerEvents) put(about engine.Place, event string, err error) {
	select {
	case p.queue <- peerEvent{about, event, err}:
	default:
		p.lost.Add(1)
	}
}

// write writes the queued events to the log until ctx ends.
func (p *peerEvents) write(ctx context.Context, to *summedLog) {
	for {
		select {
		case e := <-p.queue:
			var args []any
			if e.about.Local.IsValid() {
				args = append(args, "local", e.about.Local, "peer", e.about.Remote)
			}
			if e.about.OfLane {
				args = append(args, "lane", e.about.Lane)
			}
			event := e.event
			if errors.Is(e.err, verbs.ErrEnded) {
				event += ": " + verbs.ErrEnded.Error() // is no error
			} else if e.err != nil {
				args = append(args, "err", e.err)
			}
			level := slog.LevelInfo
			if e.event == engine.EventFellBack || e.event == conn.EventNarrow || ctl.TurnsAway(e.event) {
				level = slog.LevelWarn
			}
			to.write(time.Now(), level, e.about.Remote, event, args...)
		case <-ctx.Done():
			return
		}
	}
}
