package engine

import (
	"time"

	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// Sockets and connections have rows in a mapping that can be read while the
// engine is stuck, and after it died. Nothing is written per message: with each
// publication of the counters some rows are brought up to date, in turn.
// With thousands of them it takes a second until all are.
const (
	listEvery    = 10_000_000 // ns
	listMost     = 16         // of these at once, after a sleep
	socketsEvery = 64         // in each: some 5 us
	peersEvery   = 16
)

// listed assigns the rows of one list.
type listed[T any] struct {
	rows []*T
	free []uint16
	next int // to be written
	most int
}

// add gives x a row, counted from 1; 0: there is none left.
func (l *listed[T]) add(x *T) uint16 {
	if n := len(l.free); n > 0 {
		row := l.free[n-1]
		l.free = l.free[:n-1]
		l.rows[row-1] = x
		return row
	}
	if len(l.rows) == l.most {
		return 0
	}
	l.rows = append(l.rows, x)
	return uint16(len(l.rows))
}

func (l *listed[T]) drop(row uint16) {
	l.rows[row-1] = nil
	l.free = append(l.free, row)
}

// each calls f with up to n rows, the ones after those of the last time.
func (l *listed[T]) each(n int, f func(i int, x *T)) {
	for range min(n, len(l.rows)) {
		if l.next >= len(l.rows) {
			l.next = 0
		}
		if x := l.rows[l.next]; x != nil {
			f(l.next, x)
		}
		l.next++
	}
}

// statLists is nil in engines without such a mapping.
type statLists struct {
	out   *stats.Lists
	socks listed[socket]
	peers listed[peer]
	at    Wall         // of the last publication
	info  ctl.PeerInfo // scratch of putPeer
}

func newStatLists(out *stats.Lists) *statLists {
	return &statLists{out: out, socks: listed[socket]{most: stats.MaxSockets}, peers: listed[peer]{most: stats.MaxPeers}}
}

func (w *watching) listSocket(s *socket) {
	if l := w.lists; l != nil {
		if s.row = l.socks.add(s); s.row > 0 {
			w.putSocket(int(s.row)-1, s)
		}
	}
}

func (l *statLists) dropSocket(s *socket) {
	if l != nil && s.row > 0 {
		l.socks.drop(s.row)
		l.out.PutSocket(int(s.row)-1, &stats.Socket{})
		s.row = 0
	}
}

func (l *statLists) addPeer(p *peer) {
	if l != nil {
		p.row = l.peers.add(p)
	}
}

func (l *statLists) dropPeer(p *peer) {
	if l != nil && p.row > 0 {
		l.peers.drop(p.row)
		l.out.PutPeer(int(p.row)-1, &stats.Peer{})
		p.row = 0
	}
}

// PublishLists brings rows up to date, the more the longer it was not called.
func (e *Engine) PublishLists(wall Wall) {
	l := e.watch.lists
	if l == nil {
		return
	}
	n := int(min((wall-l.at)/listEvery, listMost))
	if n == 0 {
		return
	}
	l.at = wall
	e.watch.countAcked()
	l.socks.each(n*socketsEvery, e.watch.putSocket)
	l.peers.each(n*peersEvery, e.watch.putPeer)
	l.out.Seen(int64(wall), e.watch.sockets(), len(e.peers.all))
}

func (w *watching) putSocket(row int, s *socket) {
	i := w.socketInfo(s)
	r := i.Row()
	if t := s.took; t != nil {
		r.Messages, r.Operations = t.msgs, t.ops
	}
	w.lists.out.PutSocket(row, &r)
}

func (w *watching) putPeer(row int, p *peer) {
	i, l := p.c.Info(), w.lists
	w.figures(p, &i, &l.info)
	w.lastError(p, &i, &l.info)
	r := l.info.Row()
	r.Messages, r.Operations = p.took.msgs, p.took.ops
	l.out.PutPeer(row, &r)
}

// lastError sets out to the text and the moment of i.LastError. The text is made once for each: errors may not be
// compared, but each comes with a change of these. A connection that is up has an error for errorKept at most.
func (w *watching) lastError(p *peer, i *conn.Info, out *ctl.PeerInfo) {
	if key := (whyKey{i.State, i.Since, i.RetryAt, i.Stats.ConnReset}); key != p.whyKey && i.LastError != nil {
		text := i.LastError.Error()
		switch {
		case i.State == conn.Down || i.State == conn.Error: // with the error the state began
			p.whyAt = i.Since
		case text != p.whyText || key.resets != p.whyKey.resets:
			p.whyAt = w.e.now
		}
		p.whyKey, p.whyText = key, text
	}
	if i.LastError == nil || i.State == conn.Up && w.e.now-p.whyAt > int64(errorKept) {
		return
	}
	out.LastError, out.LastErrorAt = p.whyText, w.e.at(p.whyAt)
}

// errorKept is how long the last error of a connection that is up again is shown.
const errorKept = 10 * time.Minute

type whyKey struct {
	state          conn.State
	since, retryAt int64
	resets         uint64
}
