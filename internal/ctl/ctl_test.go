package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestGolden(t *testing.T) {
	const schema = `"schema":"rdsd.v2",`
	admin, nobody := Caller{Admin: true}, Caller{UID: 65534}
	for _, tc := range []struct {
		name, req string
		who       Caller
		backend   fake
	}{
		{"status", `{` + schema + `"kind":"status"}`, admin, fake{}},
		{"devices", `{` + schema + `"kind":"devices"}`, nobody, fake{}},
		{"devices-empty", `{` + schema + `"kind":"devices"}`, nobody, fake{empty: true}},
		{"sockets", `{` + schema + `"kind":"sockets"}`, admin, fake{}},
		{"sockets-own", `{` + schema + `"kind":"sockets"}`, Caller{UID: 1000}, fake{}},
		{"peers", `{` + schema + `"kind":"peers"}`, nobody, fake{}},
		{"ping", `{` + schema + `"kind":"ping","addr":"127.0.0.2","timeout_ns":1000000}`, nobody, fake{}},
		{"ping-path", `{` + schema + `"kind":"ping","addr":"127.0.0.2","path":2}`, nobody, fake{}},
		{"config", `{` + schema + `"kind":"config"}`, nobody, fake{}},
		{"config-empty", `{` + schema + `"kind":"config"}`, admin, fake{empty: true}},
		{"config-reload", `{` + schema + `"kind":"config-reload"}`, admin, fake{}},
		{"config-diff", `{` + schema + `"kind":"config-diff"}`, admin, fake{}},
		{"peer-reset", `{` + schema + `"kind":"peer-reset","addr":"127.0.0.2"}`, admin, fake{}},
		{"status-empty", `{` + schema + `"kind":"status"}`, nobody, fake{empty: true}},
		{"sockets-empty", `{` + schema + `"kind":"sockets"}`, nobody, fake{empty: true}},
		{"peers-empty", `{` + schema + `"kind":"peers"}`, nobody, fake{empty: true}},
		{"error", `{` + schema + `"kind":"peers"}`, nobody, fake{err: errors.New("the engine is gone")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := serve(t, tc.req, tc.who, &tc.backend)
			golden(t, tc.name, got)
			// Parse reads the answer back without losing or renaming anything.
			r, err := Parse(got, Kind(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(tc.name, "-path"), "-empty"), "-own")))
			if tc.backend.err != nil {
				if err == nil || err.Error() != "the engine is gone" {
					t.Errorf("parsed error: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := json.Indent(&out, again, "", "  "); err != nil {
				t.Fatal(err)
			}
			if out.String()+"\n" != string(got) {
				t.Errorf("read and written again:\n%s", &out)
			}
		})
	}
}

func TestGoldenPingReport(t *testing.T) {
	r := PingReport{Addr: netip.MustParseAddr("127.0.0.2"), Replies: []PingReply{}}
	r.Add(PingReply{Seq: 1, RTT: 3000})
	r.Add(PingReply{Seq: 2, Error: &Error{CodeTimeout, "no answer"}})
	r.Add(PingReply{Seq: 3, RTT: 1000})
	r.Summarize()
	got, err := json.MarshalIndent(&Response{Schema: Schema, Kind: KindPingReport, PingReport: &r}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "ping-report", append(got, '\n'))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestServeErrors(t *testing.T) {
	gone := errors.Join(ErrNotFound, errors.New("no connection to 127.0.0.9"))
	for _, tc := range []struct {
		name, req string
		admin     bool
		backend   fake
		code      Code
		message   string
	}{
		{"not JSON", `hello`, false, fake{}, CodeBadRequest, "request is not JSON: "},
		{"empty", ``, false, fake{}, CodeBadRequest, "request is not JSON: "},
		{"two requests", `{"schema":"rdsd.v2","kind":"status"}{}`, false, fake{}, CodeBadRequest, "request is not JSON: "},
		{"no schema", `{"kind":"status"}`, false, fake{}, CodeVersion, `request has schema "", this daemon speaks "rdsd.v2"`},
		{"newer", `{"schema":"rdsd.v3","kind":7}`, false, fake{}, CodeVersion, `request has schema "rdsd.v3", this daemon speaks "rdsd.v2": use the rdsctl`},
		{"unknown field", `{"schema":"rdsd.v2","kind":"status","colour":1}`, false, fake{}, CodeBadRequest, `request: json: unknown field "colour"`},
		{"bad address", `{"schema":"rdsd.v2","kind":"ping","addr":"x"}`, false, fake{}, CodeBadRequest, "request: "},
		{"unknown kind", `{"schema":"rdsd.v2","kind":"reboot"}`, true, fake{}, CodeUnknownKind, `unknown request "reboot"; this daemon knows [status devices sockets processes peers ping peer-reset config config-reload config-diff queues backlog keys barriers congested stalls events errors stacks drain trace capture upgrade]`},
		{"ping nobody", `{"schema":"rdsd.v2","kind":"ping"}`, false, fake{}, CodeBadRequest, "ping: no address"},
		{"ping for ever", `{"schema":"rdsd.v2","kind":"ping","addr":"::1","timeout_ns":3600000000000}`, false, fake{}, CodeBadRequest, "ping: timeout 1h0m0s is not between 0 and 1m0s"},
		{"ping before", `{"schema":"rdsd.v2","kind":"ping","addr":"::1","timeout_ns":-1}`, false, fake{}, CodeBadRequest, "ping: timeout -1ns is not"},
		{"ping too large", `{"schema":"rdsd.v2","kind":"ping","addr":"::1","size":65537}`, false, fake{}, CodeBadRequest, "ping: size 65537 is not between 0 and 65536 bytes"},
		{"ping of less than nothing", `{"schema":"rdsd.v2","kind":"ping","addr":"::1","size":-1}`, false, fake{}, CodeBadRequest, "ping: size -1 is not between"},
		{"no answer", `{"schema":"rdsd.v2","kind":"ping","addr":"::1","timeout_ns":1}`, false, fake{block: true}, CodeTimeout, "no answer from ::1 within 1ns: "},
		{"reset nobody", `{"schema":"rdsd.v2","kind":"peer-reset"}`, true, fake{}, CodeBadRequest, "peer reset: no address"},
		{"reset by others", `{"schema":"rdsd.v2","kind":"peer-reset","addr":"::1"}`, false, fake{}, CodePermission, "peer reset: only root and the daemon's own user may do that"},
		{"reload by others", `{"schema":"rdsd.v2","kind":"config-reload"}`, false, fake{}, CodePermission, "the configuration: only root and the daemon's own user may reload or compare it"},
		{"diff by others", `{"schema":"rdsd.v2","kind":"config-diff"}`, false, fake{}, CodePermission, "the configuration: only"},
		{"bad configuration", `{"schema":"rdsd.v2","kind":"config-reload"}`, true, fake{err: errors.New("x.toml:1:1: no")}, CodeFailed, "x.toml:1:1: no"},
		{"reset unknown", `{"schema":"rdsd.v2","kind":"peer-reset","addr":"::1"}`, true, fake{err: gone}, CodeNotFound, "not found\nno connection to 127.0.0.9"},
		{"unsupported", `{"schema":"rdsd.v2","kind":"status"}`, true, fake{err: ErrUnsupported}, CodeUnsupported, "not supported by this version"},
		{"failed", `{"schema":"rdsd.v2","kind":"sockets"}`, true, fake{err: errors.New("boom")}, CodeFailed, "boom"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := Serve(t.Context(), []byte(tc.req), Caller{UID: 1, Admin: tc.admin}, &tc.backend)
			r, err := Parse(out, KindStatus)
			e, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("no error in %s (%v)", out, err)
			}
			if e.Code != tc.code || !strings.HasPrefix(e.Message, tc.message) {
				t.Errorf("got  %s: %s\nwant %s: %s", e.Code, e.Message, tc.code, tc.message)
			}
			if r.Status != nil || r.Peers != nil || r.Sockets != nil || r.Ping != nil || r.PeerReset != nil || r.Config != nil || r.Reload != nil {
				t.Errorf("data beside an error: %s", out)
			}
		})
	}
}

// Callers who are no administrators see what is their own, and sums.
func TestVisible(t *testing.T) {
	for _, tc := range []struct {
		who            Caller
		users, sockets int
		others         uint64
	}{
		{Caller{UID: 77, Admin: true}, 3, 2, 0},
		{Caller{UID: 1000}, 1, 1, 1},
		{Caller{UID: 0}, 1, 1, 1}, // the connection decides who is an administrator, not the uid
		{Caller{UID: 77}, 0, 0, 2},
		{Caller{UID: 77, Account: "pod7"}, 1, 0, 2},
		{Caller{UID: 77, Account: "pod"}, 0, 0, 2},
	} {
		for _, kind := range []Kind{KindStatus, KindSockets} {
			r, err := Parse(serve(t, `{"schema":"rdsd.v2","kind":"`+string(kind)+`"}`, tc.who, &fake{}), kind)
			if err != nil {
				t.Fatal(err)
			}
			if s := r.Status; s != nil {
				if len(s.Users) != tc.users || s.Counts.Sockets == 0 {
					t.Errorf("%+v: users %+v, %d sockets", tc.who, s.Users, s.Counts.Sockets)
				}
				for _, u := range s.Users {
					if !tc.who.Admin && (u.UID == nil && u.Account != tc.who.Account || u.UID != nil && *u.UID != tc.who.UID) {
						t.Errorf("%+v sees %+v", tc.who, u)
					}
				}
				continue
			}
			if len(r.Sockets) != tc.sockets || r.OtherSockets != tc.others {
				t.Errorf("%+v: %d sockets, %d of others", tc.who, len(r.Sockets), r.OtherSockets)
			}
			for _, s := range r.Sockets {
				if !tc.who.Admin && s.Owner.UID != tc.who.UID {
					t.Errorf("%+v sees %+v", tc.who, s)
				}
			}
		}
	}
}

func TestErrorIs(t *testing.T) {
	for code, target := range map[Code]error{
		CodeNotFound: ErrNotFound, CodePermission: ErrPermission, CodeUnsupported: ErrUnsupported, CodeTimeout: context.DeadlineExceeded,
	} {
		if !errors.Is(&Error{Code: code}, target) || errors.Is(&Error{Code: CodeFailed}, target) {
			t.Errorf("%s is not (only) %v", code, target)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", "the daemon's answer is not JSON: "},
		{`{"schema":"rdsd.v9","kind":{}}`, `the daemon answers with schema "rdsd.v9", this program reads "rdsd.v2": they are of different versions`},
		{`{"schema":"rdsd.v2","kind":"peers"}`, `the daemon answered "peers" to "status"`},
		{`{"schema":"rdsd.v2","kind":"status","status":7}`, "the daemon's answer: "},
		{`{"schema":"rdsd.v2","kind":"status"}`, `the daemon's answer to "status" is empty`},
		{`{"schema":"rdsd.v2","kind":"status","status":{"counters":{"a":-1}}}`, "the daemon's answer: "},
		{`{"schema":"rdsd.v2","kind":"status","status":{"counters":[1]}}`, "the daemon's answer: "},
	} {
		if _, err := Parse([]byte(tc.in), KindStatus); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.in, err, tc.want)
		}
	}
	// Fields that a newer daemon added are ignored.
	if _, err := Parse([]byte(`{"schema":"rdsd.v2","kind":"peers","peers":[{"lane":1,"colour":"red"}],"more":1}`), KindPeers); err != nil {
		t.Error(err)
	}
}

func TestStuckEngine(t *testing.T) {
	for _, tc := range []struct {
		state stats.State
		after time.Duration
		found bool
	}{
		{stats.Running, StallAfter - 1, false},
		{stats.Running, 3200 * time.Millisecond, true},
		{stats.Sleeping, stats.SleepMost, false},
		{stats.Sleeping, 2 * stats.SleepMost, true},
	} {
		snap := stats.Snapshot{State: tc.state, Beat: t0.UnixNano()}
		var s Status
		now := t0.Add(tc.after)
		s.Fill(&snap, now)
		found := Judge(&Facts{Now: now, Status: &s})
		if got := len(found) > 0; got != tc.found || got && !found[0].Since.Equal(now.Add(-snap.Late(now))) {
			t.Errorf("%v after %v: %+v", tc.state, tc.after, found)
		}
	}
}

func TestPingReport(t *testing.T) {
	r := PingReport{}
	r.Summarize()
	if r.P99 != 0 {
		t.Error("percentiles of nothing")
	}
	for i := range 2 * maxReplies {
		r.Add(PingReply{Seq: i, RTT: time.Duration(i%100 + 1)})
	}
	r.Summarize()
	if r.Sent != 2*maxReplies || r.Received != r.Sent || len(r.Replies) > maxReplies {
		t.Errorf("%d sent, %d received, %d kept", r.Sent, r.Received, len(r.Replies))
	}
	if want := []time.Duration{1, 50, 99, 100}; !reflect.DeepEqual([]time.Duration{r.Min, r.P50, r.P99, r.Max}, want) {
		t.Errorf("min %d p50 %d p99 %d max %d", r.Min, r.P50, r.P99, r.Max)
	}
}

func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"schema":"rdsd.v2","kind":"status"}`))
	f.Add([]byte(`{"schema":"rdsd.v2","kind":"ping","addr":"127.0.0.1","timeout_ns":1}`))
	f.Add([]byte(`{"schema":"rdsd.v2","kind":"\u0000"}`))
	f.Fuzz(func(t *testing.T, req []byte) {
		out := Serve(t.Context(), req, Caller{Admin: true}, &fake{})
		if !json.Valid(out) {
			t.Fatalf("answer is not JSON: %s", out)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"status", "peers", "sockets", "ping", "error"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, name)
	}
	f.Fuzz(func(t *testing.T, b []byte, kind string) {
		if r, err := Parse(b, Kind(kind)); err == nil && (r == nil || r.Schema != Schema) {
			t.Fatalf("accepted %s", b)
		}
	})
}

// Any bytes in the lists give an answer that can be shown.
func FuzzOffline(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add(bytes.Repeat([]byte{0xff}, 900), uint16(0))
	f.Add([]byte{0x10, 0, 1, 1, 0xf0, 0x9f}, uint16(700))
	mem := make([]uint64, stats.ListSize/8)
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		if _, err := stats.NewLists(mem, stats.Info{}); err != nil {
			t.Fatal(err)
		}
		const header = 16
		for i, c := range b {
			// The rows of sockets follow the header, the rows of peers follow those.
			for _, start := range []int{header, header + stats.MaxSockets*13} {
				w := start + int(at)%500 + i/8
				mem[w] ^= uint64(c) << (i % 8 * 8)
			}
		}
		r, err := stats.NewListReader(mem)
		if err != nil {
			t.Fatal(err)
		}
		for kind, resp := range map[Kind]*Response{KindSockets: OfflineSockets(r), KindPeers: OfflinePeers(r)} {
			out, err := json.Marshal(resp)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Parse(out, kind); err != nil || !got.Offline {
				t.Errorf("%s: %v, %s", kind, err, out)
			}
		}
	})
}
