package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/config"
	"github.com/rdsd/rdsd/internal/ctl"
	"github.com/rdsd/rdsd/internal/stats"
)

func runApp(t *testing.T, c caller, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, paths: []string{"/a.sock", "/b.sock"}, resolver: known,
		dial: func(context.Context, string) (caller, error) { return c, nil }}
	code = a.run(t.Context(), args)
	return code, out.String(), errs.String()
}

func TestTables(t *testing.T) {
	b := &backend{pings: []time.Duration{30 * time.Microsecond, 0, 1500 * time.Microsecond}}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, `warning: 127.0.0.1:4000 is full: db[12] does not read, for 1m5s
warning: senders here wait for 127.0.0.2:5000, which is full
warning: uid 1000 uses nine tenths or more of its quota.clients of 1
warning: beware?[31m
daemon      rdsd v0.1.0, pid 4711, up 1m30s, instance 0000000000000abc
socket      /run/rdsd/rdsd.sock
listen      127.0.0.1:18634
transports  soft: yes, the default
            verbs: no, built without it
tls         auto, certificate CN=host until 2027-01-02; 3 handshakes, turned away: 4 failed, 5 plain, 6 too many
crc         auto
congestion  reno; cubic was wanted: operation not permitted
metrics     off
statistics  /run/rdsd/rdsd.sock.stats
engine      running, 10 turns of mean 1.23µs, p50 <1.02µs, p99 <65.54µs, max 1.5ms; 1 stall
waiting     yield; waits that yield take 12µs, that block 18.2µs; 3 slow yields
open        1 client, 2 sockets (5 congested), 3 peers (4 up), 6 regions, 7 operations
memory      registered 64 MiB of 4 GiB, shared with clients 1.5 KiB, pools 0 B, held for readers 1000 B of 64 MiB

USER  CLIENTS  SOCKETS  DESTINATIONS  OPS  GRANTS   REGISTERED  QUEUED  HELD  FDS
1000      1/1        2        3 (+4)    5       0  6 KiB/1 MiB     7 B   8 B    0
pod7        0        9             0    0       0          0 B     0 B   0 B    0
`},
		{[]string{"devices"}, `DEVICE  KIND        PORT  STATE   LINK-LAYER  INTERFACES  GID-TYPES  NODE                     USED
rxe0    InfiniBand  1     ACTIVE  Ethernet    eth0        RoCE v2    /dev/infiniband/uverbs0  no
warning: rxe0: the daemon cannot use /dev/infiniband/rdma_cm: permission denied
this build has no libibverbs: make build-ibv

ADDR      TRANSPORTS  DEVICE  WHY-NOT-VERBS
10.9.0.1  soft,tcp    -       rxe0 has it, and this build has no libibverbs: make build-ibv
warning: siw0 is in RDMA netlink and not in sysfs
`},
		{[]string{"sockets"}, `ADDR       PORT  PID   UID  NAME      SEND-MSGS  SEND-BYTES  RECV-BYTES  RECV-LIMIT  OLDEST  P99  SENT  RECEIVED  CONGESTED  OPS  UNRELIEVED
127.0.0.1  4000   12  1000  a?[2Jb?c          1           2           3           4    none    -   0 B       0 B  yes          5           0
`},
		{[]string{"peers", "-o", "table"}, `LOCAL      REMOTE     LANE  STATE  FOR   TRANSPORT  TLS    QUEUED  UNACKED  OLDEST  RTT  P99  RESETS  LOST  LAST-ERROR
127.0.0.1  127.0.0.2     0  up     1m5s  soft       plain       1        2    none    -    -       5    11  none
`},
		{[]string{"peer", "reset", "127.0.0.2"}, "127.0.0.2: 2 connection(s) reset\n"},
		{[]string{"peer", "reset", "127.0.0.2", "-lane", "200"}, "127.0.0.2: 200 connection(s) reset\n"},
		{[]string{"peer", "reset", "-lane", "0", "127.0.0.2"}, "127.0.0.2: no connection is up, there is nothing to reset; the next message makes one\n"},
		{[]string{"config", "show"}, `KEY          VALUE  FROM           CHANGED-BY
port         7      /etc/x.toml:3  restart
spin         50µs   default        reload
peers.allow  ""     unknown        restart
`},
		{[]string{"config", "show", "-changed"}, `KEY   VALUE  FROM           CHANGED-BY
port  7      /etc/x.toml:3  restart
`},
		{[]string{"config", "diff"}, `warning: beware
KEY    RUNNING  CONFIGURED  FROM        WHAT
spin   50µs     false       -spin       a reload applies
stats  ""       /x          RDSD_STATS  waits for a restart
`},
		{[]string{"config", "reload"}, `warning: beware
KEY    RUNNING  CONFIGURED  FROM        WHAT
spin   50µs     true        -spin       applied
stats  ""       /x          RDSD_STATS  waits for a restart
`},
		{[]string{"ping", "::ffff:127.0.0.2", "-c", "3", "-i", "0s"}, `reply from 127.0.0.2: seq 1, 30µs
no reply from 127.0.0.2: seq 2: no answer from 127.0.0.2 within 5s: connection is down: context deadline exceeded
reply from 127.0.0.2: seq 3, 1.5ms
127.0.0.2: 3 sent, 2 received; min 30µs, p50 30µs, p99 1.5ms, max 1.5ms
`},
	} {
		code, stdout, stderr := runApp(t, direct{b, true}, tc.args...)
		if code != exitOK || stdout != tc.want || stderr != "" {
			t.Errorf("%v: status %d, stderr %q, got\n%s\nwant\n%s", tc.args, code, stderr, stdout, tc.want)
		}
	}
	_, stdout, _ := runApp(t, direct{b, true}, "devices", "-counters")
	if !strings.HasSuffix(stdout, "\n\nDEVICE  PORT  COUNTER        VALUE\nrxe0       1  port_rcv_data     12\n") {
		t.Errorf("devices -counters: %s", stdout)
	}
	_, stdout, _ = runApp(t, direct{b, true}, "status", "-counters")
	if !strings.HasSuffix(stdout, "\n\nCOUNTER      VALUE\nsend_queued      5\n") {
		t.Errorf("status -counters: %s", stdout)
	}
}

// With -o json each verb prints one document of the schema and nothing else.
func TestJSON(t *testing.T) {
	for _, tc := range []struct {
		args []string
		kind ctl.Kind
	}{
		{[]string{"status", "-o", "json-v2"}, ctl.KindStatus},
		{[]string{"devices", "-o=json-v2"}, ctl.KindDevices},
		{[]string{"-o=json-v2", "sockets"}, ctl.KindSockets},
		{[]string{"--o=json-v2", "peers"}, ctl.KindPeers},
		{[]string{"peer", "reset", "-o", "json-v2", "127.0.0.2"}, ctl.KindPeerReset},
		{[]string{"config", "show", "-o=json-v2"}, ctl.KindConfig},
		{[]string{"config", "diff", "-o=json-v2"}, ctl.KindDiff},
		{[]string{"config", "reload", "-o=json-v2"}, ctl.KindReload},
		{[]string{"ping", "127.0.0.2", "-o", "json-v2", "-c=2", "-i=0s"}, ctl.KindPingReport},
	} {
		b := &backend{pings: []time.Duration{5}}
		code, stdout, stderr := runApp(t, direct{b, true}, tc.args...)
		r, err := ctl.Parse([]byte(stdout), tc.kind)
		if code != exitOK || stderr != "" || err != nil {
			t.Errorf("%v: status %d, %v, stderr %q, stdout %s", tc.args, code, err, stderr, stdout)
		}
		if tc.kind == ctl.KindPingReport && (err != nil || r.PingReport.Received != 2 || len(r.PingReport.Replies) != 2) {
			t.Errorf("ping: %s", stdout)
		}
		// If it fails, it prints the same envelope, and the message on stderr.
		b.err = errors.New("the engine\nis gone\x1b")
		code, stdout, stderr = runApp(t, direct{b, true}, tc.args...)
		if tc.kind == ctl.KindPingReport {
			continue // a failed ping is a line of the report, see TestPingFails
		}
		var e *ctl.Error
		if _, err := ctl.Parse([]byte(stdout), tc.kind); code != exitFailed || !errors.As(err, &e) || e.Code != ctl.CodeFailed || stderr != "rdsctl: the engine\nis gone?\n" {
			t.Errorf("%v failing: status %d, %v, stderr %q", tc.args, code, err, stderr)
		}
	}
}

func TestPingFails(t *testing.T) {
	lost := &backend{pings: []time.Duration{0}}
	code, stdout, _ := runApp(t, direct{lost, false}, "ping", "127.0.0.9", "-c", "2", "-i", "0s")
	if code != exitTimeout || !strings.HasSuffix(stdout, "127.0.0.9: 2 sent, 0 received\n") {
		t.Errorf("all lost: status %d, %s", code, stdout)
	}
	code, stdout, _ = runApp(t, direct{lost, false}, "ping", "127.0.0.9", "-c", "2", "-i", "0s", "-o", "json-v2")
	if r, err := ctl.Parse([]byte(stdout), ctl.KindPingReport); code != exitTimeout || err != nil || r.PingReport.Replies[1].Error.Code != ctl.CodeTimeout {
		t.Errorf("all lost, JSON: status %d, %v, %s", code, err, stdout)
	}
	nobody := &backend{err: fmt.Errorf("%w: 0.0.0.0 is not a host's address", ctl.ErrNotFound)}
	code, stdout, stderr := runApp(t, direct{nobody, false}, "ping", "0.0.0.0")
	if code != exitNotFound || stdout != "" || stderr != "rdsctl: not found: 0.0.0.0 is not a host's address; rdsctl peers lists those there are\n" {
		t.Errorf("nobody: status %d, %q, %q", code, stdout, stderr)
	}
}

// A ping has the size that was asked for, and its report says so.
func TestPingSize(t *testing.T) {
	b := &backend{pings: []time.Duration{7}}
	code, stdout, _ := runApp(t, direct{b, false}, "ping", "127.0.0.9", "-c", "1", "-size", "65536", "-o", "json-v2")
	r, err := ctl.Parse([]byte(stdout), ctl.KindPingReport)
	if code != exitOK || err != nil || b.size != 65536 || r.PingReport.Size != 65536 {
		t.Errorf("status %d, %v, %d bytes, %s", code, err, b.size, stdout)
	}
}

// A ping by another path says so, and so does its report. An older daemon does not know what a path is.
func TestPingPath(t *testing.T) {
	args := []string{"ping", "127.0.0.9", "-c", "1", "-path", "3"}
	_, stdout, _ := runApp(t, direct{&backend{pings: []time.Duration{7}}, false}, args...)
	if want := "reply from 127.0.0.9 by lane 0.3: seq 1, 7ns\n127.0.0.9 by lane 0.3: 1 sent, 1 received; min 7ns, p50 7ns, p99 7ns, max 7ns\n"; stdout != want {
		t.Errorf("%s\nwant %s", stdout, want)
	}
	older := &backend{err: &ctl.Error{Code: ctl.CodeBadRequest, Message: `request: json: unknown field "path"`}}
	for _, args := range [][]string{args, {"peer", "reset", "127.0.0.2", "-path", "1"}} {
		code, stdout, stderr := runApp(t, direct{older, true}, args...)
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, `unknown field "path"; the daemon is older than this rdsctl`) {
			t.Errorf("%v: status %d, %s, %s", args, code, stdout, stderr)
		}
	}
}

// An endless ping that is interrupted ends with its summary.
func TestPingInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &backend{pings: []time.Duration{7}}
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, paths: []string{"/a"}, dial: func(context.Context, string) (caller, error) {
		return interrupting{direct{b, false}, b, cancel}, nil
	}}
	if code := a.run(ctx, []string{"ping", "127.0.0.2", "-i", "0s"}); code != exitOK {
		t.Errorf("status %d", code)
	}
	if !strings.HasSuffix(out.String(), "127.0.0.2: 3 sent, 3 received; min 7ns, p50 7ns, p99 7ns, max 7ns\n") || errs.Len() != 0 {
		t.Errorf("stdout %s, stderr %s", &out, &errs)
	}
}

// interrupting cancels the context during the fourth call.
type interrupting struct {
	direct
	b      *backend
	cancel func()
}

func (i interrupting) Call(ctx context.Context, req []byte) ([]byte, error) {
	if i.b.n == 3 {
		i.cancel()
		return nil, ctx.Err()
	}
	return i.direct.Call(ctx, req)
}

func TestNotAdmin(t *testing.T) {
	code, stdout, stderr := runApp(t, direct{&backend{}, false}, "peer", "reset", "127.0.0.2")
	if code != exitPermission || stdout != "" || stderr != "rdsctl: peer reset: only root and the daemon's own user may do that\n" {
		t.Errorf("status %d, %q, %q", code, stdout, stderr)
	}
	code, _, stderr = runApp(t, direct{&backend{}, true}, "peer", "reset", "127.0.0.3")
	if code != exitNotFound || stderr != "rdsctl: not found: no connection to 127.0.0.3; rdsctl peers lists those there are\n" {
		t.Errorf("status %d, %q", code, stderr)
	}
}

func TestUsageErrors(t *testing.T) {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	there := "there are: " + strings.Join(names, ", ") + " (more: rdsctl help)\n"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "rdsctl: no verb; " + there},
		{[]string{"xyzzy"}, `rdsctl: unknown verb "xyzzy"; ` + there},
		{[]string{"help", "x"}, `rdsctl: unknown verb "x"; ` + there},
		{[]string{"peer"}, "rdsctl: peer: want rdsctl peer and one of: reset ADDR, drain ADDR, resume ADDR\n"},
		{[]string{"peer", "drop", "::1"}, "rdsctl: peer: want rdsctl peer and one of: reset ADDR, drain ADDR, resume ADDR\n"},
		{[]string{"ping", "10.0.0.2", "-size", "65537"}, "rdsctl: ping: -size 65537 is not between 0 and 65536 bytes\n"},
		{[]string{"ping", "10.0.0.2", "-size", "-1"}, "rdsctl: ping: -size -1 is not between 0 and 65536 bytes\n"},
		{[]string{"peer", "reset"}, "rdsctl: peer reset: ADDR is missing; usage: rdsctl peer reset ADDR\n"},
		{[]string{"peer", "reset", "-lane", "256", "::1"}, "rdsctl: peer reset: lane 256 is not between 0 and 255\n"},
		{[]string{"peer", "reset", "-path", "8", "::1"}, "rdsctl: peer reset: path 8 is not between 0 and 7\n"},
		{[]string{"peer", "reset", "a b"}, "rdsctl: peer reset: \"a b\" is not a host's name or IP address\n"},
		{[]string{"ping", "127.0.0.1", "127.0.0.2"}, "rdsctl: ping takes one argument, \"127.0.0.2\" is one too many\n"},
		{[]string{"ping", "127.0.0.1", "-c", "-1"}, "rdsctl: ping: -c and -i are not negative\n"},
		{[]string{"peers", "all"}, "rdsctl: peers takes no argument, \"all\" is one too many\n"},
		{[]string{"-v", "peers"}, "rdsctl: flag provided but not defined: -v; flags here: -o -socket -timeout\n"},
		{[]string{"ping", "::1", "-o", "xml"}, "rdsctl: ping: -o xml: want table, wide, json, jsonl or csv\n"},
		{[]string{"ping", "::1", "-n", "3"}, "rdsctl: ping: flag provided but not defined: -n; flags here: -c -i -o -path -size -socket -timeout\n"},
		{[]string{"peers", "-o", "yaml"}, "rdsctl: peers: -o yaml: want table, wide, json, jsonl or csv\n"},
		{[]string{"-o", "yaml", "stress"}, "rdsctl: stress: -o yaml: want table, wide, json, jsonl or csv\n"},
		{[]string{"peers", "-timeout", "0s"}, "rdsctl: peers: -timeout 0s is not positive\n"},
		{[]string{"peers", "-watch", "1"}, "rdsctl: peers: invalid value \"1\" for flag -watch: want a time with its unit, such as 1s or 250ms; " +
			"flags here: -columns -filter -no-header -o -offline -socket -sort -stats -timeout -watch\n"},
		{[]string{"ping", "::1", "-c", "x"}, "rdsctl: ping: invalid value \"x\" for flag -c: want a number; flags here: -c -i -o -path -size -socket -timeout\n"},
		{[]string{"status", "-stats", "/x"}, "rdsctl: status: -stats is for -offline\n"},
	} {
		code, stdout, stderr := runApp(t, nil, tc.args...)
		if code != exitUsage || stdout != "" || stderr != tc.want {
			t.Errorf("%v: status %d, stdout %q\ngot  %swant %s", tc.args, code, stdout, stderr, tc.want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}} {
		code, stdout, stderr := runApp(t, nil, args...)
		if code != exitOK || stderr != "" {
			t.Errorf("%v: status %d, %q", args, code, stderr)
		}
		for _, v := range verbs() {
			if !strings.Contains(stdout, "  "+v.name) || !strings.Contains(stdout, v.summary) {
				t.Errorf("%v does not tell about %s", args, v.name)
			}
		}
	}
	for _, args := range [][]string{{"help", "ping"}, {"ping", "-h"}} {
		code, stdout, stderr := runApp(t, nil, args...)
		if code != exitOK || stderr != "" || !strings.HasPrefix(stdout, "usage: rdsctl ping ADDR [flags]\n") || !strings.Contains(stdout, "-c count") {
			t.Errorf("%v: status %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) Call(ctx context.Context, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (silent) Close() error { return nil }

func TestStuckDaemon(t *testing.T) {
	code, _, stderr := runApp(t, silent{}, "peers", "-timeout", "1ms")
	if code != exitTimeout || stderr != "rdsctl: the daemon did not answer within 1ms; rdsctl status --offline shows whether it is stuck\n" {
		t.Errorf("status %d, %q", code, stderr)
	}
}

func TestOffline(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "x.sock")
	code, _, stderr := runApp(t, nil, "status", "-offline", "-socket", sock)
	if code != exitNoDaemon || !strings.Contains(stderr, "no daemon found: no statistics mapping at "+sock+".stats; ") {
		t.Errorf("nothing there: status %d, %q", code, stderr)
	}

	f, err := stats.Create(config.StatsPath(sock))
	if err != nil {
		t.Fatal(err)
	}
	b, err := stats.NewBlock(f.Mem(), stats.Info{PID: 4711, Instance: 0xabc, Start: time.Now().UnixNano()})
	if err != nil {
		t.Fatal(err)
	}
	b.C[stats.Sockets] = 12
	b.SetState(stats.Running)
	b.Publish(time.Now().Add(-time.Minute).UnixNano())
	code, stdout, stderr := runApp(t, nil, "status", "-offline", "-socket", sock)
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "error: the engine does not turn, for 1m0s") ||
		!strings.Contains(stdout, "pid 4711") || !strings.Contains(stdout, "12 sockets") || strings.Contains(stdout, "listen") {
		t.Errorf("stuck: status %d, %q\n%s", code, stderr, stdout)
	}
	code, stdout, _ = runApp(t, nil, "status", "-offline", "-stats", sock+".stats", "-o", "json-v2")
	if r, err := ctl.Parse([]byte(stdout), ctl.KindStatus); code != exitOK || err != nil || !r.Status.Offline || r.Status.Counts.Sockets != 12 {
		t.Errorf("JSON: status %d, %v, %s", code, err, stdout)
	}

	// A dead daemon holds no lock, but its file is still there.
	dead := sock + ".dead"
	data, err := os.ReadFile(config.StatsPath(sock))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(dead, data, 0o600), f.Close()); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = runApp(t, nil, "status", "-offline", "-stats", dead)
	if code != exitNoDaemon || stderr != "" || !strings.HasPrefix(stdout, "error: the daemon has stopped\nwarning: the daemon (pid 4711) is gone; these are its last figures\ndaemon ") ||
		!strings.Contains(stdout, "stopped, ") {
		t.Errorf("dead: status %d, %q\n%s", code, stderr, stdout)
	}

	if err := os.WriteFile(dead, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = runApp(t, nil, "status", "-offline", "-stats", dead)
	if code != exitFailed || stdout != "" || !strings.Contains(stderr, "not a statistics mapping") {
		t.Errorf("garbage: status %d, %q, %q", code, stdout, stderr)
	}
}

func TestText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 30: "1 GiB", 1<<64 - 1: "16 EiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{999: "999ns", 1999: "2µs", 31415: "31.42µs", 1234567: "1.23ms", 90 * time.Second: "1m30s"} {
		if got := short(d); got != want {
			t.Errorf("%d ns: %q, want %q", d, got, want)
		}
	}
	now := time.Unix(100, 0)
	for since, want := range map[time.Time]string{{}: "never", now: "0s", now.Add(time.Hour): "0s", now.Add(-1500 * time.Millisecond): "1.5s", now.Add(-61400 * time.Millisecond): "1m1s"} {
		if got := ago(since, now); got != want {
			t.Errorf("since %v: %q, want %q", since, got, want)
		}
	}
}
