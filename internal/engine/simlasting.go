package engine

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/conn"
	"github.com/rdsd/rdsd/internal/config"
)

// Progress says which of the things that last over time an engine has at a moment, for the
// simulator, whose table of features says what each is.
type Progress struct {
	LongOperation, OneUse, OtherLane, FurtherPath, Copy, Run, CarriedAtomic bool
	Refusing, RefusingHere, Overflow, Assembly, UntoldStatus, UntoldNotice  bool
	Limit, Revocation, Drain, Pause, Congested, Full, ManySockets, Asking   bool
	StatusWanted, Traced, ForAnybody                                        bool
}

// manySockets is from where a process is taken to have many: more than a record of the state
// that is handed over has bytes.
const manySockets = 21

// InProgress looks through all of e, so that it is slow.
func InProgress(e *Engine) (p Progress) {
	p.Drain = e.drains.all || len(e.drains.of) > 0
	p.Pause, p.Copy, p.Overflow = e.Halts(), e.loop.jobs.n > 0, e.rx.overflow.used > 0
	p.Assembly, p.Revocation = e.rx.unfinished.N > 0, e.keys.revoking.N > 0
	for l := e.keys.all.Head; l != nil; l = l.Next {
		p.OneUse = p.OneUse || l.Of.rights&abi.UseOnce != 0
	}
	for _, q := range e.peers.all {
		p.OtherLane = p.OtherLane || q.lane > 0 && q.isUp
		p.FurtherPath = p.FurtherPath || q.path > 0 && q.isUp
		p.Asking = p.Asking || len(q.asks.of) > 0
		i := q.c.Info()
		p.Refusing = p.Refusing || i.State == conn.Up && i.Stopped > 0
	}
	for _, l := range e.addrs.all {
		p.Congested = p.Congested || l.cong.Count() > 0
	}
	for _, c := range e.clients.all {
		p.client(c)
	}
	return p
}

func (p *Progress) client(c *Client) {
	a := c.acct
	p.Full = p.Full || uint64(a.ops) >= a.quota[config.Operations] || uint64(a.grants) >= a.quota[config.Grants]
	p.UntoldStatus = p.UntoldStatus || c.pendOps.N > 0
	p.UntoldNotice = p.UntoldNotice || c.pendNote.N > 0
	n := 0
	for _, s := range c.socks {
		if s == nil || s.closed {
			continue
		}
		n++
		p.RefusingHere = p.RefusingHere || s.waiters.N > 0
		for l := s.txs.Head; l != nil; l = l.Next {
			p.message(l.Of)
		}
	}
	p.ManySockets = p.ManySockets || n >= manySockets
}

func (p *Progress) message(t *txMsg) {
	p.LongOperation = p.LongOperation || t.long != nil
	p.Limit = p.Limit || t.limit.When() != 0
	if t.done() {
		return
	}
	p.Run, p.StatusWanted, p.Traced = p.Run || t.m.Run > 1, p.StatusWanted || t.notify, p.Traced || t.m.Traceparent != nil
	p.ForAnybody = p.ForAnybody || t.m.Anybody && t.m.DstInc == 0
	for _, o := range t.ops() {
		_, away := t.slot.way.(*peer) // on this host nothing carries it
		p.CarriedAtomic = p.CarriedAtomic || o.Kind.Atomic() && away
	}
}

// Lasting names the fields of the engine's records in which something can last from one turn to
// another: lists, alarms, tables and what is done in parts, as record.field. Links, which say
// where a record is in such a list, and pools of unused records do not count.
func Lasting() []string {
	found, seen := map[string]bool{}, map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			if t.Kind() == reflect.Map {
				walk(t.Key())
			}
			walk(t.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[t] || !strings.Contains(t.PkgPath(), "rdsd/rdsd/") || slices.Contains([]string{"stats", "shm"}, t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]) {
			return
		}
		seen[t] = true
		for f := range fieldsOf(t) {
			switch name, _, _ := strings.Cut(f.Type.Name(), "["); {
			case name == "Link" || name == "Pool":
				continue
			case !f.Anonymous && (slices.Contains(lasting, name) || f.Type.Kind() == reflect.Map):
				found[t.Name()+"."+f.Name] = true
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Engine]())
	return slices.Sorted(maps.Keys(found))
}

// lasting are the types of such fields, besides maps.
var lasting = []string{"List", "Alarm", "Alarms", "Work", "Rounds", "Chore", "msgList", "audience"}

func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}
