package stats

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// The lists are a mapping of their own, readable by fewer: a row for each of the
// first MaxSockets sockets and MaxPeers connections. Its words are u64 in host order:
//
//	0            header, listHeader words (the indices below)
//	offSockets   MaxSockets rows
//	offPeers     MaxPeers rows
//
// A row is a sequence word and then a Socket or Peer. The sequence is odd while
// the row is written. Both ends are of one ListVersion.
const (
	ListVersion = 3
	MaxSockets  = 4096
	MaxPeers    = 1024

	listMagic  = 0x5453494c_44534452 // "RDSDLIST"
	listHeader = 16

	socketWords = 1 + int(unsafe.Sizeof(Socket{})/8)
	peerWords   = 1 + int(unsafe.Sizeof(Peer{})/8)
	offSockets  = listHeader
	offPeers    = offSockets + MaxSockets*socketWords
	listWords   = offPeers + MaxPeers*peerWords

	// ListSize is the size of the lists' mapping in bytes. It is a multiple of the page
	// size.
	ListSize = (listWords*8 + 4095) &^ 4095
)

// Header words of the lists.
const (
	lMagic = iota // stored last
	lVersion
	lSocketWords
	lPeerWords
	lSockets // rows
	lPeers
	lPID
	lInstance
	lAt        // unix nanoseconds of the last Seen
	lSocketsOf // sockets that are bound, with a row or without
	lPeersOf
)

// Lists is the engine's side of the lists. Only one goroutine may use it. A ListReader may
// read its memory at the same time. Its methods do not allocate or block, and read nothing
// that others may write.
type Lists struct{ mem []uint64 }

// NewLists formats mem, of at least ListSize bytes.
func NewLists(mem []uint64, info Info) (*Lists, error) {
	if len(mem)*8 < ListSize {
		return nil, fmt.Errorf("stats: %d bytes of memory for lists, %d needed", len(mem)*8, ListSize)
	}
	clear(mem)
	for w, v := range listShape() {
		mem[w] = v
	}
	mem[lPID], mem[lInstance], mem[lAt] = uint64(info.PID), info.Instance, uint64(info.Start)
	atomic.StoreUint64(&mem[lMagic], listMagic)
	return &Lists{mem: mem}, nil
}

// listShape is the header words that both ends must agree on.
func listShape() map[int]uint64 {
	return map[int]uint64{lVersion: ListVersion, lSocketWords: uint64(socketWords), lPeerWords: uint64(peerWords), lSockets: MaxSockets, lPeers: MaxPeers}
}

// PutSocket writes row i, from 0 to MaxSockets-1. The zero Socket frees the row.
func (l *Lists) PutSocket(i int, s *Socket) { put(l.mem[offSockets+i*socketWords:], asRow(s)) }

// PutPeer writes row i of the connections, from 0 to MaxPeers-1. The zero Peer frees the
// row.
func (l *Lists) PutPeer(i int, p *Peer) { put(l.mem[offPeers+i*peerWords:], asRow(p)) }

// Seen writes how many sockets and connections there are. now is in unix nanoseconds.
func (l *Lists) Seen(now int64, sockets, peers int) {
	atomic.StoreUint64(&l.mem[lSocketsOf], uint64(sockets))
	atomic.StoreUint64(&l.mem[lPeersOf], uint64(peers))
	atomic.StoreUint64(&l.mem[lAt], uint64(now))
}

// put writes the words of a row that have changed.
func put(row, to []uint64) {
	i := 0
	for i < len(to) && row[1+i] == to[i] {
		i++
	}
	if i == len(to) {
		return
	}
	seq := row[0]
	atomic.StoreUint64(&row[0], seq+1)
	for ; i < len(to); i++ {
		if row[1+i] != to[i] {
			atomic.StoreUint64(&row[1+i], to[i])
		}
	}
	atomic.StoreUint64(&row[0], seq+2)
}

// asRow is the words of a Socket or Peer. Both consist of numbers only.
func asRow[T Socket | Peer](p *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), int(unsafe.Sizeof(*p)/8))
}

// ListReader reads lists while their writer may change them, or after the writer stopped
// within a change. Any goroutine may use it.
type ListReader struct{ mem []uint64 }

// NewListReader checks mem, the words of a mapping. Its error is ErrFormat, with what is
// wrong.
func NewListReader(mem []uint64) (*ListReader, error) {
	if len(mem)*8 < ListSize {
		return nil, fmt.Errorf("lists: %w: %d bytes, want %d", ErrFormat, len(mem)*8, ListSize)
	}
	if m := atomic.LoadUint64(&mem[lMagic]); m != listMagic {
		return nil, fmt.Errorf("lists: %w: magic is %#x", ErrFormat, m)
	}
	for w, v := range listShape() {
		if mem[w] != v {
			return nil, fmt.Errorf("lists: %w: word %d of the layout is %d, this program reads %d", ErrFormat, w, mem[w], v)
		}
	}
	return &ListReader{mem}, nil
}

// ListInfo is the header of the lists.
type ListInfo struct {
	PID            int
	Instance       uint64
	At             int64 // unix nanoseconds; rows are of this time, or up to a second older if there are thousands
	Sockets, Peers uint64
}

// Info copies the header.
func (r *ListReader) Info() ListInfo {
	word := func(w int) uint64 { return atomic.LoadUint64(&r.mem[w]) }
	return ListInfo{PID: int(int32(word(lPID))), Instance: word(lInstance), At: int64(word(lAt)), Sockets: word(lSocketsOf), Peers: word(lPeersOf)}
}

// Sockets are the rows in use. torn counts the rows that could not be read because a writer
// stopped within one.
func (r *ListReader) Sockets() (list []Socket, torn int) {
	for i := range MaxSockets {
		var s Socket
		if !get(r.mem[offSockets+i*socketWords:], asRow(&s)) {
			torn++
		} else if s.Used != 0 {
			list = append(list, s)
		}
	}
	return list, torn
}

// Peers is Sockets for connections.
func (r *ListReader) Peers() (list []Peer, torn int) {
	for i := range MaxPeers {
		var p Peer
		if !get(r.mem[offPeers+i*peerWords:], asRow(&p)) {
			torn++
		} else if p.Used != 0 {
			list = append(list, p)
		}
	}
	return list, torn
}

// get copies a row. It is false if the row was being written at every attempt.
func get(row, to []uint64) bool {
	for range 1000 {
		seq := atomic.LoadUint64(&row[0])
		if seq&1 != 0 {
			continue
		}
		for i := range to {
			to[i] = atomic.LoadUint64(&row[1+i])
		}
		if atomic.LoadUint64(&row[0]) == seq {
			return true
		}
	}
	return false
}
