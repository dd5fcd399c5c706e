package soft

import (
	"net/netip"
	"sync"
)

// limiter limits the incoming connections that need a handshake of TLS. It has a
// token bucket for all of them and one for each source. Handshakes that succeed give their tokens
// back: whoever shows a certificate may go on.
type limiter struct {
	mu      sync.Mutex // of what follows
	all     bucket
	sources map[netip.Prefix]*bucket
	share   bucket // of a new source
	swept   int64
}

// bucket holds up to size tokens and gets rate tokens per second.
type bucket struct {
	rate, size float64
	tokens     float64
	at         int64 // ns
}

// atOnce is how many connections a source may begin at once: 64, in each lane and path, each from both ends.
const atOnce = 128

// maxSources limits the memory: further sources have only the common bucket.
const maxSources = 4096

// newLimiter allows rate connections per second in all, and as many at once. Each
// source (of IPv6, a /64) may have a fortieth of that per second, and burst at once.
func newLimiter(rate, burst int) *limiter {
	r := float64(rate)
	share := max(r/40, 1)
	return &limiter{all: bucket{rate: r, size: r, tokens: r},
		share:   bucket{rate: share, size: float64(burst), tokens: float64(burst)},
		sources: map[netip.Prefix]*bucket{}}
}

func (b *bucket) fill(now int64) {
	if now > b.at {
		b.tokens = min(b.size, b.tokens+b.rate*float64(now-b.at)/1e9)
	}
	b.at = now
}

// allow takes a token for a, at the monotonic time now in ns.
func (l *limiter) allow(now int64, a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	src := sourceOf(a)
	b := l.sources[src]
	if b == nil {
		if len(l.sources) >= maxSources {
			l.sweep(now)
		}
		x := l.share
		x.at = now
		b = &x
		if len(l.sources) < maxSources {
			l.sources[src] = b
		}
	}
	b.fill(now)
	l.all.fill(now)
	if b.tokens < 1 || l.all.tokens < 1 {
		return false
	}
	b.tokens--
	l.all.tokens--
	return true
}

// succeeded gives a's token back.
func (l *limiter) succeeded(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range []*bucket{l.sources[sourceOf(a)], &l.all} {
		if b != nil {
			b.tokens = min(b.tokens+1, b.size)
		}
	}
}

// sweep drops sources whose bucket is full again, once a second.
func (l *limiter) sweep(now int64) {
	if l.swept != 0 && now-l.swept < 1e9 {
		return
	}
	l.swept = now
	for src, b := range l.sources {
		if b.fill(now); b.tokens >= b.size {
			delete(l.sources, src)
		}
	}
}
