package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"time"

	"golang.org/x/sys/unix"
)

// rdma-ask and rdma-serve use RDMA as databases do over RDS. rdma-ask registers memory and sends
// a request with its cookie. rdma-serve writes to this memory or reads it, and its reply runs
// behind the operation. rdma-ask checks its memory. rdma-serve checks the statuses and the data that
// it has read.

// ask is a request or a reply.
type ask struct {
	Seq    uint32
	Kind   uint32 // askWrite or askRead
	Size   uint32 // bytes of the operation
	Off    uint32 // of the operation in the region
	How    uint32 // askSilent, askBad, askSplit
	Status uint32 // in a reply: 0, or the status of the operation that failed
	Sum    uint64 // of the bytes that askRead has to find
}

const (
	askWrite  = 1      // the server writes
	askRead   = 2      // the server reads
	askSilent = 1 << 0 // the operation is silent, and the reply is a message of its own behind it
	askBad    = 1 << 1 // the server spoils the key, so there is no reply
	askSplit  = 1 << 2 // the server's memory is in two pieces
	askLen    = 32     // bytes of an ask

	askHeader = 4096    // bytes of a slot of the server's memory that hold the vectors
	askMax    = 1 << 20 // bytes of the largest operation
	askGuard  = 64      // least number of bytes behind a region
)

func (a *ask) append(b []byte) []byte {
	le := binary.LittleEndian
	for _, v := range []uint32{a.Seq, a.Kind, a.Size, a.Off, a.How, a.Status} {
		b = le.AppendUint32(b, v)
	}
	return le.AppendUint64(b, a.Sum)
}

func parseAsk(b []byte) (a ask, err error) {
	if len(b) != askLen {
		return a, fmt.Errorf("a request of %d bytes", len(b))
	}
	le := binary.LittleEndian
	for i, p := range []*uint32{&a.Seq, &a.Kind, &a.Size, &a.Off, &a.How, &a.Status} {
		*p = le.Uint32(b[4*i:])
	}
	a.Sum = le.Uint64(b[24:])
	return a, nil
}

// fill fills b with bytes that follow from seed.
func fill(b []byte, seed uint64) {
	for i := range b {
		seed = seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(seed >> 56)
	}
}

var sumTable = crc64.MakeTable(crc64.ECMA)

// sum returns the checksum of an operation's bytes.
func sum(b []byte) uint64 { return crc64.Checksum(b, sumTable) }

// sendWith sends one message with control messages. Like sendTo it tries again, for -limit at most.
// A registration needs a connection and fails with EAGAIN until there is one. In the kernel it also
// fails with EINVAL while a connection ends, because the queue pair then takes no work request.
func (c *config) sendWith(s socket, payload, name, control []byte) error {
	for end := time.Now().Add(c.limit); ; {
		_, err := s.sendmsg(payload, name, control, 0)
		if err == nil || time.Now().After(end) {
			return err
		}
		_, kernel := s.(*kernelSocket)
		if again := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) ||
			kernel && len(control) > 0 && errors.Is(err, unix.EINVAL); !again {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
