package lists

// Pool is a free list of T. It grows in blocks and never shrinks, so that a steady load
// allocates nothing.
type Pool[T any] struct {
	free []*T
	Out  int // how many are in use
}

const poolBlock = 256

// Get returns an element, zero or as it was put back.
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

// Put takes t back. The caller has cleared what the next user must not see.
func (p *Pool[T]) Put(t *T) {
	p.Out--
	p.free = append(p.free, t)
}
