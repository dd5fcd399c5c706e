package ctl

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var (
	lookHere  = netip.MustParseAddr("127.0.0.1")
	lookThere = netip.MustParseAddr("127.0.0.2")
	lookOwner = Owner{PID: 12, UID: 1000, Name: "db"}
)

// list cuts a list at the view's limit and keeps the items that the caller may see.
func list[T any](f *fake, v View, uid uint32, items ...T) ([]T, bool, error) {
	if f.empty || f.err != nil || !v.May(uid) {
		return nil, false, f.err
	}
	return items[:min(v.Limit, len(items))], v.Limit < len(items), nil
}

func (f *fake) Messages(v View, queue string) ([]MessageInfo, bool, error) {
	return list(f, v, 1000, MessageInfo{Queue: QueueSend, Local: lookHere, LocalPort: 1, Remote: lookThere, RemotePort: 2, Lane: 3, Seq: 1 << 63, Bytes: 4, Ops: 5, Age: 6, Owner: lookOwner},
		MessageInfo{Queue: QueueRecv})
}

func (f *fake) Backlog(v View) ([]BacklogInfo, bool, error) {
	return list(f, v, 1000, BacklogInfo{Direction: "send", Addr: lookHere, Port: 1, Dest: lookThere, DestPort: 2, Lane: 3, Owner: lookOwner, QueuedMessages: 4, QueuedBytes: 5,
		UnackedMessages: 6, UnackedBytes: 7, UnreadMessages: 8, UnreadBytes: 9, Ops: 10, Oldest: 11, Congested: true, WaitsFor: WaitsForReceiver})
}

func (f *fake) Keys(v View) ([]KeyInfo, bool, error) {
	return list(f, v, 1000, KeyInfo{Addr: lookHere, Port: 1, Owner: lookOwner, Buffer: 2, Offset: 3, Length: 4, Rights: "read", UseOnce: true, State: "live", Grants: 5})
}

func (f *fake) Barriers(v View) ([]BarrierInfo, bool, error) {
	return list(f, v, 1000, BarrierInfo{Addr: lookHere, Port: 1, Dest: lookThere, Lane: 2, Owner: lookOwner, Issued: 3, HWM: 4, Pending: 5})
}

func (f *fake) Congested(v View) ([]CongestedInfo, bool, error) {
	return list(f, v, 1000, CongestedInfo{Where: "here", Addr: lookHere, Port: 1, Since: t0, Owner: &lookOwner, Unread: 2, Limit: 3, Senders: 4},
		CongestedInfo{Where: "peer", Addr: lookThere, Port: 5})
}

func (f *fake) Stalls() ([]StallInfo, error) {
	if f.empty || f.err != nil {
		return nil, f.err
	}
	return []StallInfo{{Local: lookHere, Remote: lookThere, Lane: 1, State: "up", Transport: "soft", QueuedMessages: 2, QueuedBytes: 3, UnackedMessages: 4, UnackedBytes: 5,
		OldestQueued: 6, OldestUnacked: 7, Oldest: 7, SendCredits: 8, WaitsFor: WaitsForAck, LastError: "reset"}}, nil
}

func (f *fake) Events(v View, after uint64) ([]EventInfo, bool, error) {
	uid := uint32(1000)
	return list(f, v, 1000, EventInfo{Seq: after + 1, Time: t0, Level: "warn", Event: "ended", Local: lookHere, UID: &uid, PID: 12, Error: "bad"},
		EventInfo{Seq: after + 2, Time: t0, Level: "info", Event: "up", Peer: lookThere})
}

func (f *fake) Errors(v View) ([]ErrorInfo, bool, error) {
	return list(f, v, 1000, ErrorInfo{Event: "down", Level: "info", Peer: lookThere, Count: 2, First: t0, Last: t0.Add(time.Second), Error: "reset"})
}

func (f *fake) Stacks() (string, error) { return "goroutine 1 [running]:\n", f.err }

func (f *fake) Drain(addr netip.Addr, do string) (Drain, error) {
	return Drain{Drained: do != DrainResume, Messages: 1, Bytes: 2, Ops: 3, Unread: 4}, f.err
}

func TestGoldenLists(t *testing.T) {
	for name, fields := range map[string]string{
		"queues": "", "backlog": "", "keys": "", "barriers": "", "congested": "", "stalls": "", "events": `,"after":7`, "errors": "", "stacks": "",
		"drain": `,"do":"begin","addr":"127.0.0.2"`,
	} {
		t.Run(name, func(t *testing.T) {
			req := `{"schema":"rdsd.v2","kind":"` + name + `"` + fields + `}`
			got := serve(t, req, Caller{Admin: true}, &fake{})
			golden(t, name, got)
			if _, err := Parse(got, Kind(name)); err != nil {
				t.Error(err)
			}
			// An empty list is [] and not null.
			if name != "stacks" && name != "drain" {
				got = serve(t, req, Caller{Admin: true}, &fake{empty: true})
				if _, err := Parse(got, Kind(name)); err != nil || !strings.Contains(string(got), `"`+name+`": []`) {
					t.Errorf("empty: %v, %s", err, got)
				}
			}
			if _, err := Parse(serve(t, req, Caller{Admin: true}, &fake{err: errors.New("boom")}), Kind(name)); err == nil || err.Error() != "boom" {
				t.Errorf("failing: %v", err)
			}
		})
	}
}

func TestLookLimits(t *testing.T) {
	for _, tc := range []struct {
		req  string
		who  Caller
		code Code
		text string
	}{
		{`"kind":"queues","limit":1`, Caller{UID: 1000}, "", `"truncated":true`},
		{`"kind":"queues","limit":2`, Caller{UID: 1000}, "", `"queue":"recv"`},
		{`"kind":"keys"`, Caller{UID: 7}, "", `"keys":[]`},
		{`"kind":"events"`, Caller{UID: 7}, "", `"events":[]`},
		{`"kind":"queues","queue":"sent"`, Caller{}, CodeBadRequest, `"sent" is none of send, retrans, recv`},
		{`"kind":"keys","limit":-1`, Caller{}, CodeBadRequest, "limit -1 is not between 1 and 20000"},
		{`"kind":"keys","limit":20001`, Caller{}, CodeBadRequest, "limit 20001 is not"},
		{`"kind":"stacks"`, Caller{UID: 7}, CodePermission, "only root"},
		{`"kind":"drain","do":"begin"`, Caller{UID: 7}, CodePermission, "only root"},
		{`"kind":"drain","do":"end"`, Caller{Admin: true}, CodeBadRequest, `"end" is none of`},
	} {
		out := string(Serve(t.Context(), []byte(`{"schema":"rdsd.v2",`+tc.req+`}`), tc.who, &fake{}))
		if !strings.Contains(out, tc.text) && !strings.Contains(out, strings.ReplaceAll(tc.text, `"`, `\"`)) || (tc.code != "") != strings.Contains(out, `"error"`) ||
			!strings.Contains(out, string(tc.code)) {
			t.Errorf("%s: %s", tc.req, out)
		}
	}
}

func (f *fake) BeginTrace(Caller, TraceSpec) error { return f.err }

func (f *fake) ReadTrace() ([]TraceEvent, TraceState, error) {
	if f.empty || f.err != nil {
		return nil, TraceState{Over: true}, f.err
	}
	e := TraceEvent{Time: t0, Step: "settled", Local: lookHere, LocalPort: 4000, Remote: lookThere, RemotePort: 4001, Lane: 1, Seq: 1 << 60,
		Datagrams: 3, Bytes: 4096, Ops: 1, Outcome: "SUCCESS"}
	return []TraceEvent{e}, TraceState{Messages: 1, Dropped: 2, Skipped: 3, Full: true, Over: true}, nil
}

func (f *fake) EndTrace() {}

func (f *fake) BeginCapture(CaptureSpec) (CaptureState, error) {
	return CaptureState{Unseen: []netip.Addr{lookThere}}, f.err
}

func (f *fake) ReadCapture() ([]byte, CaptureState, error) {
	return []byte("pcapng"), CaptureState{Frames: 1, Dropped: 2, Over: true}, f.err
}

func (f *fake) EndCapture() {}
