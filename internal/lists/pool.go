package lists

// Pool is a free list of T; it grows in blocks and never shrinks, so that a
// steady load allocates nothing.
type Pool[T any] struct {
	free []*T
	Out  int // how many are in use
}

const poolBlock = 256

// Get returns one, as it was put back, or zero.
func (p *Pool[T]) Get() *T {
	if len(p.free) == 0 {
		block := make([]T, poolBlock)
		for i := range block {
			p.free = append(p.free, &block[i])
		}
	}
	t := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.Out++
	return t
}

// Put takes t back; the caller has cleared what must not linger.
func (p *Pool[T]) Put(t *T) {
	p.Out--
	p.free = append(p.free, t)
}
