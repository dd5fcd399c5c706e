package logqueue

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// reader is a reader of the log that may stand still.
type reader struct {
	mu    sync.Mutex // held while it stands
	began chan struct{}
	got   bytes.Buffer
}

func newReader() *reader { return &reader{began: make(chan struct{}, 1)} }

func (r *reader) Write(p []byte) (int, error) {
	select {
	case r.began <- struct{}{}:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got.Write(p)
}

const patience = time.Minute

// finished runs f, which must not wait for the reader.
func finished(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("whoever logs waits for the reader")
	}
}

// TestNobodyReads: lines wait while the reader stands. What has no room is dropped, and the log
// says how many lines were, where they are missing.
func TestNobodyReads(t *testing.T) {
	r := newReader()
	q := New(r)
	q.Says(func(w io.Writer, lost uint64) { fmt.Fprintf(w, "lost %d\n", lost) })
	r.mu.Lock()
	stands := true
	defer func() {
		if stands {
			r.mu.Unlock()
		}
	}()
	write := func(format string, args ...any) {
		t.Helper()
		finished(t, func() { fmt.Fprintf(q, format+"\n", args...) })
	}
	write("first") // is being written
	<-r.began
	kept := 0
	line := strings.Repeat("x", 1000)
	for q.Dropped() == 0 {
		write("%d %s", kept, line)
		kept++
	}
	kept--
	if n := most / (len(line) + lineCost); kept < n-n/10 || kept > n {
		t.Errorf("%d lines wait, there is room for %d", kept, n)
	}
	for range 99 {
		write("s") // shorter, but behind lines that are missing
	}
	if n := q.Dropped(); n != 100 {
		t.Errorf("%d lines were dropped, not 100", n)
	}
	now := time.Now()
	if s := q.Warning(now.Add(2 * slow)); !strings.Contains(s, "nobody has read") || !strings.Contains(s, fmt.Sprintf("%d lines wait, 100 were dropped", kept+1)) {
		t.Errorf("the warning is %q", s)
	}
	if q.Flush(time.Millisecond) {
		t.Error("all is written, and nobody reads")
	}

	stands = false
	r.mu.Unlock()
	if !q.Flush(patience) {
		t.Fatal("not all is written")
	}
	write("last")
	if !q.Flush(patience) {
		t.Fatal("the last line is not written")
	}
	got := strings.Split(strings.TrimSuffix(r.got.String(), "\n"), "\n")
	want := []string{"first"}
	for i := range kept {
		want = append(want, fmt.Sprintf("%d %s", i, line))
	}
	want = append(want, "lost 100", "last")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d lines, want %d; the last are %.40q", len(got), len(want), got[max(0, len(got)-3):])
	}
	if s := q.Warning(time.Now()); !strings.Contains(s, "100 lines were dropped, the last at") {
		t.Errorf("later the warning is %q", s)
	}
	if s := q.Warning(time.Now().Add(2 * recent)); s != "" {
		t.Errorf("much later the warning is %q", s)
	}
}

// TestOneReads: nothing is lost or out of order while the reader reads, and the Queue is silent
// about itself.
func TestOneReads(t *testing.T) {
	r := newReader()
	q := New(r)
	var want strings.Builder
	for i := range 5000 {
		fmt.Fprintf(q, "line %d\n", i)
		fmt.Fprintf(&want, "line %d\n", i)
		if i%100 == 0 && !q.Flush(patience) {
			t.Fatal("not all is written")
		}
	}
	if !q.Flush(patience) || r.got.String() != want.String() {
		t.Errorf("%d bytes, want %d", r.got.Len(), want.Len())
	}
	if s := q.Warning(time.Now().Add(time.Hour)); s != "" || q.Dropped() != 0 {
		t.Errorf("%q, %d dropped", s, q.Dropped())
	}
	var none *Queue
	if none.Warning(time.Now()) != "" || none.Dropped() != 0 {
		t.Error("a daemon without a queue warns")
	}
}

// TestCannotWrite: of lines that cannot be written the Queue tells who asks.
func TestCannotWrite(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	q := New(full)
	for range 3 {
		fmt.Fprintln(q, "a line")
	}
	if !q.Flush(patience) {
		t.Fatal("it still writes")
	}
	if s := q.Warning(time.Now()); !strings.Contains(s, "3 lines were not written") || !strings.Contains(s, "no space left on device; see to the disk") || q.Dropped() != 3 {
		t.Errorf("%q, %d lines dropped", s, q.Dropped())
	}
	if s := q.Warning(time.Now().Add(2 * recent)); s != "" {
		t.Errorf("much later the warning is %q", s)
	}
}
