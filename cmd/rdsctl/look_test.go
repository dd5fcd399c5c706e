package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

var (
	here  = netip.MustParseAddr("127.0.0.1")
	there = netip.MustParseAddr("127.0.0.2")
	owner = ctl.Owner{PID: 12, UID: 1000, Name: "db"}
	long  = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
)

func (b *backend) Messages(v ctl.View, queue string) ([]ctl.MessageInfo, bool, error) {
	all := []ctl.MessageInfo{
		{Queue: ctl.QueueSend, Local: here, LocalPort: 4000, Remote: there, RemotePort: 5000, Lane: 1, Bytes: 10, Age: 2 * time.Second, Ops: 1, Owner: owner},
		{Queue: ctl.QueueRetrans, Local: here, LocalPort: 4000, Remote: there, RemotePort: 5001, Seq: 7, Bytes: 20, Age: time.Millisecond, Owner: owner},
		{Queue: ctl.QueueRecv, Local: here, LocalPort: 4000, Remote: there, RemotePort: 5000, Bytes: 1 << 20, Age: time.Minute, Owner: owner},
	}
	var out []ctl.MessageInfo
	for _, m := range all {
		if queue == "" || queue == m.Queue {
			out = append(out, m)
		}
	}
	return out[:min(len(out), v.Limit)], len(out) > v.Limit, b.err
}

func (b *backend) Backlog(ctl.View) ([]ctl.BacklogInfo, bool, error) {
	return []ctl.BacklogInfo{{Direction: "send", Addr: here, Port: 4000, Dest: there, DestPort: 5000, Lane: 1, Owner: owner, QueuedMessages: 3, QueuedBytes: 3 << 10,
		UnackedMessages: 2, UnackedBytes: 200, Ops: 1, Oldest: 1500 * time.Millisecond, Congested: true, WaitsFor: ctl.WaitsForReceiver},
		{Direction: "send", Addr: here, Port: 4000, Dest: there, DestPort: 5001, Owner: owner, Congested: true, Oldest: 40 * time.Second, WaitsFor: ctl.WaitsForRelief},
		{Direction: "recv", Addr: here, Port: 4000, Owner: owner, UnreadMessages: 1, UnreadBytes: 5, WaitsFor: ctl.WaitsForReader}}, false, b.err
}

func (b *backend) Keys(ctl.View) ([]ctl.KeyInfo, bool, error) {
	return []ctl.KeyInfo{{Addr: here, Port: 4000, Owner: owner, Buffer: 1, Offset: 4096, Length: 8192, Rights: "read+write", UseOnce: true, State: "live", Grants: 2}}, false, b.err
}

func (b *backend) Barriers(ctl.View) ([]ctl.BarrierInfo, bool, error) {
	return []ctl.BarrierInfo{{Addr: here, Port: 4000, Dest: there, Lane: 1, Owner: owner, Issued: 9, HWM: 7, Pending: 2}}, false, b.err
}

func (b *backend) Congested(ctl.View) ([]ctl.CongestedInfo, bool, error) {
	return []ctl.CongestedInfo{{Where: "here", Addr: here, Port: 4000, Since: time.Now().Add(-65 * time.Second), Owner: &owner, Unread: 600 << 10, Limit: 512 << 10, Senders: 3},
		{Where: "peer", Addr: there, Port: 5000, Senders: 1}}, false, b.err
}

func (b *backend) Stalls() ([]ctl.StallInfo, error) {
	return []ctl.StallInfo{{Local: here, Remote: there, State: "up", Transport: "soft", QueuedMessages: 1, UnackedMessages: 2, OldestQueued: time.Millisecond,
		OldestUnacked: 2 * time.Second, Oldest: 2 * time.Second, SendCredits: 3, WaitsFor: ctl.WaitsForAck, LastError: "reset"},
		{Local: here, Remote: there, Lane: 1, State: "down", QueuedMessages: 1, OldestQueued: time.Millisecond, Oldest: time.Millisecond, WaitsFor: ctl.WaitsForConnection}}, b.err
}

func (b *backend) Events(v ctl.View, after uint64) (out []ctl.EventInfo, more bool, err error) {
	uid := uint32(1000)
	for _, e := range []ctl.EventInfo{
		{Seq: 1, Time: long, Level: "info", Event: "up", Local: here, Peer: there},
		{Seq: 2, Time: long.Add(time.Second), Level: "warn", Event: "client ended: session", UID: &uid, PID: 12, Error: "bad\x1bslot"},
		{Seq: 3, Time: long.Add(2 * time.Second), Level: "info", Event: "down", Peer: there, Lane: new(uint8(2)), Path: 3, Error: "reset"},
	} {
		if e.Seq > after && (e.UID == nil || v.May(*e.UID)) {
			out = append(out, e)
		}
	}
	if after >= 3 && b.onPoll != nil {
		b.onPoll()
	}
	return out, false, b.err
}

func (b *backend) Errors(ctl.View) ([]ctl.ErrorInfo, bool, error) {
	return []ctl.ErrorInfo{{Event: "down", Level: "info", Peer: there, Count: 5, First: time.Now().Add(-time.Hour), Last: time.Now().Add(-time.Minute), Error: "reset"}}, false, b.err
}

func (b *backend) Stacks() (string, error) { return "goroutine 1", b.err }

func (b *backend) Drain(addr netip.Addr, do string) (ctl.Drain, error) {
	if addr.IsValid() && addr != there {
		return ctl.Drain{}, fmt.Errorf("%w: no connection to %v", ctl.ErrNotFound, addr)
	}
	d := ctl.Drain{Drained: do != ctl.DrainResume, Unread: 5}
	if b.left > 0 {
		d.Messages, d.Bytes, d.Ops = uint64(b.left), uint64(b.left)<<10, 1
		b.left--
	} else {
		d.Done = d.Drained
	}
	b.drains = append(b.drains, do)
	return d, b.err
}

func TestLists(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"queues", `QUEUE    LOCAL           REMOTE          LANE  SEQ    BYTES  OPS   AGE  OWNER
send     127.0.0.1:4000  127.0.0.2:5000     1    0       10    1    2s  db[12]
retrans  127.0.0.1:4000  127.0.0.2:5001     0    7       20    0   1ms  db[12]
recv     127.0.0.1:4000  127.0.0.2:5000     0    0  1048576    0  1m0s  db[12]
`},
		{"queues retrans -no-header", "retrans  127.0.0.1:4000  127.0.0.2:5001  0  7  20  0  1ms  db[12]\n"},
		{"queues -filter bytes>=1M -columns queue,age,owner.uid", "QUEUE   AGE  OWNER.UID\nrecv   1m0s       1000\n"},
		{"queues -sort -age -columns queue -no-header", "recv\nsend\nretrans\n"},
		{"backlog", `SOCKET          DIR   DEST            LANE   QUEUED  UNACKED  UNREAD  OPS  OLDEST  WAITS-FOR                 OWNER
127.0.0.1:4000  send  127.0.0.2:5000     1  3/3 KiB  2/200 B   0/0 B    1    1.5s  receiver                  db[12]
127.0.0.1:4000  send  127.0.0.2:5001     0    0/0 B    0/0 B   0/0 B    0     40s  relief of 127.0.0.2:5001  db[12]
127.0.0.1:4000  recv  none               0    0/0 B    0/0 B   1/5 B    0      0s  reader                    db[12]
`},
		{"keys", `SOCKET          BUFFER  OFFSET  LENGTH  RIGHTS      ONCE  OPEN  STATE  GRANTS  PLACED  SERVED  OWNER
127.0.0.1:4000       1    4096    8192  read+write  yes   no    live        2     0 B     0 B  db[12]
`},
		{"barriers", `SOCKET          DEST       LANE  ISSUED  MARK  PENDING  OWNER
127.0.0.1:4000  127.0.0.2     1       9     7        2  db[12]
`},
		{"cong", `WHERE  SOCKET          FOR                  UNREAD  SENDERS  OWNER
here   127.0.0.1:4000  1m5s     600 KiB of 512 KiB        3  db[12]
peer   127.0.0.2:5000  unknown                 0 B        1  there
`},
		{"stalls -over 1s", `REMOTE     LANE  STATE  OLDEST  UNACKED  QUEUED  CREDITS  WAITS-FOR  LAST-ERROR
127.0.0.2     0  up         2s        2       1        3  ack        reset
`},
		{"stalls -filter state=down -columns lane,waits-for", "LANE  WAITS-FOR\n   1  connection\n"},
		{"events", `TIME                      LEVEL  ABOUT      LANE  EVENT                  ERROR
2026-01-02T03:04:05.000Z  info   127.0.0.2  none  up                     none
2026-01-02T03:04:06.000Z  warn   uid 1000   none  client ended: session  bad?slot
2026-01-02T03:04:07.000Z  info   127.0.0.2   2.3  down                   reset
`},
		{"errors", `COUNT  LAST      FIRST     ABOUT      EVENT  ERROR
    5  1m0s ago  1h0m ago  127.0.0.2  down   reset
`},
		{"counters", "COUNTER      VALUE\nsend_queued      5\n"},
		{"counters -all -o csv", "name,value,rate_per_second\nsend_queued,5,\nconn_reset,0,\n"},
		{"sockets -o csv -columns addr,port,pid,congested", "addr,port,owner.pid,congested\n127.0.0.1,4000,12,true\n"},
		{"sockets -o csv -no-header -columns name", "a?[2Jb?c\n"},
		{"peers -o jsonl -columns remote,next_tx_seq,instance", `{"remote":"127.0.0.2","next_tx_seq":"9223372036854775808","instance":"0000000000000000"}` + "\n"},
		{"peers -o jsonl-v2 -columns next_tx_seq", `{"next_tx_seq":9223372036854775808}` + "\n"},
		{"peers -o csv -filter remote=10.0.0.0/8 -columns remote,state", "remote,state\n"},
	} {
		code, stdout, stderr := runApp(t, direct{&backend{}, true}, strings.Fields(tc.args)...)
		if code != exitOK || stdout != tc.want || stderr != "" {
			t.Errorf("%s: status %d, stderr %q, got\n%s\nwant\n%s", tc.args, code, stderr, stdout, tc.want)
		}
	}
}

func TestListJSON(t *testing.T) {
	for args, want := range map[string]string{
		"keys -o jsonl":                                     `"state":"live"`,
		"events -o json -filter level=warn":                 `"seq": "2"`,
		"sockets -o json -columns port,pid":                 `"owner.pid": 12`,
		"counters -o json":                                  `"kind": "counters"`,
		"config show -o jsonl -filter key=port":             `"value":"7"`,
		"queues -o json -limit 1 -sort age":                 `"truncated": true`,
		"status -o jsonl":                                   `"pid":4711`,
		"stalls -over 1s -o jsonl -columns oldest":          `{"oldest_ns":"2000000000"}`,
		"errors -o csv -columns count,error":                "5,reset",
		"cong -o jsonl -columns owner.pid,where":            `{"owner.pid":null,"where":"peer"}`,
		"barriers -o json -filter pending=0":                `"barriers": []`,
		"peer drain 127.0.0.2 -o json":                      `"done": true`,
		"daemon resume -o json":                             `"drained": false`,
		"peers -o wide -columns peer,instance,queued-bytes": "PEER  INSTANCE",
	} {
		code, stdout, stderr := runApp(t, direct{&backend{}, true}, strings.Fields(args)...)
		if code != exitOK || !strings.Contains(stdout, want) || stderr != "" {
			t.Errorf("%s: status %d, %q, got\n%s\nwant %s", args, code, stderr, stdout, want)
		}
	}
	// Messages go to standard error, so that the table stays one.
	code, stdout, stderr := runApp(t, direct{&backend{}, true}, "queues", "-limit", "1")
	if code != exitOK || strings.Count(stdout, "\n") != 2 || stderr != "there is more: --limit\n" {
		t.Errorf("limited: status %d, %q, %q", code, stdout, stderr)
	}
}

func TestListUsage(t *testing.T) {
	for args, want := range map[string]string{
		"peers -filter nome=1":           `rdsctl: peers: filter "nome=1": no field "nome"; there are: local remote lane`,
		"peers -filter lane":             `rdsctl: peers: filter "lane": want NAME=VALUE`,
		"peers -filter lane=x":           `"x" is not a number`,
		"peers -sort nome":               `rdsctl: peers: sort: no field "nome"`,
		"peers -columns nome":            `rdsctl: peers: columns: no column or field "nome"; there are: local remote`,
		"stalls -over -1s":               "rdsctl: stalls: -over -1s is negative",
		"queues -limit 0":                "rdsctl: queues: -limit 0 is not between 1 and 20000",
		"keys -limit 20001":              "-limit 20001 is not between",
		"queues sent":                    `rdsctl: queues: "sent" is none of send, retrans, recv`,
		"events -f -o json":              "-f has no end for one document: -o jsonl",
		"events -f -watch 1s":            "choose one",
		"peers -watch 1ms":               "rdsctl: peers: -watch 1ms: want 10ms or more",
		"status -o xml":                  "rdsctl: status: -o xml: want table, wide, json, jsonl or csv",
		"config docs -o json":            "flag provided but not defined: -o",
		"-o json config docs":            "rdsctl: config docs has one form of output, not -o json",
		"counters -stats /x":             "rdsctl: counters: -stats is for -offline",
		"peer drain 10.0.0.300":          `rdsctl: peer drain: "10.0.0.300" is not a host's name or IP address`,
		"peer drain 127.0.0.2 -wait -1s": "rdsctl: drain: -wait -1s is negative",
		"daemon":                         "rdsctl: daemon: want rdsctl daemon and one of: drain, resume",
		"daemon drain now":               "rdsctl: daemon drain takes no argument",
		"sokets":                         `rdsctl: unknown verb "sokets"; is it sockets? There are: status`,
	} {
		code, stdout, stderr := runApp(t, direct{&backend{}, true}, strings.Fields(args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, stdout %q\ngot  %swant %s", args, code, stdout, stderr, want)
		}
	}
}

func TestDrains(t *testing.T) {
	b := &backend{left: 3}
	code, stdout, stderr := runApp(t, direct{b, true}, "daemon", "drain")
	if want := "daemon: drained, nothing is left; rdsctl daemon resume ends it\ndaemon: 5 B that arrived are not read yet\n"; code != exitOK || stdout != want || stderr != "" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
	if got := strings.Join(b.drains, " "); got != "begin look look look" {
		t.Errorf("asked %s", got)
	}
	code, stdout, stderr = runApp(t, direct{&backend{left: 1 << 20}, true}, "peer", "drain", "127.0.0.2", "-wait", "1ms")
	if code != exitTimeout || !strings.HasPrefix(stdout, "127.0.0.2: draining, ") || !strings.Contains(stderr, "rdsctl peer resume 127.0.0.2 ends it") {
		t.Errorf("in vain: status %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = runApp(t, direct{&backend{left: 1}, true}, "peer", "drain", "127.0.0.2", "-wait", "0s")
	if code != exitOK || stdout != "127.0.0.2: draining, 1 messages (1 KiB) and 1 operations are left\n" {
		t.Errorf("begun: status %d, %q", code, stdout)
	}
	code, stdout, _ = runApp(t, direct{&backend{}, true}, "peer", "resume", "127.0.0.2")
	if code != exitOK || stdout != "127.0.0.2: resumed\n" {
		t.Errorf("resumed: status %d, %q", code, stdout)
	}
}

// Each event is printed once, until the interrupt.
func TestFollow(t *testing.T) {
	ctx, cancel := testContext(t)
	b := &backend{onPoll: cancel}
	code, stdout, stderr := runAppIn(ctx, direct{b, true}, "events", "-f", "-columns", "event", "-no-header")
	if code != exitOK || stderr != "" || stdout != "up\nclient ended: session\ndown\n" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
	// Events of other users are left out. That is reported once, on standard error.
	ctx, cancel = testContext(t)
	b = &backend{onPoll: cancel}
	if code, stdout, _ := runAppIn(ctx, direct{b, false}, "events", "-f", "-o", "jsonl"); code != exitOK || strings.Count(stdout, "\n") != 3 {
		t.Errorf("status %d, %s", code, stdout)
	}
}

func TestWatch(t *testing.T) {
	ctx, cancel := testContext(t)
	n := 0
	c := counting{direct{&backend{}, true}, func() {
		if n++; n == 3 {
			cancel()
		}
	}}
	code, stdout, stderr := runAppIn(ctx, c, "sockets", "-watch", "10ms", "-columns", "port", "-no-header")
	if code != exitOK || stdout != "4000\n4000\n4000\n" || stderr != "" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
}

// The exit status of each verb that asks a daemon, for each way in which that can fail.
func TestBadDaemonEveryVerb(t *testing.T) {
	for _, v := range verbs() {
		if v.alone || v.raw != nil || v.name == "bench" || v.name == "call" { // these open the library, too
			continue
		}
		args := strings.Fields(v.name)
		switch v.name {
		case "check":
			continue // TestCheck
		case "ping":
			args = append(args, "127.0.0.2", "-c", "1")
		case "capture":
			args = append(args, "-w", "-")
		default:
			if strings.Contains(v.args, "ADDR") {
				args = append(args, "127.0.0.2")
			}
		}
		for _, tc := range []struct {
			what string
			c    caller
			code int
			want string
		}{
			{"answers garbage", answer("hi"), exitFailed, "not JSON"},
			{"of another schema", answer(`{"schema":"rdsd.v9"}`), exitVersion, "use the rdsctl that came with the daemon"},
			{"older", answer(`{"schema":"rdsd.v2","error":{"code":"unknown_kind","message":"unknown request"}}`), exitVersion, "the daemon is older than this rdsctl"},
			{"refuses", answer(`{"schema":"rdsd.v2","error":{"code":"permission","message":"only root may"}}`), exitPermission, "only root may"},
			{"knows no such peer", answer(`{"schema":"rdsd.v2","error":{"code":"not_found","message":"nobody"}}`), exitNotFound, "rdsctl peers lists"},
			{"stuck", silent{}, exitTimeout, "did not answer within 1ms; rdsctl status --offline"},
		} {
			if v.name == "doctor" || v.name == "bundle" || v.name == "top" {
				continue // these go on without an answer and have tests of their own
			}
			timeout := "30s"
			if tc.c == (silent{}) {
				timeout = "1ms"
			}
			code, stdout, stderr := runApp(t, tc.c, append(args, "-timeout", timeout)...)
			if v.name == "ping" && tc.c == (silent{}) {
				continue // its time-out is longer, see TestStuckDaemon
			}
			if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%s, of a daemon that is %s: status %d, %q, %q", v.name, tc.what, code, stdout, stderr)
			}
		}
	}
}

func TestComplete(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"s", "sockets stalls status stress"},
		{"peer ", "drain reset resume"},
		{"peer reset ", "127.0.0.2"},
		{"peer reset 9", ""},
		{"ping ", "127.0.0.2"},
		{"queues r", "recv retrans"},
		{"-o json pee", "peer peers"},
		{"peers -o ", "csv json jsonl table wide"},
		{"status -o j", "json jsonl"},
		{"ver", "version"},
		{"peers --so", "--socket --sort"},
		{"status -off", "-offline"},
		{"peers -columns remote,sta", "remote,state"},
		{"peers -sort -la", "-lane -last-error -last_error -last_error_at"},
		{"help conf", "config"},
		{"config ", "diff docs reload show validate"},
		{"config show ", ""},
		{"nothing ", ""},
	} {
		args := strings.Split(tc.args, " ")
		code, stdout, stderr := runApp(t, direct{&backend{}, true}, append([]string{completeVerb}, args...)...)
		got := strings.Fields(stdout)
		want := strings.Fields(tc.want)
		if code != exitOK || stderr != "" || !sameWords(got, want) {
			t.Errorf("%q: status %d, %v, want %v, %q", tc.args, code, got, want, stderr)
		}
	}
	// Without a daemon, completion offers the words that need none.
	if code, stdout, stderr := runApp(t, silent{}, completeVerb, "peer", "reset", ""); code != exitOK || stdout != "" || stderr != "" {
		t.Errorf("no daemon: status %d, %q, %q", code, stdout, stderr)
	}
}

// Bash passes the words of its line, colons included.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	code, script, _ := runApp(t, nil, "completion", "bash")
	if code != exitOK {
		t.Fatalf("status %d", code)
	}
	dir := t.TempDir()
	// A script in place of rdsctl. It answers with the words that it was called with.
	fake := "#!" + bash + "\nshift; printf '%s\\n' fd00::1 \"[$*]\"\n"
	if err := os.WriteFile(dir+"/rdsctl", []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ line, words, want string }{
		{"rdsctl peer reset ", `rdsctl peer reset ""`, "fd00::1 [peer reset ]"},
		{"rdsctl peer reset fd00:", `rdsctl peer reset fd00 :`, ":1 [peer reset fd00:]"},
		{"rdsctl peer reset fd00::1", `rdsctl peer reset fd00 :: 1`, "1 [peer reset fd00::1]"},
	} {
		cmd := exec.Command(bash, "-c", script+`
COMP_LINE='`+tc.line+`' COMP_POINT=${#COMP_LINE}
COMP_WORDS=(`+tc.words+`); COMP_CWORD=$((${#COMP_WORDS[@]}-1))
compopt() { :; }
_rdsctl; echo "${COMPREPLY[*]}"`)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != tc.want {
			t.Errorf("%q: %v, %q, want %q", tc.line, err, out, tc.want)
		}
	}
	if code, _, stderr := runApp(t, nil, "completion", "tcsh"); code != exitUsage || !strings.Contains(stderr, "none of bash, zsh, fish") {
		t.Errorf("tcsh: status %d, %q", code, stderr)
	}
}
