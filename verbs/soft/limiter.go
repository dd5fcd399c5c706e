package soft

import (
	"net/netip"
	"sync"
)

// limiter limits the incoming connections that need a handshake of TLS. It has a
// token bucket for all of them and one for each source. A handshake that succeeds gives its tokens
// back, the source's only while the source has good ones left.
type limiter struct {
	mu      sync.Mutex // of what follows
	all     bucket
	sources map[netip.Prefix]*source
	share   bucket // of a new source
	swept   int64
}

// source is what one address has left, or a /64 of IPv6.
type source struct {
	tries bucket // of handshakes that fail, or whose good ones are used up
	good  bucket // of handshakes that succeed
}

// bucket holds up to size tokens and gets rate tokens per second.
type bucket struct {
	rate, size float64
	tokens     float64
	at         int64 // ns
}

// atOnce is how many connections a source may begin at once: 64, in each lane and path, each from both ends.
const atOnce = 128

// goodRate is how many handshakes a source may complete in a second, and goodAtOnce how many at once. A peer whose
// daemon restarts each second, with 4 lanes in 8 paths, makes 64 a second.
const (
	goodRate   = 128
	goodAtOnce = 2 * goodRate
)

// maxSources limits the memory: further sources have only the common bucket.
const maxSources = 4096

// newLimiter allows rate connections per second in all, and as many at once. Each
// source (of IPv6, a /64) may have a fortieth of that per second, and burst at once.
func newLimiter(rate, burst int) *limiter {
	r := float64(rate)
	share := max(r/40, 1)
	return &limiter{all: bucket{rate: r, size: r, tokens: r},
		share:   bucket{rate: share, size: float64(burst), tokens: float64(burst)},
		sources: map[netip.Prefix]*source{}}
}

func (b *bucket) fill(now int64) {
	if now > b.at {
		b.tokens = min(b.size, b.tokens+b.rate*float64(now-b.at)/1e9)
		b.at = now
	}
}

func (b *bucket) full() bool { return b.tokens >= b.size }

func (b *bucket) back() { b.tokens = min(b.tokens+1, b.size) }

// allow takes a token for a, at the monotonic time now in ns.
func (l *limiter) allow(now int64, a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	src := sourceOf(a)
	s := l.sources[src]
	if s == nil {
		if len(l.sources) >= maxSources {
			l.sweep(now)
		}
		s = &source{tries: l.share, good: bucket{rate: goodRate, size: goodAtOnce, tokens: goodAtOnce, at: now}}
		s.tries.at = now
		if len(l.sources) < maxSources {
			l.sources[src] = s
		}
	}
	s.tries.fill(now)
	l.all.fill(now)
	if s.tries.tokens < 1 || l.all.tokens < 1 {
		return false
	}
	s.tries.tokens--
	l.all.tokens--
	return true
}

// succeeded gives back the tokens of a's handshake. A source beyond maxSources gets none back.
func (l *limiter) succeeded(now int64, a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sources[sourceOf(a)]
	if s == nil {
		return
	}
	l.all.back()
	if s.good.fill(now); s.good.tokens >= 1 {
		s.good.tokens--
		s.tries.back()
	}
}

// sweep drops sources whose buckets are full again, once a second.
func (l *limiter) sweep(now int64) {
	if l.swept != 0 && now-l.swept < 1e9 {
		return
	}
	l.swept = now
	for src, s := range l.sources {
		s.tries.fill(now)
		s.good.fill(now)
		if s.tries.full() && s.good.full() {
			delete(l.sources, src)
		}
	}
}
