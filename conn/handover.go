package conn

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/internal/handover"
	"github.com/rdsd/rdsd/internal/mutant"
)

var errNotDown = errors.New("conn: handed over before it is halted and Down")

// allPorts is how many ports there are.
const allPorts = 1 << 16

// mostListed bounds a list of messages in a state that is read.
const mostListed = 1 << 24

// Encode returns the state that a Conn needs that takes this one's place in another
// process, in a version of internal/handover. The Conn is halted and Down. number names a
// message of the host for Adopt's find.
func (c *Conn) Encode(version uint16, number func(*Msg) uint32) ([]byte, error) {
	c.calls.called(callDrive)
	switch {
	case version < handover.Oldest || version > handover.Newest:
		return nil, fmt.Errorf("conn: hand over in version %d: there are %d to %d", version, handover.Oldest, handover.Newest)
	case !c.halt.on || c.state != Down || c.closed:
		return nil, errNotDown
	}
	w := handover.NewWriter(version)
	c.encode(w, number)
	return w.Bytes(), nil
}

func (c *Conn) encode(w *handover.Writer, number func(*Msg) uint32) {
	w.Begin(handover.TagConn)
	w.U64(c.peer)
	last := c.in.last
	if mutant.On(mutant.HandoverReceived) {
		last = 0
	}
	w.U64(last)
	w.U64(c.out.nextTx)
	w.U64(c.settling.acked)
	w.I64(c.settling.expires)
	w.I64(c.redial.ceiling)
	w.I64(c.redial.at)
	w.I64(c.since)
	w.Int(c.halt.again)
	w.Bool(c.k.on)
	w.Bool(c.cong.told)
	why := ""
	if c.why != nil {
		why = c.why.Error()
	}
	w.String(why[:min(len(why), mostWhy)])
	encodeStats(w, &c.stats)
	w.I64(c.rtt.Last)
	w.I64(c.rtt.Smoothed)
	w.I64(c.rtt.Least)
	w.I64(c.rtt.At)
	w.Count(len(c.in.refusing))
	for _, p := range slices.Sorted(maps.Keys(c.in.refusing)) { // so that the same state has the same bytes
		w.U16(p)
	}
	var m [cong.Len]byte
	if c.cong.remote.Empty() {
		w.Blob(nil)
	} else {
		c.cong.remote.Put(m[:])
		w.Blob(m[:])
	}
	w.Count(len(c.stops.list))
	for _, st := range c.stops.list {
		w.U16(st.port)
		w.Bool(st.stopped && !mutant.On(mutant.HandoverStopped))
		encodeList(w, &st.refused, number)
		encodeList(w, &st.behind, number)
	}
	for _, l := range c.kept() {
		encodeList(w, l, number)
	}
	w.End()
}

// mostWhy bounds the text of an error that is handed over.
const mostWhy = 1 << 10

// kept are the lists that a Conn that is Down may have messages on, stopped ports aside.
func (c *Conn) kept() [4]*msgList {
	return [4]*msgList{&c.out.rtx, &c.out.notices, &c.out.control, &c.out.queue}
}

// encodeStats writes the counters of a connection.
func encodeStats(w *handover.Writer, s *Stats) {
	v := reflect.ValueOf(s).Elem()
	w.Count(v.NumField())
	for i := range v.NumField() {
		w.U64(v.Field(i).Uint())
	}
}

func adoptStats(r *handover.Reader, s *Stats) {
	v := reflect.ValueOf(s).Elem()
	if n := r.Count(v.NumField(), 8); n != v.NumField() {
		r.Fail("%d counters of a connection, not %d", n, v.NumField())
		return
	}
	for i := range v.NumField() {
		v.Field(i).SetUint(r.U64())
	}
}

// Adopt has a new Conn go on from a state that Encode returned. It is halted then, until
// Resume. find returns the host's message of a number, or nil if there is none. After an
// error, that the state is none or does not fit together, the Conn is not to be used.
func (c *Conn) Adopt(state []byte, find func(number uint32) *Msg) error {
	c.calls.called(callDrive)
	c.halt.ops, c.halt.on = true, true
	r, err := handover.NewReader(state)
	if err != nil {
		return err
	}
	c.adopt(r, find)
	return r.Close()
}

func (c *Conn) adopt(r *handover.Reader, find func(uint32) *Msg) {
	r.Begin(handover.TagConn)
	c.peer, c.in.last, c.out.nextTx = r.U64(), r.U64(), r.U64()
	c.settling.acked, c.settling.expires = r.U64(), r.I64()
	c.redial.ceiling, c.redial.at, c.since = r.I64(), r.I64(), r.I64()
	c.halt.again = r.Int(againTries)
	c.k.on, c.cong.told = r.Bool(), r.Bool()
	if why := r.String(mostWhy); why != "" {
		c.why = errors.New(why)
	}
	switch {
	case c.out.nextTx == 0, c.settling.acked >= c.out.nextTx:
		r.Fail("the next sequence is %d, acked are %d", c.out.nextTx, c.settling.acked)
	case c.peer == 0 && c.in.last != 0:
		r.Fail("received up to %d of a peer that was never met", c.in.last)
	case c.redial.ceiling < 0 || c.redial.ceiling > c.cfg.MaxBackoff:
		r.Fail("a back-off of %d ns", c.redial.ceiling)
	}
	adoptStats(r, &c.stats)
	c.rtt.Last, c.rtt.Smoothed, c.rtt.Least, c.rtt.At = r.I64(), r.I64(), r.I64(), r.I64()
	for range r.Count(allPorts, 2) {
		c.in.refusing[r.U16()] = struct{}{}
	}
	if b := r.Blob(cong.Len); len(b) == cong.Len {
		_ = c.cong.remote.Load(b, nil)
	} else if len(b) != 0 {
		r.Fail("a congestion map of %d bytes", len(b))
	}
	m := msgReader{r: r, find: find, own: &c.own, cuts: &c.cuts, next: c.out.nextTx, stops: c.stops.of}
	c.adoptStops(&m)
	for _, l := range c.kept() {
		m.list(l, l == &c.out.rtx)
	}
	m.linkRuns()
	c.keepQueued()
	c.stops.due, c.out.untilAsk = true, askEvery
	r.End()
}

// keepQueued has stopped ports keep what a former version left in the queue for them, behind
// the rest.
func (c *Conn) keepQueued() {
	if mutant.On(mutant.AdoptedReturned) {
		return
	}
	for m := c.out.queue.head; m != nil; {
		next := m.priv.next
		if st := c.stops.stopped(m.DPort); st != nil && m.Internal == 0 {
			c.out.queue.remove(m)
			m.priv.posted = true
			st.behind.push(m)
		}
		m = next
	}
}

// adoptStops reads the ports that have refused.
func (c *Conn) adoptStops(m *msgReader) {
	r := m.r
	for range r.Count(allPorts, 2+1+4+4) {
		st := &portStop{port: r.U16(), stopped: r.Bool(), nth: len(c.stops.list)}
		st.keeps, st.resume = st.stopped, !st.stopped
		if c.stops.of[st.port] != nil {
			r.Fail("port %d has refused twice", st.port)
		}
		c.stops.of[st.port] = st
		c.stops.list = append(c.stops.list, st)
		for _, l := range st.lists() {
			m.list(l, false)
			for at := l.head; at != nil; at = at.priv.next {
				at.priv.posted = true // or a former version kept it: then it goes on like the others
			}
			if !st.stopped && l.n > 0 {
				r.Fail("port %d was released and keeps %d messages", st.port, l.n)
			}
		}
	}
}
