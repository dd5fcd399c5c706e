package daemon

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/handover"
)

// eventful is a journal with an event of each kind. Its times are those of a test run in 2001.
func eventful() *journal {
	j := &journal{}
	now, peer := time.Unix(1_000_000_000, 5), netip.MustParseAddr("fd00::2")
	j.note(now, slog.LevelInfo, peer, "up", []any{"local", netip.MustParseAddr("127.0.0.1"), "peer", peer, "lane", ctl.LanePath{Lane: 5, Path: 3}})
	j.note(now.Add(1), slog.LevelInfo, peer, "down", []any{"err", errors.New("reset")})
	j.note(now.Add(2), slog.LevelWarn, uint32(1000), "client ended", []any{"pid", 12, "uid", 1000, "err", strings.Repeat("ä", 10_000)})
	j.note(now.Add(3), slog.LevelError+2, nil, strings.Repeat("long", 1000), []any{"pid", int32(-1)})
	j.note(now.Add(4), slog.LevelInfo, peer.WithZone("eth0"), "down", []any{"err", errors.New("again"), "local", peer.WithZone("eth1")})
	return j
}

func journalState(j *journal) []byte { return journalStateIn(j, handover.Newest) }

func journalStateIn(j *journal, version uint16) []byte {
	w := handover.Write(version)
	j = j.copy()
	w.U64(&j.seq)
	j.handOver(w)
	return w.Bytes()
}

func adoptJournal(state []byte) (*journal, error) {
	r, err := handover.Read(state)
	if err != nil {
		return nil, err
	}
	j := &journal{}
	var last uint64
	r.U64(&last)
	j.follows(last)
	j.handOver(r)
	return j, r.Close()
}

// shown is what rdsctl events and rdsctl errors show.
func shown(j *journal) (out []any) {
	all := viewOf(0, true, ctl.MaxLimit)
	events, _ := j.events(all, 0)
	errs, _ := j.distinct(all)
	return []any{events, errs}
}

// TestJournalHandedOver: rdsctl shows the events and errors of the daemon before, and new ones
// are numbered on and counted with them. It is so for an empty and for a full journal.
func TestJournalHandedOver(t *testing.T) {
	full := eventful()
	for i := range 2 * maxEvents {
		full.note(time.Unix(int64(i), 0), slog.LevelWarn, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "refused", []any{"err", fmt.Errorf("no %d", i)})
	}
	for name, j := range map[string]*journal{"empty": {}, "some": eventful(), "full": full} {
		state := journalState(j)
		next, err := adoptJournal(state)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(shown(next), shown(j)) {
			t.Errorf("%s: %+v, was %+v", name, shown(next), shown(j))
		}
		if again := journalState(next); !bytes.Equal(again, state) {
			t.Errorf("%s: written again it differs", name)
		}
		peer := netip.MustParseAddr("fd00::2")
		for _, j := range []*journal{j, next} {
			j.note(time.Unix(2_000_000_000, 0), slog.LevelInfo, peer, "down", []any{"err", errors.New("once more")})
		}
		if !reflect.DeepEqual(shown(next), shown(j)) {
			t.Errorf("%s, and one more: %+v, want %+v", name, shown(next), shown(j))
		}
	}
}

// TestJournalCopied: what is noted after a copy was made, a new error or one more of a kind, is
// not in it. A state with another event than its number says would be refused.
func TestJournalCopied(t *testing.T) {
	j := eventful()
	c, state := j.copy(), journalState(j)
	for range 2 {
		for _, what := range []string{"down", "another"} {
			j.note(time.Unix(2_000_000_000, 0), slog.LevelWarn, netip.MustParseAddr("fd00::2"), what, []any{"err", errors.New("once more")})
		}
	}
	if !bytes.Equal(journalState(c), state) {
		t.Errorf("a copy has changed: %+v", shown(c))
	}
}

// TestEventsHandedOver: rdsctl events of a daemon that took over has what was before, and its own
// events behind it.
func TestEventsHandedOver(t *testing.T) {
	d := startDaemon(t, nil)
	d.summed.write(time.Now(), slog.LevelWarn, uint32(7), "before", "err", errors.New("a reason"))
	for range 2 {
		next, handed, taken := succeed(t, d, nil)
		if handed != nil || taken != nil {
			t.Fatal(handed, taken)
		}
		d = next
	}
	var names []string
	eventually(t, "the second upgrade is an event", func() error {
		names = names[:0]
		events, _, _ := backend{d: d}.Events(viewOf(0, true, ctl.MaxLimit), 0)
		for i, e := range events {
			if e.Seq != uint64(i)+1 {
				t.Fatalf("event %d is number %d", i, e.Seq)
			}
			names = append(names, e.Event)
		}
		if want := []string{"before", "upgrade done", "upgrade done"}; !slices.Equal(names, want) {
			return fmt.Errorf("%v, want %v", names, want)
		}
		return nil
	})
	if errs, _, _ := (backend{d: d}).Errors(viewOf(7, false, ctl.MaxLimit)); len(errs) != 1 || errs[0].Error != "a reason" || errs[0].Count != 1 {
		t.Errorf("errors %+v", errs)
	}
}

// TestJournalLacks: a daemon that keeps fewer events than there were hands those over, and they
// keep their numbers.
func TestJournalLacks(t *testing.T) {
	w := handover.Write(handover.Newest)
	w.U64(new(uint64(1000)))
	w.Begin(tagJournal)
	w.Count(1, 0, 1)
	handOverEvent(w, &ctl.EventInfo{Time: time.Unix(7, 0), Event: "the last"})
	w.Count(0, 0, 1)
	w.End()
	j, err := adoptJournal(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	j.note(time.Unix(8, 0), slog.LevelInfo, nil, "the next", nil)
	for _, after := range []uint64{0, 1, 999} {
		if out, more := j.events(viewOf(0, true, ctl.MaxLimit), after); more || len(out) != 2 || out[0].Seq != 1000 || out[1].Seq != 1001 || out[1].Event != "the next" {
			t.Errorf("after %d: %+v", after, out)
		}
	}
}

// TestJournalGolden: the bytes of a journal do not change within a version. Version 1 has none.
func TestJournalGolden(t *testing.T) {
	for v := uint16(2); v <= handover.Newest; v++ {
		want, err := os.ReadFile(fmt.Sprintf("testdata/journal.%d.hex", v))
		if err != nil {
			t.Fatal(err)
		}
		golden, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := journalStateIn(eventful(), v); !bytes.Equal(got, golden) {
			t.Errorf("version %d, written:\n%x\nthe golden bytes are\n%x", v, got, golden)
		}
		if j, err := adoptJournal(golden); err != nil || !bytes.Equal(journalStateIn(j, v), golden) {
			t.Errorf("version %d, read and written again it differs: %v", v, err)
		}
	}
}

// TestJournalRefused: what no journal can be. Nothing of it is kept.
func TestJournalRefused(t *testing.T) {
	event := func(i ctl.EventInfo) func(*handover.State) {
		return func(w *handover.State) {
			w.Count(1, 0, 1)
			handOverEvent(w, &i)
			w.Count(0, 0, 1)
		}
	}
	errs := func(all ...ctl.ErrorInfo) func(*handover.State) {
		return func(w *handover.State) {
			w.Count(0, 0, 1)
			w.Count(len(all), 0, 1)
			for i := range all {
				handOverError(w, &all[i])
			}
		}
	}
	for name, write := range map[string]func(*handover.State){
		"more events than there were": func(w *handover.State) {
			w.Count(10, 0, 1)
			for range 10 {
				handOverEvent(w, &ctl.EventInfo{})
			}
			w.Count(0, 0, 1)
		},
		"numbers about to wrap around": func(w *handover.State) { w.Count(0, 0, 1); w.Count(0, 0, 1) },
		"a long event":                 event(ctl.EventInfo{Event: strings.Repeat("x", maxEventText+1)}),
		"a long level":                 event(ctl.EventInfo{Level: strings.Repeat("x", maxLevelText+1)}),
		"a long error":                 event(ctl.EventInfo{Error: strings.Repeat("x", mostErrText+1)}),
		"a pid that is none":           event(ctl.EventInfo{PID: 1 << 40}),
		"an error twice":               errs(ctl.ErrorInfo{Event: "down", Count: 1}, ctl.ErrorInfo{Event: "down", Count: 2}),
		"an error that never was":      errs(ctl.ErrorInfo{Event: "down"}),
		"an error too often":           errs(ctl.ErrorInfo{Event: "down", Count: 10}),
	} {
		last := uint64(9)
		if name == "numbers about to wrap around" {
			last = 1<<64 - 1
		}
		w := handover.Write(handover.Newest)
		w.U64(&last)
		w.Begin(tagJournal)
		write(w)
		w.End()
		j, err := adoptJournal(w.Bytes())
		if !errors.Is(err, handover.ErrFormat) || j.before != last || len(j.errors) != 0 {
			t.Errorf("%s: %v, %d events, %d errors", name, err, j.seq, len(j.errors))
		}
	}
}

// FuzzJournal: whatever the state is, a journal refuses it, or goes on from it.
func FuzzJournal(f *testing.F) {
	f.Add(journalState(eventful()))
	f.Add(journalState(&journal{}))
	f.Fuzz(func(t *testing.T, state []byte) {
		j, err := adoptJournal(state)
		if err != nil {
			if !errors.Is(err, handover.ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		j.note(time.Unix(1, 0), slog.LevelWarn, nil, "next", nil)
		if events := shown(j)[0].([]ctl.EventInfo); len(events) == 0 || events[len(events)-1].Event != "next" {
			t.Fatalf("%+v", events)
		}
		if _, err := adoptJournal(journalState(j)); err != nil && j.seq <= math.MaxUint64/2 {
			t.Fatal(err)
		}
	})
}
