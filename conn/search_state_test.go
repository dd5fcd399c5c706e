package conn

import (
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/rdsd/rdsd/verbs"
)

// fingerprint is a hash of all that decides what the world does next. Of a
// Conn that is every field but those below, so that a new one counts without
// anybody thinking of it: forgetting to leave one out costs time, forgetting one
// would hide states.
func (w *searchWorld) fingerprint() uint64 {
	p := printer{w: w, b: make([]byte, 0, 4096)}
	p.num(uint64(w.cuts<<20 | w.kills<<16 | w.fills<<12 | w.drop<<8 | w.cancl<<4 | w.quits))
	for _, s := range w.all {
		p.num(uint64(s.got<<16 | s.applied<<8 | s.appLife<<4 | s.life))
		p.flags(s.asked, s.local, s.done, s.ended)
		p.b = append(p.b, byte(s.outcome))
	}
	for _, h := range w.h {
		p.num(uint64(h.life<<24 | h.next<<16 | h.last<<8 | h.lastOf))
		p.num(uint64(h.out<<8 | h.active))
		for _, m := range h.away {
			p.num(uint64(m.Owner.(*searchMsg).id))
		}
		p.num(uint64(len(h.away)))
		p.flags(h.full, h.unbound, h.revoked, h.retired, h.owes)
		p.flags(h.c.cong.remote.Test(searchPort), h.c.cong.remote.Empty(), h.c.stops.resume.Test(searchPort), h.c.stops.resume.Empty())
		p.device(h.dev)
		p.seen = p.seen[:0]
		p.value(reflect.ValueOf(h.c).Elem())
	}
	return maphash.Bytes(searchSeed, p.b)
}

var searchSeed = maphash.MakeSeed()

// notState are the fields of a Conn and its parts that decide nothing: set
// once, scratch, statistics, or free lists.
var notState = map[string]bool{
	"Conn.cfg": true, "Conn.host": true, "Conn.calls": true, "Conn.now": true, "Conn.since": true, "Conn.stats": true, "Conn.why": true,
	"Scratch.wrs": true, "Scratch.sges": true, "outbox.h": true, "receiver.h": true, "link.num": true, "OwnMsgs.free": true,
	"Redial.Ceiling":    true,                             // always MinBackoff here
	"congestion.own":    true,                             // the host's
	"congestion.remote": true,                             // see below
	"portStops.turn":    true, "portStops.released": true, // there is one port
	"portStops.resume": true,                                                                                                                                 // see below
	"portStops.ports":  true, "portStop.at": true, "List.ports": true, "List.kind": true, "Track.port": true, "Track.portPrev": true, "Track.portNext": true, // follow from the lists
	"Msg.Owner": true, "Msg.Op": true, "Msg.Op2": true, "Msg.Bad": true,
}

// clocks are the fields that are times.
var clocks = map[string]bool{"Redial.At": true, "link.deadline": true, "settlement.expires": true, "ackDue.at": true}

var (
	qpType  = reflect.TypeFor[*fakeQP]()
	bufType = reflect.TypeFor[*SendBuf]()
	reqType = reflect.TypeFor[verbs.RequestID]()
)

// printer writes a state down. Pointers become the order in which they are met.
type printer struct {
	w    *searchWorld
	b    []byte
	seen []uintptr
}

func (p *printer) num(n uint64) { p.b = binary.LittleEndian.AppendUint64(p.b, n) }

func (p *printer) flags(bs ...bool) {
	var n byte
	for _, b := range bs {
		n <<= 1
		if b {
			n |= 1
		}
	}
	p.b = append(p.b, n)
}

func (p *printer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		p.flags(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.num(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Type() == reqType {
			p.qp(p.w.net.reqs[verbs.RequestID(v.Uint())])
			return
		}
		p.num(v.Uint())
	case reflect.String:
		p.b = append(append(p.b, v.String()...), 0)
	case reflect.Interface:
		if v.IsNil() {
			p.b = append(p.b, 0)
			return
		}
		p.value(v.Elem())
	case reflect.Pointer:
		p.pointer(v)
	case reflect.Slice, reflect.Array:
		p.num(uint64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
			p.b = append(p.b, v.Bytes()...)
			return
		}
		for i := range v.Len() {
			p.value(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return int(a.Uint()) - int(b.Uint()) })
		p.num(uint64(len(keys)))
		for _, k := range keys {
			p.num(k.Uint())
			p.value(v.MapIndex(k))
		}
	case reflect.Struct:
		t := v.Type()
		for i := range t.NumField() {
			f := layoutOf(t)[i]
			switch {
			case f.skip:
			case f.clock:
				p.clock(v.Field(i).Int())
			default:
				p.value(v.Field(i))
			}
		}
	case reflect.Func:
	default:
		panic("no fingerprint of a " + v.Type().String())
	}
}

func (p *printer) pointer(v reflect.Value) {
	switch v.Type() {
	case qpType:
		p.qpAt(v.Pointer())
		return
	case bufType: // one is as good as another; what is in it is on the wire
		p.flags(v.IsNil())
		return
	}
	if v.IsNil() {
		p.b = append(p.b, 0xff)
		return
	}
	at := v.Pointer()
	if i := slices.Index(p.seen, at); i >= 0 {
		p.b = append(p.b, byte(i))
		return
	}
	p.seen = append(p.seen, at)
	p.b = append(p.b, 0xfe)
	p.value(v.Elem())
}

// clock writes a time as what is left; small differences decide nothing.
func (p *printer) clock(t int64) {
	if t == 0 {
		p.num(0)
		return
	}
	p.num(uint64(1 + max(0, t-p.w.now+1e5)/1e6))
}

// qpAt writes the place of a queue pair.
func (p *printer) qpAt(at uintptr) {
	for i, h := range p.w.h {
		for j, q := range h.dev.qps {
			if reflect.ValueOf(q).Pointer() == at {
				p.b = append(p.b, byte(1+8*i+j))
				return
			}
		}
	}
	p.flags(at == 0)
}

func (p *printer) qp(q *fakeQP) { p.qpAt(reflect.ValueOf(q).Pointer()) }

// device writes what the provider holds.
func (p *printer) device(d *fakeHost) {
	p.num(uint64(len(d.qps)))
	for _, q := range d.qps {
		p.qp(q.peer)
		p.b = append(p.b, byte(q.state))
		p.flags(q.up, q.refused)
		p.num(uint64(len(q.posted)<<8 | len(q.wire)))
		for _, l := range [...][]*fakeWR{q.posted, q.wire} {
			for _, r := range l {
				p.num(r.WRID)
				p.b = append(p.b, byte(r.Op))
				p.flags(r.done)
				p.b = append(p.b, r.data...)
			}
		}
	}
	p.num(uint64(len(d.cm)))
	for i := range d.cm {
		ev := &d.cm[i]
		p.b = append(p.b, byte(ev.Type))
		if q, ok := ev.QP.(*fakeQP); ok {
			p.qp(q)
		}
		if ev.Type == verbs.CMConnectRequest {
			p.qp(p.w.net.reqs[ev.Req])
		}
		p.b = append(p.b, ev.Private...)
	}
	p.num(uint64(len(d.cq)))
	for i := range d.cq {
		e := &d.cq[i]
		at := byte(0xff) // of a queue pair that is gone: ignored
		for j, q := range d.qps {
			if q.num == e.wc.QPNum {
				at = byte(j)
			}
		}
		p.b = append(p.b, at, byte(e.wc.Op), byte(e.wc.Status))
		if at != 0xff {
			p.num(e.wc.WRID)
			p.b = append(p.b, e.buf...)
		}
	}
}

// fieldRule says what a field of a struct is to the fingerprint.
type fieldRule struct{ skip, clock bool }

// layoutOf returns the rules of t's fields.
func layoutOf(t reflect.Type) []fieldRule {
	if r, ok := layouts.Load(t); ok {
		return r.([]fieldRule)
	}
	r := make([]fieldRule, t.NumField())
	for i := range r {
		name := t.Name() + "." + t.Field(i).Name
		r[i] = fieldRule{skip: notState[name], clock: clocks[name]}
	}
	layouts.Store(t, r)
	return r
}

var layouts sync.Map // reflect.Type to []fieldRule

// TestStateRules: notState and clocks name fields that a Conn or its parts have.
func TestStateRules(t *testing.T) {
	met := map[reflect.Type]bool{}
	fields := map[string]bool{}
	var meet func(reflect.Type)
	meet = func(x reflect.Type) {
		if met[x] {
			return
		}
		met[x] = true
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			meet(x.Elem())
		case reflect.Struct:
			for i := range x.NumField() {
				fields[x.Name()+"."+x.Field(i).Name] = true
				meet(x.Field(i).Type)
			}
		}
	}
	meet(reflect.TypeFor[Conn]())
	for _, rules := range []map[string]bool{notState, clocks} {
		for name := range rules {
			if !fields[name] {
				t.Errorf("no part of a Conn has a field %s", name)
			}
		}
	}
}
