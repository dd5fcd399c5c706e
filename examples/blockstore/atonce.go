package main

import (
	"github.com/rdsd/rdsd/examples/blockstore/store"
	"github.com/rdsd/rdsd/rds"
)

// atOnce carries out r in the receiving goroutine if that needs no wait for storage: a
// READ of cached bytes, a WRITE into the page cache, or a FLUSH, which the syncer answers.
// It returns false if a worker has to carry out r.
func (s *server) atOnce(r request) bool {
	switch {
	case r.Kind == store.KindRead && r.cookie == 0:
		return s.readSmallNow(r)
	case r.Kind == store.KindRead:
		return s.pushBlockNow(r)
	case r.Kind == store.KindWrite:
		p := r.bytes()
		if store.Checksum(p) != r.CRC {
			return false // the worker answers that
		}
		done, f := s.export.writeNow(p, &r.Message)
		switch {
		case !done:
			return false
		case f == nil && r.Flags&store.FlagUnsynced != 0:
			s.ops.countWrite()
			s.out.add(r.from, (&store.Message{Kind: store.KindWritten, ID: r.ID, Block: r.Block}).Append(s.out.room()[:0]))
		default:
			s.stored(r, f)
		}
		s.inbox.end(&r)
		return true
	case r.Kind == store.KindFlush:
		done, f := s.export.checkNow(r.Session)
		if done {
			s.flush(r, f)
		}
		return done
	}
	return false
}

// bytes returns the bytes that the WRITE r brings.
func (r *request) bytes() []byte {
	if r.pushed != nil {
		return r.pushed
	}
	return r.Data
}

// readSmallNow answers a small READ if its bytes are in the page cache.
func (s *server) readSmallNow(r request) bool {
	b := s.out.room()[:store.HeaderSize+int(r.Length)]
	p := b[store.HeaderSize:]
	if !s.export.readNow(p, r.Offset()) {
		return false
	}
	done(&r, p).Append(b[:0])
	s.out.add(r.from, b)
	s.ops.countRead()
	return true
}

// done returns the answer to the READ r of the bytes p.
func done(r *request, p []byte) *store.Message {
	return &store.Message{Kind: store.KindDone, ID: r.ID, Block: r.Block, BlockSize: r.BlockSize, Length: r.Length, CRC: store.Checksum(p)}
}

// readSmall answers a small READ. It waits for storage.
func (s *server) readSmall(r request) {
	p := make([]byte, r.Length)
	if f := s.export.read(p, &r.Message); f != nil {
		s.fail(r, f)
		return
	}
	m := done(&r, p)
	m.Data = p
	s.answer(r, m)
	s.ops.countRead()
}

// write carries out a WRITE. It checks the bytes and writes them to the file. The answer
// may wait for the group's fsync.
func (s *server) write(r request) {
	p := r.bytes()
	var f *store.Failure
	if crc := store.Checksum(p); crc != r.CRC {
		f = store.Failf(store.StatusChecksum, "block %d: checksum %08x arrived, %08x announced", r.Block, crc, r.CRC)
	} else {
		f = s.export.write(p, &r.Message)
	}
	s.inbox.end(&r)
	s.stored(r, f)
}

// outbox collects the answers of the receiving goroutine, to send them together.
type outbox struct {
	s   *server
	ms  []rds.Message
	mem [][]byte // memory for the payload of each of ms
}

func newOutbox(s *server) outbox {
	o := outbox{s: s, ms: make([]rds.Message, 0, batch), mem: make([][]byte, batch)}
	for i := range o.mem {
		o.mem[i] = make([]byte, store.HeaderSize+s.small)
	}
	return o
}

// room returns memory for the payload of the next answer.
func (o *outbox) room() []byte {
	if len(o.ms) == batch {
		o.flush()
	}
	return o.mem[len(o.ms)]
}
