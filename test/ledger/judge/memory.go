package judge

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/test/ledger/book"
)

// region is memory that a socket registered.
type region struct {
	id      uint64
	owner   *life
	at      int64
	len     uint64
	rights  uint64
	grantee netip.AddrPort // port 0: every socket of the host
	release int64          // when Release was called
	freed   int64          // when Release returned nil
	counted bool           // word and swapped are known
	word    uint64         // value of the fetch-add word when Release returned; every operation adds 1
	swapped uint64         // value of the compare-and-swap word then
	uses    int            // how many operations on it may have been accepted
}

// addMemory adds a record of an application about memory that it registered.
func (j *Judge) addMemory(l *life, r book.Record) {
	if r.Kind == book.Data {
		j.addData(l, r)
		return
	}
	if r.Kind == book.Region {
		j.regions[r.A] = &region{id: r.A, owner: l, at: r.At, len: r.B, rights: r.C, grantee: r.Peer}
		return
	}
	g := j.regions[r.A]
	if g == nil {
		j.violate(Violation{Rule: "log", Life: l.id, Text: fmt.Sprintf("%s of region %#x, which is none", r.Kind, r.A)})
		return
	}
	switch r.Kind {
	case book.Release:
		g.release = r.At
	case book.Freed:
		if r.Text == "" {
			g.freed = r.At
		}
	case book.After:
		if r.Text != "" {
			j.violate(Violation{Rule: "access", Life: l.id, Region: g.id, Text: fmt.Sprintf("region %#x of %v after its Release: %s", g.id, l, r.Text)})
		}
	case book.Words:
		g.counted, g.word, g.swapped = true, r.C, r.B
	}
}

// addData adds a record of a receiver that looked at the memory which a message wrote.
func (j *Judge) addData(l *life, r book.Record) {
	if r.Text == "bad" {
		j.violate(Violation{Rule: "data", Life: uint32(r.A), Seq: r.Seq, Region: r.B,
			Text: fmt.Sprintf("message %d of life %d was received by %v, whose memory does not have what it wrote", r.Seq, uint32(r.A), l)})
	}
}

func (j *Judge) countUses(order []*life) {
	for _, l := range order {
		for i := range l.msgs {
			for _, o := range l.msgs[i].ops {
				if o != nil && !l.msgs[i].failed && j.regions[o.region] != nil {
					j.regions[o.region].uses++
				}
			}
		}
	}
}

// uses are the effects of operations on a region.
type uses struct {
	sure, maybe uint64 // fetch-adds that ran, and more that may have run
	succeeded   int
	olds        map[uint64]bool
	swaps       map[uint64]uint64 // what successful swaps stored, by what they replaced
	unsure      map[uint64]bool   // values that other swaps may have stored
}

// judgeRegions judges that atomics ran once if they succeeded, and never twice. It also judges
// that a region for one use served one message.
func (j *Judge) judgeRegions() {
	all := map[uint64]*uses{}
	for _, l := range j.lives {
		for i := range l.msgs {
			for _, o := range l.msgs[i].ops {
				if o != nil && !l.msgs[i].failed {
					u := all[o.region]
					if u == nil {
						u = &uses{olds: map[uint64]bool{}, swaps: map[uint64]uint64{}, unsure: map[uint64]bool{}}
						all[o.region] = u
					}
					j.addUse(u, l, &l.msgs[i], o)
				}
			}
		}
	}
	for id, u := range all {
		r := j.regions[id]
		if r == nil {
			continue
		}
		wrong := func(rule, format string, args ...any) {
			j.violate(Violation{Rule: rule, Life: r.owner.id, Region: id, Text: fmt.Sprintf("region %#x of %v ", id, r.owner) + fmt.Sprintf(format, args...)})
		}
		if r.counted && (r.word < u.sure || r.word > u.sure+u.maybe) {
			wrong("atomic", "counted %d; %d fetch-adds succeeded, %d more may have run", r.word, u.sure, u.maybe)
		}
		if r.counted && !u.mayEndAt(r.swapped) {
			wrong("atomic", "ended with %#x; compare-and-swaps replaced %v, %d more may have run", r.swapped, u.swaps, len(u.unsure))
		}
		if r.rights&useOnce != 0 && u.succeeded > 1 {
			wrong("use once", "is for one use, %d operations succeeded", u.succeeded)
		}
	}
}

// addUse adds what operation o of message m of l did, or may have done.
func (j *Judge) addUse(u *uses, l *life, m *message, o *operation) {
	if o.status == "success" {
		u.succeeded++
	}
	if o.kind != "add" && o.kind != "swap" || j.forbids(l, m, o) != "" || o.status == "remote error" {
		return
	}
	if o.status == "dropped" && l.addr.Addr() != m.dst.Addr() {
		return // its message, which carries it, was not accepted
	}
	done := o.status == "success"
	switch store := book.SwapValue(l.id, m.seq); {
	case o.kind == "add" && done:
		u.sure++
		if o.seen && u.olds[o.local] {
			j.wrong("atomic", l, m, "has the old value %d, which another fetch-add had, too", o.local)
		}
		if o.seen {
			u.olds[o.local] = true
		}
	case o.kind == "add":
		u.maybe++
	case !done || !o.seen:
		u.unsure[store] = true
	case o.local == o.compare:
		if by, twice := u.swaps[o.local]; twice {
			j.wrong("atomic", l, m, "replaced %#x, which %#x had replaced", o.local, by)
		}
		u.swaps[o.local] = store
	}
}

// mayEndAt reports whether last can be the word's value at the end. Each swap stores a value
// that nothing else stores. So the swaps that ran form a chain from 0 to the last value.
func (u *uses) mayEndAt(last uint64) bool {
	if _, replaced := u.swaps[last]; replaced {
		return false
	}
	if len(u.unsure) > 0 {
		return true // any of these may have run after the known ones
	}
	at := uint64(0)
	for range u.swaps {
		next, ok := u.swaps[at]
		if !ok {
			return false
		}
		at = next
	}
	return at == last
}
