package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

// tookOf is a distribution of n durations of d.
func tookOf(d time.Duration, n uint64) ctl.Times {
	var t stats.Times
	t.Add(stats.TimeBucket(int64(d)), int64(d), n)
	return ctl.TimesOf(&t)
}

// looked is a look at a busy daemon, after that many seconds.
func looked(seconds int) look {
	b := &backend{}
	l := look{at: time.Unix(1e9, 0).Add(time.Duration(seconds) * time.Second)}
	s, _ := b.Status()
	n := uint64(seconds)
	s.Counters = ctl.CounterList{{Name: "send_queued", Value: 12_271_045 * n}, {Name: "rdsd_send_bytes", Value: n << 30}, {Name: "conn_reset", Value: 5}}
	l.status = &s
	l.peers, _ = b.Peers()
	l.peers[0].Since = l.at.Add(-65 * time.Second)
	l.peers[0].SentBytes, l.peers[0].ReadBytes, l.peers[0].RTT = n<<30, n<<20, 41*time.Microsecond
	l.peers[0].MessageTime = tookOf(3*time.Millisecond, n*100)
	l.sockets, _ = b.Sockets()
	l.sockets[0].ReceivedBytes, l.sockets[0].RecvLimit = n<<20, 6
	l.cong, _, _ = b.Congested(ctl.View{Limit: 9, May: func(uint32) bool { return true }})
	l.backlog, _, _ = b.Backlog(ctl.View{})
	l.events, _, _ = b.Events(ctl.View{May: func(uint32) bool { return true }, Limit: 100}, 0)
	return l
}

func topOf(looks ...look) *topState {
	t := newTop()
	for _, l := range looks {
		t.take(l)
	}
	return t
}

func TestTop(t *testing.T) {
	state := topOf(looked(0), looked(2), looked(4))
	has := func(what string, wants ...string) {
		t.Helper()
		screen := state.draw(200, 50)
		for _, want := range wants {
			if !strings.Contains(screen, want) {
				t.Errorf("%s: no %q in\n%s", what, want, screen)
			}
		}
		if strings.Contains(screen, "12271045") {
			t.Errorf("%s: a raw rate in\n%s", what, screen)
		}
	}
	has("peers", "rdsd v0.1.0  pid 4711", "12.3M msg/s", "1 GiB/s", "● 127.0.0.1:4000 is full: db[12] does not read", "beware?[31m", "PEER       LANE", "127.0.0.2     0  up", "1 MiB/s", "41µs", "by traffic (s)", "██")
	for key, wants := range map[string][]string{
		"a": {"PROCESSES", "12  1000"}, "o": {"127.0.0.1:4000", "50% congested"}, "b": {"WAITS-FOR"}, "e": {"LEVEL"}, "c": {"send_queued", "12.3M/s", "1 GiB/s"},
	} {
		if !state.key(key) {
			t.Errorf("%q ends it", key)
		}
		has(key, wants...)
	}
	state.key("p")
	state.key("s")
	has("sorted", "by waiting (s)")
	state.key("shift+tab")
	has("the view before the first", "COUNTERS")
	state.key("tab")
	state.key("down")
	state.key("down") // the only row stays
	has("scrolled", "127.0.0.2     0  up")
	state.key("space")
	has("paused", "PAUSED")
	for line := range strings.SplitSeq(state.draw(20, 4), "\n") {
		if utf8.RuneCountInString(line) > 20 {
			t.Errorf("a line of 20 columns: %q", line)
		}
	}
	if n := strings.Count(state.draw(20, 4), "\n"); n != 3 {
		t.Errorf("%d lines of 4", n+1)
	}
	state.take(look{err: errors.New("gone\x1b")})
	has("late", "● gone?; what is shown is old", "127.0.0.2")
	if screen := topOf(look{err: errors.New("gone\x1b")}).draw(80, 24); !strings.HasPrefix(screen, "gone?") {
		t.Errorf("error:\n%s", screen)
	}
	for _, k := range []string{"q", "esc", "ctrl+c"} {
		if state.key(k) {
			t.Errorf("%s does not end it", k)
		}
	}
	other := looked(6) // another daemon: no rates across the two
	other.status.Instance++
	state.take(other)
	if f := state.of(""); f.sent != 0 || len(f.trail) != 0 {
		t.Errorf("%+v", f)
	}
}

func TestTopOnce(t *testing.T) {
	code, stdout, stderr := runApp(t, direct{&backend{}, true}, "top", "-d", "50ms")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "PEER       LANE") || strings.ContainsAny(stdout, "\x1b█") || strings.Contains(stdout, "q quit") {
		t.Errorf("in a pipe: status %d, %q\n%s", code, stderr, stdout)
	}
	if code, stdout, _ = runApp(t, direct{&backend{}, true}, "top", "-once", "-d", "50ms", "-view", "backlog"); code != exitOK || !strings.Contains(stdout, "WAITS-FOR") {
		t.Errorf("backlog: status %d\n%s", code, stdout)
	}
	for _, args := range [][]string{{"-d", "1ms"}, {"-view", "x"}, {"-stats", "/x"}} {
		if code, _, stderr := runApp(t, direct{&backend{}, true}, append([]string{"top"}, args...)...); code != exitUsage || !strings.Contains(stderr, "rdsctl: top: ") {
			t.Errorf("%v: status %d, %q", args, code, stderr)
		}
	}
	if code, _, stderr := runApp(t, direct{&backend{err: errors.New("boom")}, true}, "top"); code != exitFailed || !strings.Contains(stderr, "boom") {
		t.Errorf("without an answer: status %d, %q", code, stderr)
	}
}

// TestTopModel: keys work while a look takes long, and a pause keeps what is shown.
func TestTopModel(t *testing.T) {
	m := &topModel{t: newTop(), every: time.Hour, look: func() look { return looked(2) }, w: 80, h: 24}
	if msg, ok := m.Init()().(look); !ok || msg.status == nil {
		t.Fatalf("the first message is %T", msg)
	}
	if v := m.View(); !v.AltScreen || !strings.Contains(v.Content, "asking the daemon") {
		t.Errorf("before the first look: %q", v.Content)
	}
	send := func(msg tea.Msg) tea.Cmd { _, cmd := m.Update(msg); return cmd }
	if send(looked(0)) == nil {
		t.Error("no look follows")
	}
	send(tea.WindowSizeMsg{Width: 120, Height: 40})
	send(tea.KeyPressMsg{Code: 'b', Text: "b"})
	if m.t.view != topBacklog || m.w != 120 {
		t.Errorf("view %c, %d columns", m.t.view, m.w)
	}
	send(tea.KeyPressMsg{Code: tea.KeySpace, Text: " "})
	send(looked(2))
	if !m.t.paused || !m.t.now.at.Equal(looked(0).at) || send(topTick{}) == nil {
		t.Error("it goes on while it is paused")
	}
	if cmd := send(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not end it")
	} else if _, ok := cmd().(tea.QuitMsg); !ok {
		t.Error("q does something else")
	}
}

func TestRateText(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.04: "0", 0.5: "0.5", 9.94: "9.9", 12: "12", 999: "999", 999.6: "1.00k", 1234: "1.23k", 12_345: "12.3k", 999_999: "1.00M", 12_271_045.5: "12.3M", 3e9: "3.00G", 5e15: "5000T"} {
		if got := rateText(f); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
	if got := sparkline([]float64{9, 0, 4, 8}, 3); got != " ▅█" {
		t.Errorf("%q", got)
	}
	if got := sparkline([]float64{1}, 3); got != "  █" {
		t.Errorf("%q", got)
	}
	if sparkline(nil, 2) != "  " || byteRate(0) != "-" || byteRate(2048) != "2 KiB/s" {
		t.Error("nothing is something")
	}
}

// A screen on something that is no terminal has no keys.
func TestScreenKeys(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if newScreen(f, f) != nil || (&screen{f, f}).keys() {
		t.Error("/dev/null is a terminal")
	}
}
