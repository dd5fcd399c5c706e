package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// RDMA between two programs, as databases use RDS: rdma-ask registers memory and
// sends a request with its cookie; rdma-serve writes into it, or reads from it,
// with its reply behind the operation. Each end checks the data; rdma-serve also
// the statuses.

// ask is a request, and a reply.
type ask struct {
	Seq    uint32
	Kind   uint32 // askWrite, askRead
	Size   uint32
	Off    uint32 // in the region
	How    uint32
	Status uint32 // of a reply: 0, or the operation's that failed
	Sum    uint64 // of a reply: of what was read
}

const (
	askWrite  = 1 // the server writes
	askRead   = 2
	askSilent = 1 << 0 // the reply comes as a message of its own, behind a silent operation
	askBad    = 1 << 1 // the server spoils the key: there is no reply
	askSplit  = 1 << 2 // the server's memory is in pieces
	askLen    = 32

	askHeader = 4096 // of the server's memory, for vectors
	askMax    = 1 << 20
	askGuard  = 64
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

func fill(b []byte, seed uint64) {
	for i := range b {
		seed = seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(seed >> 56)
	}
}

// sendWith is sendTo with control messages. A registration wants a connection:
// EAGAIN until there is one, and from the kernel EINVAL while one goes down: its
// queue pair takes no work request any more.
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
