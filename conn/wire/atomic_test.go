package wire

import "testing"

func TestAtomicGolden(t *testing.T) {
	a := Atomic{RKey: 0x01020304, Region: 0x05060708, Addr: 0x1112131415161718, Kind: AtomicCmpSwap,
		CompareAdd: 0x21, Swap: 0x31, CompareMask: 0x41, SwapMask: 0x51}
	b := make([]byte, AtomicLen)
	a.Put(b)
	golden(t, "atomic", b)
	var got Atomic
	if err := ParseAtomic(append(b, 0xff), &got); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range b {
		if ParseAtomic(b[:n], &got) == nil {
			t.Errorf("request cut to %d bytes accepted", n)
		}
	}
	for _, kind := range []byte{0, 3, 0xff} {
		b[16] = kind
		if ParseAtomic(b, &got) == nil {
			t.Errorf("kind %d accepted", kind)
		}
	}
}

func TestResultGolden(t *testing.T) {
	r := Result{Notice: Notice{Seq: 1, DPort: 2, SPort: 3, SrcInc: 4}, Status: AtomicAlign, Old: 0x0102030405060708}
	b := r.Append(nil)
	golden(t, "result", b)
	if got, err := ParseResult(append(b, 0xff)); err != nil || got != r || len(b) != ResultLen {
		t.Errorf("%+v, %v, %d bytes", got, err, len(b))
	}
	for n := range b {
		if _, err := ParseResult(b[:n]); err == nil {
			t.Errorf("body cut to %d bytes accepted", n)
		}
	}
	for _, st := range []AtomicStatus{AtomicNobody, 1 << 31} {
		r.Status = st
		if _, err := ParseResult(r.Append(nil)); err == nil {
			t.Errorf("status %d accepted", st)
		}
	}
}
