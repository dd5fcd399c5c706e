package stats

import (
	"time"

	"github.com/rdsd/rdsd/internal/handover"
)

// SetInfo changes who the writer is: the instance and start of the daemon before.
func (b *Block) SetInfo(info Info) {
	b.mem[wPID], b.mem[wInstance], b.mem[wStart] = uint64(info.PID), info.Instance, uint64(info.Start)
}

// SetInfo is Block.SetInfo for the lists.
func (l *Lists) SetInfo(info Info) {
	l.mem[lPID], l.mem[lInstance] = uint64(info.PID), info.Instance
}

// HandOver has what was counted go over. Counters go by their names, because a daemon of another
// version has others. Gauges do not go over: they follow from the rest of the state. A block that goes
// on from a state counts nothing yet but gauges, and is published.
func (b *Block) HandOver(s *handover.State) {
	s.Begin(handover.TagStats)
	b.handOverCounters(s)
	s.U64s(&b.turns, &b.turnSum, &b.turnMax)
	s.Table(b.hist[:])
	for _, t := range []*Times{&b.Messages, &b.Operations} {
		s.U64(&t.Sum)
		s.Table(t.Counts[:])
	}
	var sum uint64
	for _, v := range b.hist {
		sum += v
	}
	if sum != b.turns {
		s.Fail("%d turns, %d by their duration", b.turns, sum)
	}
	s.End()
	if s.Reads() && s.Err() == nil {
		b.Publish(time.Now().UnixNano())
	}
}

// handOverCounters has the counters go over. One that this version does not have is passed over.
func (b *Block) handOverCounters(s *handover.State) {
	var all []Counter
	byName := map[string]Counter{}
	for c := range NumCounters {
		if !c.Gauge() {
			all = append(all, c)
			byName[c.String()] = c
		}
	}
	seen := map[string]bool{}
	for i := range s.Count(len(all), maxCounters, 4+8) {
		name, v := "", uint64(0)
		if !s.Reads() {
			name, v = all[i].String(), b.C[all[i]]
		}
		s.String(&name, maxName)
		s.U64(&v)
		if seen[name] || !validName([]byte(name)) {
			s.Fail("a counter %q, or twice", name)
			return
		}
		seen[name] = true
		c, ok := byName[name]
		if ok && s.Reads() {
			b.C[c] = v
		}
	}
}
