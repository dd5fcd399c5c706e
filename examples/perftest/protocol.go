package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// perftest's set-up exchange over a queue pair has messages of fixed lengths. For
// each message the client sends its own first, then the server. With -R, in version
// 6.06, the messages are:
//
//	version                   16 bytes, text
//	cycle buffer              u32: bytes of memory that small messages go round in
//	cache line                u32: they are laid out in multiples of it
//	MTU                       2 bytes, text: an ibv_mtu
//	keys                      56 bytes; then the second connection is made
//	keys                      the second connection is up
//	keys                      those of the second queue pair's memory
//	keys, keys                both sides are ready; send: one time more
//	                          then the test runs
//	keys                      write and read: the client is done
//	5 numbers                 write and read: u64 size, iterations, three float64
//	keys                      the end
//
// Numbers are big-endian. Both connections go to the same port.
const (
	// version is the version that this side states. From 6.28 on there is more to negotiate.
	version    = "6.06"
	minVersion = 5.70
	versionLen = 16

	cycle     = 4096
	cacheLine = 64
	maxCycle  = 1 << 20
	mtu       = "3" // 1024 bytes; iWARP has no use for it
	keysLen   = 56
)

// keys say where a side's memory is. The message's other fields matter only to
// InfiniBand.
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

// checkVersion refuses a peer that is older than minVersion, because its exchange differs.
func checkVersion(b []byte) error {
	text, _, _ := bytes.Cut(b, []byte{0})
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= minVersion) { // written so that NaN fails, too
		return fmt.Errorf("peer is perftest %q, want %.2f or newer", text, minVersion)
	}
	return nil
}

// checkCycle checks the peer's cycle buffer and returns the size that both sides use, the
// larger one.
func checkCycle(b []byte) (int, error) {
	n := binary.BigEndian.Uint32(b)
	if n > maxCycle {
		return 0, fmt.Errorf("peer's cycle buffer has %d bytes, want at most %d", n, maxCycle)
	}
	return max(int(n), cycle), nil
}
