package judge

import (
	"fmt"
	"net/netip"

	"github.com/rdsd/rdsd/e2e/ledger/book"
)

// region is memory that a socket registered.
type region struct {
	id      uint64
	owner   *life
	at      int64
	len     uint64
	rights  uint64
	grantee netip.AddrPort // port 0: every socket of that host
	release int64          // Release was called
	freed   int64          // and returned nil
	counted bool           // word is known
	word    uint64         // that fetch-adds of 1 went to, when Release returned
}

// addMemory takes what an application saw in memory that it handed out.
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
		g.counted, g.word = true, r.C
	}
}

// addData takes a receiver's look at the memory that a message wrote.
func (j *Judge) addData(l *life, r book.Record) {
	if r.Text == "bad" {
		j.violate(Violation{Rule: "data", Life: uint32(r.A), Seq: r.Seq, Region: r.B,
			Text: fmt.Sprintf("message %d of life %d was received by %v, whose memory does not have what it wrote", r.Seq, uint32(r.A), l)})
	}
}

// judgeRegions: fetch-adds ran once if they succeeded, and never twice; a
// region for one use served one message.
func (j *Judge) judgeRegions() {
	type sum struct {
		sure, maybe uint64
		uses        int
		olds        map[uint64]bool
	}
	sums := map[uint64]*sum{}
	each := func(l *life, m *message, o *operation) {
		s := sums[o.region]
		if s == nil {
			s = &sum{olds: map[uint64]bool{}}
			sums[o.region] = s
		}
		if o.status == "success" {
			s.uses++
		}
		if o.kind != "add" || j.forbids(l, m, o) != "" {
			return
		}
		switch o.status {
		case "success":
			s.sure++
			if o.seen && s.olds[o.local] {
				j.wrong("atomic", l, m, "has the old value %d, which another fetch-add had, too", o.local)
			}
			if o.seen {
				s.olds[o.local] = true
			}
		case "remote error":
		default:
			s.maybe++
		}
	}
	for _, l := range j.lives {
		for i := range l.msgs {
			for _, o := range l.msgs[i].ops {
				if o != nil && !l.msgs[i].failed {
					each(l, &l.msgs[i], o)
				}
			}
		}
	}
	for id, s := range sums {
		r := j.regions[id]
		if r == nil {
			continue
		}
		if r.counted && (r.word < s.sure || r.word > s.sure+s.maybe) {
			j.violate(Violation{Rule: "atomic", Life: r.owner.id, Region: id, Text: fmt.Sprintf("region %#x of %v counted %d; %d fetch-adds succeeded, %d more may have run", id, r.owner, r.word, s.sure, s.maybe)})
		}
		if r.rights&useOnce != 0 && s.uses > 1 {
			j.violate(Violation{Rule: "use once", Life: r.owner.id, Region: id, Text: fmt.Sprintf("region %#x of %v is for one use, %d operations succeeded", id, r.owner, s.uses)})
		}
	}
}
