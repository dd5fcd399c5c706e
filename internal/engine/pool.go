package engine

// pool is a free list of T; it grows in blocks and never shrinks, so that a
// steady load allocates nothing.
type pool[T any] struct {
	free []*T
	out  int
}

const poolBlock = 256

func (p *pool[T]) get() *T {
	if len(p.free) == 0 {
		block := make([]T, poolBlock)
		for i := range block {
			p.free = append(p.free, &block[i])
		}
	}
	t := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.out++
	return t
}

// put takes t back; the caller has cleared what must not linger.
func (p *pool[T]) put(t *T) {
	p.out--
	p.free = append(p.free, t)
}
