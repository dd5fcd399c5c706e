package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// perftest's set-up exchange over a queue pair: messages of fixed lengths, one
// each way, the client's first. With -R, in version 6.06:
//
//	version                   16 bytes, text
//	cycle buffer              u32: bytes of memory that small messages go round in
//	cache line                u32: they are laid out in multiples of it
//	MTU                       2 bytes, text: an ibv_mtu
//	keys                      56 bytes; then the second connection is made
//	keys                      again: it is there
//	keys                      of that queue pair's memory
//	keys, keys                once more, and when both are ready
//	                          the test
//	keys                      write and read: the client is done
//	5 numbers                 write and read: u64 size, iterations, three float64
//	keys                      end
//
// Numbers are big-endian. Both connections go to the same port.
const (
	// version is what both sides say. From 6.28 on there is more to negotiate.
	version    = "6.06"
	minVersion = 5.70
	versionLen = 16

	cycle     = 4096
	cacheLine = 64
	maxCycle  = 1 << 20
	mtu       = "3" // 1024 bytes; iWARP has no use for it
	keysLen   = 56
)

// keys tell where a side's memory is. The other fields of the message matter
// to InfiniBand only.
type keys struct {
	qpn, rkey uint32
	addr      uint64
}

func (k keys) put(b []byte) {
	clear(b[:keysLen])
	binary.BigEndian.PutUint32(b[4:], 1) // outstanding READs
	binary.BigEndian.PutUint32(b[8:], k.qpn)
	binary.BigEndian.PutUint32(b[16:], k.rkey)
	binary.BigEndian.PutUint64(b[24:], k.addr)
}

func parseKeys(b []byte) keys {
	return keys{
		qpn:  binary.BigEndian.Uint32(b[8:]),
		rkey: binary.BigEndian.Uint32(b[16:]),
		addr: binary.BigEndian.Uint64(b[24:]),
	}
}

// checkVersion refuses a peer whose exchange differs from the one above.
func checkVersion(b []byte) error {
	text, _, _ := bytes.Cut(b, []byte{0})
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= minVersion) { // NaN is not
		return fmt.Errorf("peer is perftest %q, want %.2f or newer", text, minVersion)
	}
	return nil
}

// checkCycle takes the peer's cycle buffer: both use the larger.
func checkCycle(b []byte) (int, error) {
	n := binary.BigEndian.Uint32(b)
	if n > maxCycle {
		return 0, fmt.Errorf("peer's cycle buffer has %d bytes, want at most %d", n, maxCycle)
	}
	return max(int(n), cycle), nil
}
