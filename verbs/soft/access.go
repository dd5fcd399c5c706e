package soft

import (
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
)

// region returns the region of a key for local use.
func (q *qp) region(key uint32) *mr {
	if m := q.mrs[0]; m != nil && m.key == key && !m.dead {
		return m
	}
	m := q.dev.keys.get(key)
	if m != nil && m.window != nil {
		return nil // a window's key is for the peer
	}
	q.mrs[0] = m
	return m
}

// remoteRegion returns the region of a key that the peer sent.
func (q *qp) remoteRegion(stag uint32) *mr {
	if m := q.mrs[1]; m != nil && m.key == stag && !m.dead {
		return m
	}
	m := q.dev.keys.get(stag)
	q.mrs[1] = m
	return m
}

// access checks a remote request for [to, to+n) of stag. It returns the memory, or
// which check failed.
func (q *qp) access(stag uint32, to, n uint64, right verbs.Access, begun bool) ([]byte, *mr, protection) {
	m := q.remoteRegion(stag)
	switch {
	case q.attr.Access&right == 0:
		return nil, nil, badOp
	case m == nil:
		return nil, nil, badSTag
	case m.pd != q.pd || m.owner != nil && m.owner != q || !begun && !m.open(q.attr.Peer):
		return nil, nil, badAssoc
	case to+n < to:
		return nil, nil, badWrap
	}
	b := m.slice(to, n)
	switch {
	case b == nil:
		return nil, nil, badBounds
	case m.access&right == 0:
		return nil, nil, badRights
	}
	return b, m, 0
}

// protection is the result of an access check; 0 is success.
type protection uint8

const (
	badSTag protection = iota + 1
	badBounds
	badAssoc
	badWrap
	badRights
	badOp // the queue pair does not serve this operation
)

// write and read return the Terminate code for a tagged segment and for a Read
// Request that failed the check.
func (p protection) write() iwarp.Code {
	return [...]iwarp.Code{0, iwarp.TermTaggedSTag, iwarp.TermTaggedBounds, iwarp.TermTaggedAssoc, iwarp.TermTaggedWrap, iwarp.TermAccess, iwarp.TermOpcode}[p]
}

func (p protection) read() iwarp.Code {
	return [...]iwarp.Code{0, iwarp.TermReadSTag, iwarp.TermReadBounds, iwarp.TermReadAssoc, iwarp.TermReadWrap, iwarp.TermAccess, iwarp.TermOpcode}[p]
}

// resolve finds the memory of [off, off+n) of an SGL and leaves it in the scratch of
// the device. The regions must belong to pd and grant need.
func (q *qp) resolve(sgl []verbs.SGE, pd *pd, off, n uint64, need verbs.Access) ([]piece, bool) {
	ps := q.dev.io.pieces[:0]
	for i := range sgl {
		if n == 0 {
			break
		}
		l := uint64(sgl[i].Length)
		if off >= l {
			off -= l
			continue
		}
		k := min(l-off, n)
		m := q.region(sgl[i].LKey)
		if m == nil || m.pd != pd || m.access&need != need {
			return nil, false
		}
		b := m.slice(sgl[i].Addr+off, k)
		if b == nil || sgl[i].Addr+off < off {
			return nil, false
		}
		ps = append(ps, piece{b, m})
		off = 0
		n -= k
	}
	return ps, n == 0
}
