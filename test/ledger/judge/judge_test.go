package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/test/ledger/book"
)

const second = int64(1e9)

var (
	here  = netip.MustParseAddrPort("127.0.0.1:4000")
	here2 = netip.MustParseAddrPort("127.0.0.1:4001")
	there = netip.MustParseAddrPort("127.0.0.2:5000")
	// Sockets: s sends, t2 has another port of the same process, d and e have the destination's
	// port one after the other.
	s, t2, d, e = book.LifeOf(1, 1), book.LifeOf(1, 2), book.LifeOf(2, 1), book.LifeOf(3, 1)
)

// history is a campaign of a few records, in the order of their times.
type history struct {
	records []book.Record
	now     int64
}

func (h *history) add(life uint32, r book.Record) *history {
	h.now += second / 100
	r.Life, r.At = life, h.now
	h.records = append(h.records, r)
	return h
}

func (h *history) later(ns int64) *history { h.now += ns; return h }

// begin binds s, t2 and d.
func begin() *history {
	h := &history{}
	return h.bind(s, here).bind(t2, here2).bind(d, there)
}

func (h *history) bind(life uint32, at netip.AddrPort) *history {
	return h.add(life, book.Record{Kind: book.Binding, Peer: at}).add(life, book.Record{Kind: book.Bind, Peer: at})
}

// send adds a send of message seq of a life, with flags and operations.
func (h *history) send(life uint32, seq uint64, flags uint64, ops ...book.Record) *history {
	sent := book.Record{Kind: book.Sent, Seq: seq}
	for _, o := range ops {
		o.Kind, o.Seq, o.Peer = book.Op, seq, there
		flags |= book.FlagOp
		if o.Text == "add" || o.Text == "swap" {
			sent.B = seq
		} else {
			sent.A = seq
		}
		h.add(life, o)
	}
	return h.add(life, book.Record{Kind: book.Try, Seq: seq, Peer: there, A: 100, B: 7, C: flags}).add(life, sent)
}

func (h *history) recv(life uint32, from uint32, seq uint64) *history {
	return h.add(life, book.Record{Kind: book.Recv, Peer: here, A: uint64(from), Seq: seq, B: 100, C: 7})
}

func (h *history) status(seq uint64, text string, errno uint64) *history {
	return h.add(s, book.Record{Kind: book.Status, Seq: seq, A: seq, B: errno, Text: text})
}

func (h *history) close(life uint32) *history {
	return h.add(life, book.Record{Kind: book.Close}).add(life, book.Record{Kind: book.Closed})
}

func (h *history) notice(text string, n uint64) *history {
	return h.add(s, book.Record{Kind: book.Notice, Peer: there, A: n, Text: text})
}

func (h *history) ended() *history {
	at := netip.AddrPortFrom(there.Addr(), 0)
	return h.add(0, book.Record{Kind: book.Ending, Peer: at}).add(0, book.Record{Kind: book.Ended, Peer: at})
}

// upgraded has another process take over from the daemon at an address.
func (h *history) upgraded(at netip.AddrPort) *history {
	at = netip.AddrPortFrom(at.Addr(), 0)
	return h.add(0, book.Record{Kind: book.Upgrade, Peer: at}).add(0, book.Record{Kind: book.Upgraded, Peer: at})
}

func (h *history) settled(life uint32) *history { return h.add(life, book.Record{Kind: book.Barrier}) }

func (h *history) mark(value uint64) *history {
	return h.add(s, book.Record{Kind: book.Mark, Peer: netip.AddrPortFrom(there.Addr(), 0), A: value})
}

// region makes region 9 of d, which s may write to and add to. It has 1000 bytes.
func (h *history) region() *history {
	return h.add(d, book.Record{Kind: book.Region, A: 9, B: 1000, C: allowWrite | allowAtomic, Peer: here})
}

func (h *history) about(k book.Kind, c uint64, text string) *history {
	return h.add(d, book.Record{Kind: k, A: 9, C: c, Text: text})
}

// acked gives s the zero-copy cookie of its message seq, which must have asked for one.
func (h *history) acked(seq uint64) *history {
	return h.add(s, book.Record{Kind: book.Acked, Seq: seq})
}

// swap is a compare-and-swap. swapped makes it succeed with an old value.
func swap(compare uint64) book.Record {
	return book.Record{Text: "swap", A: 9, B: 8<<32 | 8, C: compare}
}

func (h *history) swapped(seq, compare, old uint64) *history {
	return h.send(s, seq, 0, swap(compare)).recv(d, s, seq).add(s, book.Record{Kind: book.Status, Seq: seq, C: 1, Text: "success"}).
		add(s, book.Record{Kind: book.Local, Seq: seq, A: old, C: 1})
}

func (h *history) words(swapped uint64) *history {
	return h.add(d, book.Record{Kind: book.Words, A: 9, B: swapped})
}

func write(off, n uint64) book.Record { return book.Record{Text: "write", A: 9, B: off<<32 | n} }
func add() book.Record                { return book.Record{Text: "add", A: 9, B: 8} }

func (h *history) verdict() *Report {
	j := New()
	for _, r := range h.records {
		j.Add(r)
	}
	return j.Verdict()
}

// TestVerdicts judges histories that are right, and histories that break one rule each.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		h    *history
		want string // the one rule that is broken, "" for none
	}{
		{"delivered", begin().send(s, 1, 0).recv(d, s, 1).settled(s).settled(d), ""},
		{"twice", begin().send(s, 1, 0).recv(d, s, 1).recv(d, s, 1), "twice"},
		{"twice, by the next owner", begin().send(s, 1, 0).recv(d, s, 1).close(d).bind(e, there).recv(e, s, 1), "twice"},
		{"out of order", begin().send(s, 1, 0).send(s, 2, 0).recv(d, s, 2).recv(d, s, 1), "order"},
		{"never sent", begin().recv(d, s, 1), "invented"},
		{"changed", begin().send(s, 1, 0).add(d, book.Record{Kind: book.Recv, Peer: here, A: uint64(s), Seq: 1, B: 100, C: 8}), "content"},
		{"at another port", begin().send(s, 1, 0).add(t2, book.Record{Kind: book.Recv, Peer: here, A: uint64(s), Seq: 1, B: 100, C: 7}), "routing"},
		{"failed", begin().add(s, book.Record{Kind: book.Try, Seq: 1, Peer: there, A: 100, B: 7}).add(s, book.Record{Kind: book.Fail, Seq: 1}).recv(d, s, 1), "failed send"},
		{"killed in the send", begin().add(s, book.Record{Kind: book.Try, Seq: 1, Peer: there, A: 100, B: 7}).recv(d, s, 1), ""},

		{"too short for a number", begin().send(s, 1, 0).send(s, 2, book.FlagShort).recv(d, s, 1).recv(d, 0, 0), ""},
		{"too short, twice", begin().send(s, 1, 0).send(s, 2, book.FlagShort).recv(d, s, 1).recv(d, 0, 0).recv(d, 0, 0), "twice"},

		{"too short, of a former socket at the same port", begin().send(s, 1, 0).send(s, 2, book.FlagShort).recv(d, s, 1).recv(d, s, 0).close(s).
			bind(t2+1, here).send(t2+1, 1, 0).send(t2+1, 2, book.FlagShort).close(d).bind(e, there).recv(e, t2+1, 1).recv(e, t2+1, 0).settled(t2 + 1), ""},
		{"too short, of an unknown sender and then of a known one", begin().send(s, 1, 0).send(s, 2, book.FlagShort).recv(d, s, 1).close(s).
			bind(t2+1, here).send(t2+1, 1, 0).send(t2+1, 2, book.FlagShort).close(d).bind(e, there).recv(e, 0, 0).close(e).bind(e+1, there).
			recv(e+1, t2+1, 1).recv(e+1, t2+1, 0).settled(t2 + 1), ""},
		{"too short, received before it was sent", begin().send(s, 1, 0).recv(d, s, 1).recv(d, 0, 0).send(s, 2, book.FlagShort).recv(d, 0, 0), "twice"},
		{"lost", begin().send(s, 1, 0).settled(s).settled(d), "lost"},
		{"lost between two", begin().send(s, 1, 0).send(s, 2, 0).send(s, 3, 0).recv(d, s, 1).recv(d, s, 3).later(9 * second).close(d), "lost"},
		{"unread", begin().send(s, 1, 0).send(s, 2, 0).recv(d, s, 1).close(d).settled(s), ""},
		{"told", begin().close(d).send(s, 1, 0).notice("no socket", 1).settled(s), ""},
		{"nobody there and not told", begin().close(d).later(second).send(s, 1, 0).settled(s), "lost"},
		{"unread, though what was sent later was read", begin().send(s, 1, book.FlagCookie).acked(1).send(t2, 1, 0).
			add(d, book.Record{Kind: book.Recv, Peer: here2, A: uint64(t2), Seq: 1, B: 100, C: 7}).close(d).settled(s), "lost"},
		{"acked before its receiver was bound", begin().close(d).send(s, 1, book.FlagCookie).acked(1).bind(e, there).close(e).settled(s), "lost"},
		{"a cookie twice", begin().send(s, 1, book.FlagCookie).recv(d, s, 1).acked(1).acked(1), "zero copy"},
		{"a cookie that was not asked for", begin().send(s, 1, 0).recv(d, s, 1).acked(1), "zero copy"},
		{"a cookie that does not come", begin().send(s, 1, book.FlagCookie).recv(d, s, 1).settled(s), "zero copy"},
		{"told of one who was named, then of one who was met", begin().send(s, 1, 0).recv(d, s, 1).
			add(s, book.Record{Kind: book.Try, Seq: 2, Peer: there, A: 100, B: 7, Text: fmt.Sprint(e)}).add(s, book.Record{Kind: book.Sent, Seq: 2}).
			notice("no socket", 1).close(d).bind(e, there).send(s, 3, 0).notice("no socket", 1).settled(s).settled(e), ""},
		{"told in vain", begin().send(s, 1, 0).notice("no socket", 1).settled(s).settled(d), "told and delivered"},
		{"lost in vain", begin().send(s, 1, 0).notice("lost", 1).settled(s).settled(d), "told and delivered"},
		{"unreachable, and nothing had happened", begin().notice("unreachable", 0), "notice"},
		{"unreachable behind a fault", begin().add(0, book.Record{Kind: book.Fault, Peer: netip.AddrPortFrom(there.Addr(), 0), Text: "reset"}).notice("unreachable", 0), ""},
		{"down behind a process that was stopped", begin().add(0, book.Record{Kind: book.Fault, Peer: netip.AddrPortFrom(there.Addr(), 0), A: 2, Text: "stop process"}).notice("peer down", 0), "notice"},
		{"down and up, once for each upgrade of the peer's daemon", begin().upgraded(there).notice("peer down", 1).notice("peer up", 1).
			upgraded(there).notice("peer down", 1).notice("peer up", 1), ""},
		{"down twice, by one upgrade of the peer's daemon", begin().upgraded(there).notice("peer down", 1).notice("peer down", 1), "notice"},
		{"up twice, by one upgrade of the peer's daemon", begin().upgraded(there).notice("peer down", 1).notice("peer up", 1).notice("peer up", 1), "notice"},
		{"down, by an upgrade of the own daemon", begin().upgraded(here).notice("peer down", 1), "notice"},
		{"unreachable, by an upgrade of the peer's daemon", begin().upgraded(there).notice("unreachable", 0), "notice"},
		{"lost, by an upgrade of the peer's daemon", begin().send(s, 1, 0).upgraded(there).notice("lost", 1).settled(s).settled(d), "told and delivered"},
		{"told too often", begin().send(s, 1, 0).send(s, 2, 0).recv(d, s, 1).notice("no socket", 2).close(d), "told and delivered"},
		{"gave up without a limit", begin().send(s, 1, 0).recv(d, s, 1).notice("gave up", 1), "told and delivered"},
		{"gave up", begin().send(s, 1, book.FlagLimit).notice("gave up", 1).settled(s).settled(d), ""},
		{"cancelled", begin().send(s, 1, 0).add(s, book.Record{Kind: book.Cancel, Peer: there}).settled(s).settled(d), ""},
		{"sent after the cancel", begin().add(s, book.Record{Kind: book.Cancel, Peer: there}).send(s, 1, 0).settled(s).settled(d), "lost"},
		{"withdrawn by its sender's close", begin().send(s, 1, 0).close(s).settled(d), ""},
		{"withdrawn though it was acked", begin().send(s, 1, book.FlagCookie).acked(1).later(9 * second).close(s).settled(d), "lost"},
		{"a later one found no socket, this one was handed back", begin().send(s, 1, 0).
			add(s, book.Record{Kind: book.Try, Seq: 2, Peer: there, A: 100, B: 7, C: book.FlagCookie, Text: fmt.Sprint(e)}).add(s, book.Record{Kind: book.Sent, Seq: 2}).
			notice("no socket", 1).acked(2).send(t2, 1, 0).add(d, book.Record{Kind: book.Recv, Peer: here2, A: uint64(t2), Seq: 1, B: 100, C: 7}).close(d).settled(s), ""},
		{"met by what was sent before the notice was read", begin().send(s, 1, 0).close(d).bind(e, there).notice("no socket", 1).send(s, 2, 0).recv(e, s, 2).
			close(e).bind(e+1, there).later(second).send(s, 3, 0).notice("no socket", 1).settled(s), ""},
		{"its cookie, had it not been killed", begin().send(s, 1, book.FlagCookie).recv(d, s, 1).add(s, book.Record{Kind: book.Close, A: 1}).
			add(s, book.Record{Kind: book.Closed}).add(0, book.Record{Kind: book.Kill, A: 1}).add(0, book.Record{Kind: book.Dead, A: 1}), ""},
		{"no cookie behind CloseWait", begin().send(s, 1, book.FlagCookie).recv(d, s, 1).add(s, book.Record{Kind: book.Close, A: 1}).
			add(s, book.Record{Kind: book.Closed}), "zero copy"},
		{"an offer was not granted", begin().send(s, 1, book.FlagOffer).notice("not granted", 1).settled(s).settled(d), ""},
		{"nothing was offered", begin().send(s, 1, 0).recv(d, s, 1).notice("not granted", 1), "told and delivered"},
		{"overtaken, just before its sender's close", begin().send(s, 1, 0).send(s, 2, 0).recv(d, s, 2).close(s).settled(d), "lost"},
		{"told too late", begin().close(d).send(s, 1, 0).bind(e, there).send(s, 2, 0).recv(e, s, 2).close(s).settled(e), ""},
		{"overtaken, long before its sender's close", begin().send(s, 1, 0).send(s, 2, 0).recv(d, s, 2).later(60 * second).close(s).settled(d), "lost"},
		{"its memory was released while others waited behind it", begin().region().send(s, 1, 0, write(0, 10)).send(s, 2, 0).
			about(book.Release, 0, "").recv(d, s, 2).close(s).settled(d), ""},
		{"its memory was released too late for others to overtake it", begin().region().send(s, 1, 0, write(0, 10)).send(s, 2, 0).
			recv(d, s, 2).about(book.Release, 0, "").close(s).settled(d), "lost"},
		{"the last message", begin().send(s, 1, book.FlagRoll).settled(s).settled(d).close(d), "lost"},

		{"bound twice", begin().bind(e, there), "bind"},
		{"session ended", begin().add(s, book.Record{Kind: book.Gone, Text: "why"}), "session"},
		{"close at the end", begin().settled(s).add(s, book.Record{Kind: book.Closed, Text: "timeout"}), "close"},

		{"success", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0).mark(1).settled(s), ""},
		{"success and not delivered", begin().region().send(s, 1, 0, write(0, 10)).status(1, "success", 0).settled(s).settled(d), "lost"},
		{"success, silent", begin().region().send(s, 1, book.FlagSilent, write(0, 10)).status(1, "success", 0).settled(s).settled(d), ""},
		{"silent and delivered", begin().region().send(s, 1, book.FlagSilent, write(0, 10)).status(1, "success", 0).recv(d, s, 1), "silent"},
		{"dropped", begin().region().send(s, 1, 0, write(0, 10)).status(1, "dropped", 0).settled(s).settled(d), ""},
		{"dropped and delivered", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "dropped", 0), "status"},
		{"unknown and delivered", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).ended().status(1, "unknown", 0), ""},
		{"unknown without a cause", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "unknown", 0), "status"},
		{"unknown, with a limit", begin().region().send(s, 1, book.FlagLimit, write(0, 10)).recv(d, s, 1).status(1, "unknown", 0), ""},
		{"nobody cancelled", begin().region().send(s, 1, 0, write(0, 10)).status(1, "canceled", 0), "status"},
		{"two statuses", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0).status(1, "success", 0), "status"},
		{"no status", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).settled(s), "status"},
		{"two fates", begin().region().send(s, 1, 0, write(0, 10), add()).recv(d, s, 1).status(1, "success", 0).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "unknown"}), "status"},

		{"beyond the region", begin().region().send(s, 1, 0, write(991, 10)).recv(d, s, 1).status(1, "success", 0), "access"},
		{"refused beyond the region", begin().region().send(s, 1, 0, write(991, 10)).status(1, "remote error", 34), ""},
		{"refused by a device", begin().region().send(s, 1, 0, write(991, 10)).status(1, "remote error", 0), "refusal"},
		{"refused without a reason", begin().region().send(s, 1, 0, write(0, 10)).status(1, "remote error", 22), "refusal"},
		{"refused after Release", begin().region().about(book.Release, 0, "").send(s, 1, 0, write(0, 10)).status(1, "remote error", 22), ""},
		{"a short one refused by a device after Release", begin().region().send(s, 1, 0, write(0, 10)).about(book.Release, 0, "").status(1, "remote error", 0), "refusal"},
		{"a later piece refused after Release", begin().region().send(s, 1, 0, write(0, 2<<20)).about(book.Release, 0, "").status(1, "remote error", 0), ""},
		{"a piece refused", begin().region().send(s, 1, 0, write(0, 2<<20)).status(1, "remote error", 0), "refusal"},
		{"refused for a quota", begin().region().send(s, 1, 0, write(0, 10)).status(1, "remote error", enobufs), "refusal"},
		{"success behind its owner's close", begin().region().close(d).bind(e, there).send(s, 1, 0, write(0, 10)).status(1, "success", 0).close(e).close(s), "access"},
		{"success behind its owner's close, silent", begin().region().close(d).send(s, 1, book.FlagSilent, write(0, 10)).status(1, "success", 0), ""},
		{"granted to another", begin().region().send(t2, 1, 0, write(0, 10)).
			add(t2, book.Record{Kind: book.Status, Seq: 1, A: 1, Text: "success"}).close(d).close(t2), "access"},
		{"after Release", begin().region().about(book.Release, 0, "").about(book.Freed, 0, "").send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0), "access"},
		{"memory changed after Release", begin().region().about(book.Release, 0, "").about(book.Freed, 0, "").about(book.After, 0, "it was written"), "access"},
		{"memory without the data", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0).
			add(d, book.Record{Kind: book.Data, A: uint64(s), Seq: 1, B: 9, Text: "bad"}), "data"},
		{"read something else", begin().add(d, book.Record{Kind: book.Region, A: 9, B: 1000, C: allowRead, Peer: here}).
			send(s, 1, 0, book.Record{Text: "read", A: 9, B: 10, C: 5}).recv(d, s, 1).status(1, "success", 0).add(s, book.Record{Kind: book.Local, Seq: 1, A: 6}), "data"},

		{"counted", begin().region().send(s, 1, 0, add()).recv(d, s, 1).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "success"}).about(book.Words, 1, ""), ""},
		{"ran twice", begin().region().send(s, 1, 0, add()).recv(d, s, 1).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "success"}).about(book.Words, 2, ""), "atomic"},
		{"did not run", begin().region().send(s, 1, 0, add()).recv(d, s, 1).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "success"}).about(book.Words, 0, ""), "atomic"},
		{"may have run", begin().region().send(s, 1, book.FlagLimit, add()).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "unknown"}).about(book.Words, 1, "").close(d), ""},
		{"was dropped, and ran", begin().region().send(s, 1, 0, add()).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "dropped"}).about(book.Words, 1, "").close(d), "atomic"},
		{"unknown without a cause", begin().region().send(s, 1, 0, add()).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "unknown"}).about(book.Words, 1, "").close(d), "status"},
		{"an old value twice", begin().region().send(s, 1, 0, add()).recv(d, s, 1).send(s, 2, 0, add()).recv(d, s, 2).
			add(s, book.Record{Kind: book.Status, Seq: 1, C: 1, Text: "success"}).add(s, book.Record{Kind: book.Status, Seq: 2, C: 1, Text: "success"}).
			add(s, book.Record{Kind: book.Local, Seq: 1, C: 1}).add(s, book.Record{Kind: book.Local, Seq: 2, C: 1}), "atomic"},
		{"swapped", begin().region().swapped(1, 0, 0).swapped(2, book.SwapValue(s, 1), book.SwapValue(s, 1)).swapped(3, 5, 7).words(book.SwapValue(s, 2)), ""},
		{"swapped, one did not run", begin().region().swapped(1, 0, 0).words(0), "atomic"},
		{"swapped, one ran twice", begin().region().swapped(1, 0, 0).swapped(2, 0, 0).words(book.SwapValue(s, 2)), "atomic"},
		{"swapped out of what nobody stored", begin().region().swapped(1, 3, 3).words(book.SwapValue(s, 1)), "atomic"},
		{"used twice", begin().add(d, book.Record{Kind: book.Region, A: 9, B: 1000, C: allowWrite | useOnce, Peer: here}).
			send(s, 1, 0, write(0, 10)).recv(d, s, 1).send(s, 2, 0, write(0, 10)).recv(d, s, 2).status(1, "success", 0).status(2, "success", 0), "use once"},

		{"the mark falls", begin().region().send(s, 1, 0, write(0, 10)).send(s, 2, 0, write(0, 10)).recv(d, s, 1).recv(d, s, 2).
			status(1, "success", 0).status(2, "success", 0).mark(2).mark(1), "mark"},
		{"the mark passes what was not sent", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0).mark(2), "mark"},
		{"the mark stays", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0).later(60 * second).settled(s), "mark"},
		{"memory used above the mark", begin().region().send(s, 1, 0, write(0, 10)).recv(d, s, 1).status(1, "success", 0).mark(1).
			add(s, book.Record{Kind: book.Touched, Seq: 1}), "mark"},

		{"an operation's message at the next owner", begin().region().close(d).bind(e, there).send(s, 1, 0, write(0, 10)).recv(e, s, 1), "next owner"},
		{"the next owner, met after the former", begin().send(s, 1, 0).recv(d, s, 1).send(s, 2, 0).close(d).bind(e, there).recv(e, s, 2), "next owner"},
		{"the next owner, met after a notice", begin().send(s, 1, 0).recv(d, s, 1).close(d).send(s, 2, 0).notice("no socket", 1).send(s, 3, 0).bind(e, there).recv(e, s, 3), ""},
		{"the next owner, the first message was cancelled", begin().send(s, 1, 0).add(s, book.Record{Kind: book.Cancel, Peer: there}).recv(d, s, 1).close(d).bind(e, there).send(s, 2, 0).recv(e, s, 2), ""},
		{"the next owner, though the former was named", begin().add(s, book.Record{Kind: book.Try, Seq: 1, Peer: there, A: 100, B: 7, Text: fmt.Sprint(d)}).
			add(s, book.Record{Kind: book.Sent, Seq: 1}).close(d).bind(e, there).recv(e, s, 1), "next owner"},
		{"the next owner, met first", begin().send(s, 1, 0).close(d).bind(e, there).recv(e, s, 1), ""},
		{"the next owner, met after its daemon began anew", begin().send(s, 1, 0).recv(d, s, 1).send(s, 2, 0).ended().bind(e, there).recv(e, s, 2), ""},
	} {
		r := c.h.verdict()
		var rules []string
		for _, v := range r.Violations {
			rules = append(rules, v.Rule)
		}
		slices.Sort(rules)
		if got := strings.Join(slices.Compact(rules), ", "); got != c.want {
			t.Errorf("%s: %q, want %q: %v", c.name, got, c.want, r.Violations)
		}
	}
}

// TestKilled: a message of a killed process may be missing, and its port is free.
func TestKilled(t *testing.T) {
	h := begin().send(s, 1, 0).send(s, 2, 0).recv(d, s, 1)
	h.add(0, book.Record{Kind: book.Kill, A: 2}).add(0, book.Record{Kind: book.Dead, A: 2})
	h.send(s, 3, 0).notice("no socket", 1)
	h.bind(e, there).send(s, 4, 0).recv(e, s, 4).settled(s).settled(e)
	if r := h.verdict(); len(r.Violations) > 0 || r.Excused[unread] != 2 {
		t.Errorf("%v, excused %v", r.Violations, r.Excused)
	}
}

// TestClosedAsDaemonEnds: a daemon that is ending may take messages for a socket that has been
// closed.
func TestClosedAsDaemonEnds(t *testing.T) {
	at := netip.AddrPortFrom(there.Addr(), 0)
	h := begin().add(0, book.Record{Kind: book.Ending, Peer: at}).close(d).send(s, 1, book.FlagCookie).acked(1).
		add(0, book.Record{Kind: book.Ended, Peer: at}).settled(s)
	if r := h.verdict(); len(r.Violations) > 0 || r.Excused[unread] != 1 {
		t.Errorf("%v, excused %v", r.Violations, r.Excused)
	}
}

// TestBoundAsDaemonEnds: a daemon that is ending may still bind. The socket ends with it.
func TestBoundAsDaemonEnds(t *testing.T) {
	at := netip.AddrPortFrom(there.Addr(), 0)
	h := begin().close(d).add(0, book.Record{Kind: book.Ending, Peer: at}).bind(e, there).add(0, book.Record{Kind: book.Ended, Peer: at}).
		add(e, book.Record{Kind: book.Gone, Text: "gone"}).add(0, book.Record{Kind: book.Serving, Peer: at}).bind(book.LifeOf(3, 2), there)
	if r := h.verdict(); len(r.Violations) > 0 {
		t.Errorf("%v", r.Violations)
	}
}

// TestKilledInBind: a process that is killed in Bind may have had the socket for a moment.
func TestKilledInBind(t *testing.T) {
	h := begin().close(d).add(e, book.Record{Kind: book.Binding, Peer: there}).send(s, 1, book.FlagCookie).acked(1)
	h.add(0, book.Record{Kind: book.Kill, A: 3}).add(0, book.Record{Kind: book.Dead, A: 3}).settled(s)
	if r := h.verdict(); len(r.Violations) > 0 || r.Excused[unread] != 1 {
		t.Errorf("%v, excused %v", r.Violations, r.Excused)
	}
	h = begin().close(d).add(e, book.Record{Kind: book.Binding, Peer: there}).add(e, book.Record{Kind: book.Unbound}).send(s, 1, 0).settled(s)
	if r := h.verdict(); len(r.Violations) != 1 {
		t.Errorf("%v, excused %v", r.Violations, r.Excused)
	}
}

// TestDaemonEnded: messages that the sockets of a daemon had not read end with it, and the next
// daemon refuses its keys.
func TestDaemonEnded(t *testing.T) {
	h := begin().region().send(s, 1, 0).send(s, 2, 0, write(0, 10))
	at := netip.AddrPortFrom(there.Addr(), 0)
	h.ended()
	h.add(d, book.Record{Kind: book.Gone, Text: "gone"})
	h.add(0, book.Record{Kind: book.Serving, Peer: at})
	h.status(2, "remote error", 22).bind(e, there).settled(s).settled(e)
	if r := h.verdict(); len(r.Violations) > 0 {
		t.Errorf("%v", r.Violations)
	}
}

// TestConcerns checks that a violation concerns the records of its message and its region.
func TestConcerns(t *testing.T) {
	v := Violation{Life: s, Seq: 3, Region: 9}
	for _, c := range []struct {
		r    book.Record
		want bool
	}{
		{book.Record{Kind: book.Try, Life: s, Seq: 3}, true},
		{book.Record{Kind: book.Try, Life: s, Seq: 4}, false},
		{book.Record{Kind: book.Recv, Life: d, A: uint64(s), Seq: 3}, true},
		{book.Record{Kind: book.Recv, Life: d, A: uint64(d), Seq: 3}, false},
		{book.Record{Kind: book.Freed, Life: d, A: 9}, true},
		{book.Record{Kind: book.Bind, Life: s}, true},
		{book.Record{Kind: book.Bind, Life: d}, false},
	} {
		if got := v.Concerns(c.r); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}
