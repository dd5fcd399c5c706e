package engine

import "github.com/rdsd/rdsd/conn"

// numbered gives records their numbers.
type numbered[T any, P record[T]] struct{ all []*T }

// record is a record that states name by its number.
type record[T any] interface {
	*T
	place() *uint32
}

// inState is part of a record: its number in the state that is being written, or in one
// before it.
type inState struct{ n uint32 }

func (i *inState) place() *uint32 { return &i.n }

// noNumber is the number of no record.
const noNumber = ^uint32(0)

// has reports whether x, not nil, has a number.
func (n *numbered[T, P]) has(x *T) bool {
	i := *P(x).place()
	return uint64(i) < uint64(len(n.all)) && n.all[i] == x
}

// number returns the number of x, which gets the next one if it has none.
func (n *numbered[T, P]) number(x *T) uint32 {
	if x == nil {
		return noNumber
	}
	if !n.has(x) {
		*P(x).place() = uint32(len(n.all))
		n.all = append(n.all, x)
	}
	return *P(x).place()
}

// message returns the number of a client's message that a connection has: pieces follow whole
// messages.
func (h *handing) message(m *conn.Msg) uint32 {
	switch o := m.Owner.(type) {
	case *txMsg:
		if h.txs.has(o) {
			return h.txs.number(o)
		}
	case *piece:
		if h.parts.has(o) {
			return uint32(len(h.txs.all)) + h.parts.number(o)
		}
	}
	return noNumber
}
