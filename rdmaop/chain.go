package rdmaop

import (
	"github.com/rdsd/rdsd/abi"
	"github.com/rdsd/rdsd/verbs"
)

// Supported reports whether a device with these capabilities can run o. Atomics need
// verbs.CapAtomics; masked atomics need verbs.CapMaskedAtomic as well.
func (o *Op) Supported(caps verbs.Caps) bool {
	need := verbs.Caps(0)
	if o.Kind.Atomic() {
		need = verbs.CapAtomics
	}
	if o.Masked() {
		need |= verbs.CapMaskedAtomic
	}
	return caps&need == need
}

// WRCount returns how many work requests AppendWRs makes of o on a device with these
// limits, not counting the SEND.
func (o *Op) WRCount(maxSGE, maxReadSGE int, maxMsg uint32) int {
	if o.Kind.Atomic() {
		return 1
	}
	n := 0
	for c := o.cut(maxSGE, maxReadSGE, maxMsg); c.next(); n++ {
		for {
			if _, ok := c.sge(); !ok {
				break
			}
		}
	}
	return n
}

// AppendWRs appends o's RDMA work requests to dst, in order. They are unsignaled and
// unfenced and have WRID 0: the caller numbers them and adds the SEND. The remote
// address starts at RemoteOff of the region and advances from request to request. A
// request has at most the device's MaxSGE (for a READ, MaxReadSGE) pieces and MaxMsg
// bytes. The pieces are appended to sges; that memory may be reused when the
// requests have been posted. For a device that does not support o (see Supported)
// nothing is appended.
func (o *Op) AppendWRs(dst []verbs.SendWR, sges *[]verbs.SGE, attr *verbs.DeviceAttr) []verbs.SendWR {
	if !o.Supported(attr.Caps) {
		return dst
	}
	wr := verbs.SendWR{RKey: o.RKey()}
	wr.RemoteAddr, _ = o.remote()
	switch o.Kind {
	case abi.OpWrite:
		wr.Op = verbs.OpRDMAWrite
	case abi.OpRead:
		wr.Op = verbs.OpRDMARead
	case abi.OpFetchAdd:
		wr.Op = verbs.OpAtomicFetchAdd
		wr.Atomic = verbs.AtomicArgs{CompareAdd: o.Atomic.CompareAdd}
	case abi.OpCmpSwap:
		wr.Op = verbs.OpAtomicCmpAndSwp
		wr.Atomic = verbs.AtomicArgs{CompareAdd: o.Atomic.CompareAdd, Swap: o.Atomic.Swap}
	}
	if o.Masked() {
		wr.Atomic.Masked = true
		wr.Atomic.CompareAddMask, wr.Atomic.SwapMask = o.Atomic.CompareMask, o.Atomic.SwapMask
	}
	s := *sges
	for c := o.cut(attr.MaxSGE, attr.MaxReadSGE, attr.MaxMsg); c.next(); {
		first := len(s)
		for {
			e, ok := c.sge()
			if !ok {
				break
			}
			s = append(s, e)
		}
		wr.SGL = s[first:len(s):len(s)]
		dst = append(dst, wr)
		wr.RemoteAddr += uint64(c.took)
	}
	*sges = s
	return dst
}

// cutter walks an operation's segments and cuts them into work requests.
type cutter struct {
	segs   []Seg  // the first one is partly used
	used   uint32 // bytes of segs[0]
	maxSGE int
	maxMsg uint32
	n      int    // pieces in this request
	took   uint32 // bytes in this request
}

func (o *Op) cut(maxSGE, maxReadSGE int, maxMsg uint32) cutter {
	if o.Kind == abi.OpRead {
		maxSGE = maxReadSGE
	}
	return cutter{segs: o.Segs, maxSGE: max(maxSGE, 1), maxMsg: max(maxMsg, 1)}
}

// next starts the next request, if there is anything left.
func (c *cutter) next() bool {
	c.n, c.took = 0, 0
	return len(c.segs) > 0
}

// sge returns the next piece of this request.
func (c *cutter) sge() (verbs.SGE, bool) {
	room := c.maxMsg - c.took
	if len(c.segs) == 0 || c.n == c.maxSGE || room == 0 {
		return verbs.SGE{}, false
	}
	s := &c.segs[0]
	e := verbs.SGE{Addr: s.Addr + uint64(c.used), Length: min(s.Len-c.used, room), LKey: s.LKey}
	c.n++
	c.took += e.Length
	if c.used += e.Length; c.used == s.Len {
		c.segs, c.used = c.segs[1:], 0
	}
	return e, true
}
