package child

import (
	"bytes"
	"context"
	"strings"
	"sync"
)

// Output keeps what is written to it. The zero value is ready for use; its methods
// may be called from any goroutine.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer  // guarded by mu
	news chan struct{} // closed by the next write; nil if nobody waits; guarded by mu
}

// Write implements io.Writer. It never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news != nil {
		close(o.news)
		o.news = nil
	}
	return o.text.Write(b)
}

// String is everything that was written.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Has reports whether text was written.
func (o *Output) Has(text string) bool { return strings.Contains(o.String(), text) }

// Tail is the end of what was written, for a message.
func (o *Output) Tail() string { return Tail(o.String()) }

// Tail is the end of a long text.
func Tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "... " + s[len(s)-most:]
	}
	return s
}

// next returns a channel that the next write closes.
func (o *Output) next() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.news == nil {
		o.news = make(chan struct{})
	}
	return o.news
}

// Until waits until done is true. It asks done first, then whenever something was written
// to a or b, and once more when ended is closed. It returns false if ended was closed, or
// ctx is done, before done was true.
func Until(ctx context.Context, ended <-chan struct{}, done func() bool, a, b *Output) bool {
	for last := false; ; {
		na, nb := a.next(), b.next()
		switch {
		case done():
			return true
		case last:
			return false
		}
		select {
		case <-na:
		case <-nb:
		case <-ended:
			last = true
		case <-ctx.Done():
			return false
		}
	}
}
