package conformance

import (
	"github.com/rdsd/rdsd/conn/frames"
	"github.com/rdsd/rdsd/conn/wire"
)

// datagrams takes a run apart. Each datagram has the header of its run with its own length, and
// without what says that it is of a run. Any other frame stays as it is.
func (p *peer) datagrams(f inFrame) (out []inFrame) {
	p.t.Helper()
	n, ok := f.Run()
	if n == 0 && ok {
		return []inFrame{f}
	}
	if _, whole := frames.Check(f.body, n); !ok || !whole {
		p.t.Errorf("a run that is none: %+v, %x", f.Header, f.body)
		return nil
	}
	f.run = n
	f.Flags &^= wire.FlagRun
	f.Ext = [wire.ExtLen]byte{}
	for rest := f.body; len(rest) > 0; f.nth++ {
		f.body, rest, _ = frames.Next(rest)
		f.Len = uint32(len(f.body))
		out = append(out, f)
	}
	return out
}
