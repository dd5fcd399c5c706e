package shm

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/rdsd/rdsd/abi"
)

var update = flag.Bool("update", false, "rewrite testdata/layout.golden")

// TestLayoutGolden compares every offset and size that two processes must agree on. A
// change needs a new Version. docs/ipc.md says what the fields mean.
func TestLayoutGolden(t *testing.T) {
	var b strings.Builder
	for _, v := range []any{Sub{}, SubOp{}, SegEntry{}, AtomicEntry{}, SubDest{}, Event{}, EventStatus{}, EventNotice{}, Slot{}, Cell{},
		WantSlot{}, WantCell{}, Params{}} {
		typ := reflect.TypeOf(v)
		fmt.Fprintf(&b, "%s %d\n", typ.Name(), typ.Size())
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Name != "_" {
				fmt.Fprintf(&b, "  %2d %2d %s\n", f.Offset, f.Type.Size(), f.Name)
			}
		}
	}
	p := DefaultParams()
	fmt.Fprintf(&b, "segment of DefaultParams %d\n", SegmentSize(p))
	for _, f := range append(Header(), Parts(p)...) {
		fmt.Fprintf(&b, "  %7d %s\n", f.Off, f.Name)
	}
	fmt.Fprintf(&b, "table of DefaultParams %d\n", TableSize(p.Slots, p.Cells))
	fmt.Fprintf(&b, "  %7d slots\n  %7d cells\n", 0, int(p.Slots)*EntrySize)
	golden(t, "layout.golden", b.String())
}

// TestDescriptorBytesGolden compares the bytes of a filled descriptor of each type, and of
// a formatted header.
func TestDescriptorBytesGolden(t *testing.T) {
	addr := [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 2}
	var b strings.Builder
	dump := func(name string, mem []byte) {
		fmt.Fprintf(&b, "%s\n", name)
		for ; len(mem) > 0; mem = mem[16:] {
			fmt.Fprintf(&b, "  % x\n", mem[:16])
		}
	}
	entry := func(name string, fill func(e *Entry)) {
		var e Entry
		fill(&e)
		dump(name, unsafe.Slice((*byte)(unsafe.Pointer(&e)), EntrySize))
	}
	entry("Sub", func(e *Entry) {
		*e.Sub() = Sub{Kind: KindSendOp, Flags: SubAckNow, Sock: 0x01020304, Slot: 0x05060708, MsgID: 0x090a0b0c,
			Chunk: 0x0d0e0f10, Len: 0x11121314, Cookie: 0x15161718191a1b1c, Off: 0x1d1e, Buf: 0x1f20, GiveUp: 0x2122, DstInc: 0x23242526}
	})
	entry("SubOp", func(e *Entry) {
		*e.SubOp() = SubOp{Op: abi.OpRead, Flags: abi.FlagNotify | abi.FlagReport, NSeg: 3, Region: 0x01020304, SegChunk: 0x05060708,
			Off: 0x1122, Len: 0x3344, Cookie: 0x5566, RemoteOff: 0x7788, Token: 0x99aa, OpID: 0xbbcc}
	})
	entry("SubDest", func(e *Entry) {
		*e.SubDest() = SubDest{Kind: KindOpenDest, Sock: 1, Slot: 2, Cell: 3, Port: 0x1234, Lane: 5, Flags: 6, Addr: addr, Gen: 0x01020304}
	})
	entry("Event", func(e *Entry) {
		*e.Event() = Event{Kind: EvData, Flags: 1, DstPort: 0x1234, Sock: 2, RxID: 3, Chunk: 4, Len: 5, SrcInc: 6,
			SrcAddr: addr, SrcPort: 0x5678, Assembly: 8, Cookie: 7, RecvTime: 0x0102030405060708}
	})
	entry("EventStatus", func(e *Entry) {
		*e.Status() = EventStatus{Kind: EvStatus, Status: abi.StatusUnknown, Sock: 1, Cell: 2, Errno: 3, Token: 4, OpID: 5}
	})
	entry("EventNotice", func(e *Entry) {
		*e.Notice() = EventNotice{Kind: EvNotice, Notice: NoticePeerDown, Port: 0x1234, Sock: 1, Slot: 2, Cell: 3, Count: 4, Addr: addr}
	})
	dump("segment header", newTestSegment(t, DefaultParams()).mem[:48])
	golden(t, "bytes.golden", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s", path, got)
	}
}

func TestEntryKind(t *testing.T) {
	var e Entry
	e.Sub().Kind = KindCancel
	if Kind(e.Kind()) != KindCancel {
		t.Error(e.Kind())
	}
	e.Notice().Kind = EvRelief
	if EvKind(e.Kind()) != EvRelief {
		t.Error(e.Kind())
	}
}

func TestOpenSegmentChecks(t *testing.T) {
	size := SegmentSize(smallParams)
	for name, tc := range map[string]struct {
		spoil func(mem []byte) []byte
		want  string
	}{
		"short":      {func(m []byte) []byte { return m[:100] }, "100 bytes"},
		"empty":      {func(m []byte) []byte { return nil }, "0 bytes"},
		"magic":      {func(m []byte) []byte { m[offMagic]++; return m }, "magic"},
		"version":    {func(m []byte) []byte { m[offVersion] = 9; return m }, "version 9, this program has 3"},
		"size":       {func(m []byte) []byte { m[offSize]++; return m }, "in the header"},
		"cut":        {func(m []byte) []byte { return m[:size-1] }, "bytes mapped"},
		"ring":       {func(m []byte) []byte { m[offParams] = 3; return m }, "SubEntries is 3"},
		"huge table": {func(m []byte) []byte { m[offParams+19] = 0xff; return m }, "Slots"},
		"unaligned":  {func(m []byte) []byte { return m[1:] }, "aligned"},
	} {
		mem := heap(size + 8)
		if _, err := NewSegment(mem, smallParams); err != nil {
			t.Fatal(err)
		}
		_, err := OpenSegment(tc.spoil(mem[:size]))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want ErrFormat with %q", name, err, tc.want)
		}
	}
}

func TestNewSegmentChecks(t *testing.T) {
	bad := smallParams
	bad.MaxRx = 0
	if _, err := NewSegment(heap(1<<20), bad); err == nil || !strings.Contains(err.Error(), "MaxRx is 0") {
		t.Errorf("bad parameters: %v", err)
	}
	if _, err := NewSegment(heap(100), smallParams); err == nil || !strings.Contains(err.Error(), "100 bytes") {
		t.Errorf("short memory: %v", err)
	}
	if _, err := NewSegment(heap(1 << 20)[1:], smallParams); err == nil || !strings.Contains(err.Error(), "aligned") {
		t.Errorf("unaligned memory: %v", err)
	}
	if err := DefaultParams().Check(); err != nil {
		t.Error(err)
	}
}

// The parts of the segment do not overlap: each word keeps a value of its own.
func TestSegmentPartsAreDisjoint(t *testing.T) {
	for _, p := range []Params{smallParams, DefaultParams(),
		{SubEntries: 2, EventEntries: 8, MaxMsgs: 2, MaxRx: 16, Slots: 3, Cells: 5, SendWindows: 1, RecvWindows: 1}} {
		s := newTestSegment(t, p)
		var words []*uint32
		for _, r := range []ring[Entry]{s.sub, s.event} {
			for i := range r.entries {
				for j := range r.entries[i] {
					w := (*[2]uint32)(unsafe.Pointer(&r.entries[i][j]))
					words = append(words, &w[0], &w[1])
				}
			}
			words = append(words, (*uint32)(unsafe.Pointer(r.head)), (*uint32)(unsafe.Pointer(r.tail)))
		}
		for _, r := range []ring[uint32]{s.sendRet, s.recvRet} {
			for i := range r.entries {
				words = append(words, &r.entries[i])
			}
			words = append(words, (*uint32)(unsafe.Pointer(r.head)), (*uint32)(unsafe.Pointer(r.tail)))
		}
		for i := range p.Slots {
			words = append(words, &s.WantSlot(i).Relief)
		}
		for i := range p.Cells {
			words = append(words, (*uint32)(unsafe.Pointer(&s.WantCell(i).Armed)))
		}
		words = append(words, (*uint32)(unsafe.Pointer(s.DaemonAsleep())), (*uint32)(unsafe.Pointer(s.ClientAsleep())))
		for i, w := range words {
			*w = uint32(i)
		}
		for i, w := range words {
			if *w != uint32(i) {
				t.Fatalf("%+v: word %d is overwritten", p, i)
			}
		}
		if got, err := OpenSegment(s.mem); err != nil || got.Params() != p {
			t.Errorf("%+v: header overwritten: %v", p, err)
		}
	}
}

func TestWantsAndTable(t *testing.T) {
	daemon, client := bothViews(t, smallParams)
	client.WantSlot(1).SetRelief()
	if daemon.WantSlot(0).TakeRelief() || !daemon.WantSlot(1).TakeRelief() || daemon.WantSlot(1).TakeRelief() {
		t.Error("relief is taken once, from its slot")
	}
	client.WantSlot(1).SetRelief()
	client.WantSlot(1).SetCrowded()
	if s := daemon.WantSlot(1); !s.TakeCrowded() || s.TakeCrowded() || !s.TakeRelief() || s.TakeRelief() {
		t.Error("the two wishes of a slot are taken once each")
	}
	w := daemon.WantCell(1)
	client.WantCell(1).StoreArmed(7)
	if w.LoadArmed() != 7 || w.CompareAndClearArmed(6) || !w.CompareAndClearArmed(7) || w.LoadArmed() != 0 {
		t.Error("an armed id is cleared by its own value only")
	}

	mem := heap(TableSize(2, 2))
	dt, ct := NewTable(mem, 2, 2), NewTable(mem, 2, 2)
	dt.Slot(1).StoreCongested(1)
	dt.Slot(1).StoreState(3)
	dt.Slot(1).StoreGen(9)
	dt.Cell(0).StoreHWM(42)
	s := ct.Slot(1)
	if s.LoadCongested() != 1 || s.LoadState() != 3 || s.LoadGen() != 9 || ct.Cell(0).LoadHWM() != 42 {
		t.Errorf("%+v %+v", s, ct.Cell(0))
	}
	if *ct.Slot(0) != (Slot{}) || *ct.Cell(1) != (Cell{}) {
		t.Error("a neighbour changed")
	}
}
