package vmlab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdsd/rdsd/verbs"
)

// The messages of the protocol, in their order.
const (
	fuzzPLAN = iota
	fuzzREADY
	fuzzDONE
	fuzzControls
)

const (
	fuzzIova    = 0x2_0000_0000
	fuzzDepth   = 128
	fuzzWRID    = 1000 // of control messages that are sent
	fuzzInline  = 64
	fuzzHelloAt = 12 // bytes of the private data: address and key
)

// fuzzPeer is soft's side of siwfuzz.
type fuzzPeer struct {
	*lab
	planner
	mem, theirs, want []byte // own region; siw's source; what an area should contain
	mr                verbs.MR
	peerAddr          uint64
	peerKey           uint32
	round             uint32
	doing             string

	mine, theirPlan fuzzPlan
	into            [fuzzRequests][]verbs.SGE // the memory of each of siw's SENDs

	due      []int    // receives posted: the expected length, or -1 less a control message
	sent     []uint64 // signaled requests in progress
	controls [fuzzControls]uint32
	requests int
}

func newFuzzPeer(l *lab, ack verbs.AckMode, seed uint64, siwInitiates, page bool) *fuzzPeer {
	f := &fuzzPeer{lab: l, planner: planner{Rand: rand.New(rand.NewPCG(seed, 1)), page: page, inline: fuzzInline},
		mem: make([]byte, fuzzMemory), theirs: make([]byte, fuzzSourceSize), want: make([]byte, 2*fuzzArea)}
	own, other := 2*seed, 2*seed+1 // the side that connects has the even pattern
	if siwInitiates {
		own, other = other, own
	}
	fuzzPattern(f.mem, own)
	fuzzPattern(f.theirs, other)
	fillWith(f.mem[fuzzTarget:fuzzControl], fuzzSpoil(0))
	fillWith(f.want, fuzzSpoil(0))
	var err error
	if f.mr, err = l.pd.RegMR(f.mem, fuzzIova, rights); err != nil {
		l.Fatal(err)
	}
	l.qp.Destroy()
	l.qp, err = l.pd.CreateQP(verbs.QPInitAttr{
		SendCQ: l.cq, RecvCQ: l.cq, Ack: ack, Access: rights,
		Cap: verbs.QPCap{MaxSendWR: fuzzDepth, MaxRecvWR: fuzzDepth, MaxSendSGE: fuzzSGE, MaxRecvSGE: fuzzSGE,
			MaxInline: fuzzInline, ReadDepth: int(1 + f.draw(8))},
	})
	if err != nil {
		l.Fatal(err)
	}
	f.expect(fuzzPLAN, 0)
	f.expect(fuzzREADY, 0)
	return f
}

func fillWith(b []byte, v byte) {
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// hello returns the private data for siw's side.
func (f *fuzzPeer) hello() []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, fuzzIova), f.mr.RKey())
}

func (f *fuzzPeer) greeted(private []byte) error {
	if len(private) < fuzzHelloAt {
		return fmt.Errorf("%d bytes of private data", len(private))
	}
	f.peerAddr, f.peerKey = binary.LittleEndian.Uint64(private), binary.LittleEndian.Uint32(private[8:])
	return nil
}

func (f *fuzzPeer) piece(p fuzzPiece) verbs.SGE {
	return verbs.SGE{Addr: fuzzIova + uint64(p.Off), Length: p.Len, LKey: f.mr.LKey()}
}

// pump drives the device until done returns true.
func (f *fuzzPeer) pump(what string, done func() bool) error {
	f.doing = what
	for end := time.Now().Add(limit); ; {
		did := f.dev.Progress()
		f.collect()
		for len(f.wc) > 0 {
			wc := f.wc[0]
			f.wc = f.wc[1:]
			if err := f.take(wc); err != nil {
				return err
			}
			end = time.Now().Add(limit)
		}
		if done() {
			return nil
		}
		if len(f.ev) > 0 {
			return fmt.Errorf("%w: event %d: %v", errEnded, f.ev[0].Type, f.ev[0].Err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("no completion for %v: in progress %v, receives due %v, controls %v", limit, f.sent, f.due, f.controls)
		}
		if !did {
			unix.Poll([]unix.PollFd{{Fd: int32(f.dev.FD()), Events: unix.POLLIN}}, 1)
		}
	}
}

// take handles one completion.
func (f *fuzzPeer) take(wc verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("%w: completion %+v", errEnded, wc)
	}
	if wc.Op == verbs.WCRecv {
		due := f.due[0]
		f.due = f.due[1:]
		if due < 0 {
			f.controls[-1-due]++
		} else if int(wc.ByteLen) != due {
			return fmt.Errorf("SEND of %d bytes, the completion says %d", due, wc.ByteLen)
		}
		return nil
	}
	if len(f.sent) == 0 || f.sent[0] != wc.WRID {
		return fmt.Errorf("completion of request %d, in progress are %d", wc.WRID, f.sent)
	}
	f.sent = f.sent[1:]
	if wc.WRID != fuzzWRID && wc.Op == verbs.WCRDMARead && wc.ByteLen != f.mine.Request[wc.WRID].Len {
		return fmt.Errorf("READ %d of %d bytes, the completion says %d", wc.WRID, f.mine.Request[wc.WRID].Len, wc.ByteLen)
	}
	return nil
}

// controlMemory returns the slot of one of the peer's control messages.
func controlMemory(which int, round uint32) uint32 {
	return fuzzControl + fuzzSlot*(2*uint32(which)+round%2)
}

func (f *fuzzPeer) expect(which int, round uint32) {
	f.receive([]verbs.SGE{f.piece(fuzzPiece{controlMemory(which, round), fuzzSlot})}, -1-which)
}

func (f *fuzzPeer) receive(sgl []verbs.SGE, due int) {
	if _, err := f.qp.PostRecv([]verbs.RecvWR{{SGL: sgl}}); err != nil {
		f.Fatal(err)
	}
	f.due = append(f.due, due)
}

func (f *fuzzPeer) tell(which int, message []byte) error {
	off := uint32(fuzzControl + fuzzSlot*(2*fuzzControls+which))
	copy(f.mem[off:], message)
	f.sent = append(f.sent, fuzzWRID)
	_, err := f.qp.PostSend([]verbs.SendWR{{WRID: fuzzWRID, Op: verbs.OpSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{f.piece(fuzzPiece{off, uint32(len(message))})}}})
	return err
}

// readPlan reads siw's plan and posts receives for it.
func (f *fuzzPeer) readPlan() error {
	from := controlMemory(fuzzPLAN, f.round)
	if _, err := binary.Decode(f.mem[from:from+fuzzSlot], binary.LittleEndian, &f.theirPlan); err != nil {
		return err
	}
	if p := &f.theirPlan; p.Round != f.round || p.Count > fuzzRequests {
		return fmt.Errorf("siw's plan is of round %d, %d requests", p.Round, p.Count)
	}
	at := uint32(fuzzReceive)
	for i, r := range f.theirPlan.requests() {
		if r.Op != fuzzSend {
			continue
		}
		f.into[i] = nil
		left, most := r.Len, 1
		if f.oneIn(2) {
			left += f.draw(100)
		}
		if f.oneIn(2) {
			most += f.IntN(fuzzSGE)
		}
		for left > 0 {
			n := left
			if len(f.into[i])+1 < most {
				n = 1 + f.draw(int(left))
			}
			at += f.draw(fuzzGuard)
			f.into[i] = append(f.into[i], f.piece(fuzzPiece{at, n}))
			at += n
			left -= n
		}
		f.receive(f.into[i], int(r.Len))
	}
	f.expect(fuzzDONE, f.round)
	f.expect(fuzzPLAN, f.round+1)
	f.expect(fuzzREADY, f.round+1)
	return nil
}

// postMine posts the requests, several in each list.
func (f *fuzzPeer) postMine() error {
	var list []verbs.SendWR
	for i, r := range f.mine.requests() {
		wr := verbs.SendWR{WRID: uint64(i), Op: []verbs.Opcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead}[r.Op],
			Flags: verbs.SendFlags(r.Flags) & (verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited | verbs.SendInline)}
		if r.Op != fuzzSend {
			wr.RemoteAddr, wr.RKey = f.peerAddr+uint64(r.At), f.peerKey
		}
		for _, p := range r.pieces() {
			wr.SGL = append(wr.SGL, f.piece(p))
		}
		if list = append(list, wr); wr.Flags&verbs.SendSignaled != 0 {
			f.sent = append(f.sent, wr.WRID)
		}
		if r.Flags&fuzzAlone == 0 && i+1 < int(f.mine.Count) {
			continue
		}
		if _, err := f.qp.PostSend(list); err != nil {
			return err
		}
		list = nil
	}
	return nil
}

// gather appends the data of a SEND or WRITE to to.
func (r *fuzzRequest) gather(to, source []byte) []byte {
	for _, p := range r.pieces() {
		to = append(to, source[p.Off:p.Off+p.Len]...)
	}
	return to
}

// compare checks the memory at an offset.
func (f *fuzzPeer) compare(what string, request int, at uint32, right []byte) error {
	got := f.mem[at : int(at)+len(right)]
	if bytes.Equal(got, right) {
		return nil
	}
	first, wrong := -1, 0
	for i := range right {
		if got[i] != right[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Errorf("%s, request %d: byte %d of %d at %#x is %02x, want %02x; %d bytes are wrong",
		what, request, first, len(right), int(at)+first, got[first], right[first], wrong)
}

// verifyReads checks that the sink has what was READ. It keeps track in want of siw's target, as
// this side has written it before each READ.
func (f *fuzzPeer) verifyReads() error {
	for i := range f.mine.requests() {
		r := &f.mine.Request[i]
		from := f.theirs
		if r.Flags&fuzzFromTarget != 0 {
			from = f.want[:fuzzArea]
			r = &fuzzRequest{Op: r.Op, At: r.At - fuzzTarget, Pieces: r.Pieces, Piece: r.Piece}
		}
		switch r.Op {
		case fuzzWrite:
			r.gather(f.want[r.At-fuzzTarget:][:0], f.mem)
		case fuzzRead:
			off := r.At
			for _, p := range r.pieces() {
				if err := f.compare("READ", i, p.Off, from[off:off+p.Len]); err != nil {
					return err
				}
				off += p.Len
				fillWith(f.mem[p.Off:p.Off+p.Len], fuzzSpoil(f.round))
			}
		}
	}
	fillWith(f.want[:fuzzArea], fuzzSpoil(f.round))
	return f.clean("beside the READs", fuzzSink)
}

// clean checks that an area is spoiled as before the round, and spoils it for the next round.
func (f *fuzzPeer) clean(what string, area uint32) error {
	if err := f.compare(what, -1, area, f.want[:fuzzArea]); err != nil {
		return err
	}
	fillWith(f.mem[area:area+fuzzArea], fuzzSpoil(f.round+1))
	return nil
}

// verifyArrived checks that the memory of receives and the target have what siw has sent.
func (f *fuzzPeer) verifyArrived() error {
	for i, r := range f.theirPlan.requests() {
		switch r.Op {
		case fuzzWrite:
			r.gather(f.want[r.At-fuzzTarget:][:0], f.theirs)
		case fuzzSend:
			message := r.gather(nil, f.theirs)
			for _, s := range f.into[i] {
				p := fuzzPiece{uint32(s.Addr - fuzzIova), min(s.Length, uint32(len(message)))}
				if err := f.compare("SEND", i, p.Off, message[:p.Len]); err != nil {
					return err
				}
				if message = message[p.Len:]; p.Len > 0 {
					fillWith(f.mem[p.Off:p.Off+p.Len], fuzzSpoil(f.round))
				}
			}
		}
	}
	if err := f.clean("WRITEs", fuzzTarget); err != nil {
		return err
	}
	fillWith(f.want[:fuzzArea], fuzzSpoil(f.round))
	if err := f.clean("beside the SENDs", fuzzReceive); err != nil {
		return err
	}
	fillWith(f.want[:fuzzArea], fuzzSpoil(f.round+1))
	return nil
}

// runRound does what run_round in siwfuzz.c does.
func (f *fuzzPeer) runRound() error {
	f.mine = f.make(f.round)
	has := func(which int) func() bool { return func() bool { return f.controls[which] > f.round } }
	steps := []func() error{
		func() error { return f.tell(fuzzPLAN, f.mine.encode()) },
		func() error { return f.pump("wait for PLAN", has(fuzzPLAN)) },
		f.readPlan,
		func() error { return f.tell(fuzzREADY, make([]byte, 16)) },
		func() error { return f.pump("wait for READY", has(fuzzREADY)) },
		f.postMine,
		func() error { return f.pump("wait for completions", func() bool { return len(f.sent) == 0 }) },
		f.verifyReads,
		func() error { return f.tell(fuzzDONE, make([]byte, 16)) },
		func() error {
			return f.pump("wait for DONE", func() bool { return has(fuzzDONE)() && len(f.sent) == 0 })
		},
		f.verifyArrived,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("round %d, %s: %w", f.round, f.doing, err)
		}
	}
	f.requests += int(f.mine.Count + f.theirPlan.Count)
	return nil
}
