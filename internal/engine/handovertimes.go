package engine

import "github.com/rdsd/rdsd/internal/handover"

func (t *times) handOver(s *handover.State) {
	s.Table(t.msgs.Counts[:])
	s.U64(&t.msgs.Sum)
	s.Table(t.ops.Counts[:])
	s.U64(&t.ops.Sum)
}
