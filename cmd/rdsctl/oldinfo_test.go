package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdsd/rdsd/internal/ctl"
)

// mixed has peers and sockets of IPv6, and one host by RDS/TCP, too.
type mixed struct{ backend }

func (m *mixed) Peers() ([]ctl.PeerInfo, error) {
	all, err := m.backend.Peers()
	six, tcp := all[0], all[0]
	six.Local, six.Remote, six.State = netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), "connecting"
	tcp.Remote, tcp.Transport, tcp.TCPLanes = netip.MustParseAddr("127.0.0.3"), "tcp", 2
	tcp.TCPConns = []ctl.TCPConn{{LocalPort: 32768, RemotePort: 16385, HdrRemain: 48, Sent: 1<<32 + 5, Awaited: 1<<32 + 4, Acked: 1<<32 + 3},
		{LocalPort: 32769, RemotePort: 16385, DataRemain: 100}}
	away := tcp
	away.Remote, away.TCPConns = netip.MustParseAddr("127.0.0.4"), nil
	return append(all, six, tcp, away), err
}

func runOld(t *testing.T, b ctl.Backend, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, dial: func(context.Context, string) (caller, error) { return served{b}, nil }}
	code = a.called(t.Context(), append([]string{"/usr/bin/rds-info"}, args...))
	return code, out.String(), errs.String()
}

// served is direct for any backend.
type served struct{ b ctl.Backend }

func (s served) Call(ctx context.Context, req []byte) ([]byte, error) {
	return ctl.Serve(ctx, req, ctl.Caller{Admin: true}, s.b), ctx.Err()
}
func (served) Close() error { return nil }

// The columns are rds-info's: widths and titles.
func TestOldInfo(t *testing.T) {
	for args, want := range map[string]string{
		"-c": `
Counters:
              CounterName            Value
              send_queued                5
               conn_reset                0
`,
		"-k": `
RDS Sockets:
      BoundAddr BPort        ConnAddr CPort     SndBuf     RcvBuf    Inode
      127.0.0.1  4000         0.0.0.0     0          0          4        9
`,
		"-n": `
RDS Connections:
      LocalAddr      RemoteAddr  Tos           NextTX           NextRX Flgs
      127.0.0.1       127.0.0.2    0 9223372036854775808                9 --C-
      127.0.0.1       127.0.0.3    0 9223372036854775808                9 --C-
      127.0.0.1       127.0.0.4    0 9223372036854775808                9 --C-

RDS Connections (IPv6):
                              LocalAddr                              RemoteAddr  Tos           NextTX           NextRX Flgs
                                fd00::1                                 fd00::2    0 9223372036854775808                9 -c--
`,
		"-t": `
Retransmit Message Queue:
      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes
      127.0.0.1  4000       127.0.0.2  5001    0                7         20
`,
		"-sr": `
Receive Message Queue:
      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes
      127.0.0.1  4000       127.0.0.2  5000    0                0    1048576

Send Message Queue:
      LocalAddr LPort      RemoteAddr RPort  Tos              Seq      Bytes
      127.0.0.1  4000       127.0.0.2  5000    1                0         10
`,
		"-T": `
TCP Connections:
      LocalAddr LPort      RemoteAddr RPort  HdrRemain DataRemain    SentNxt  ExpectUna    SeenUna
      127.0.0.1 32768       127.0.0.3 16385         48          0          5          4          3
      127.0.0.1 32769       127.0.0.3 16385          0        100          0          0          0
`,
		"-I": `
RDS IB Connections:
      LocalAddr      RemoteAddr  Tos  SL                         LocalDev                        RemoteDev
      127.0.0.1       127.0.0.2    0   0                 ::ffff:127.0.0.1                 ::ffff:127.0.0.2

RDS IB Connections (IPv6):
                              LocalAddr                              RemoteAddr  Tos  SL                         LocalDev                        RemoteDev
                                fd00::1                                 fd00::2    0   0                               ::                               ::
`,
	} {
		code, stdout, stderr := runOld(t, &mixed{}, strings.Fields(args)...)
		if code != exitOK || stderr != "" || stdout != want {
			t.Errorf("%s: status %d, %q, got\n%s\nwant\n%s", args, code, stderr, stdout, want)
		}
	}
	code, stdout, _ := runOld(t, &mixed{})
	rest := stdout
	for _, title := range []string{"RDS IB", "TCP Conn", "Counters:", "RDS Sockets:", "RDS Connections:", "Receive Message", "Send Message", "Retransmit Message"} {
		before, after, ok := strings.Cut(rest, "\n"+title)
		if code != exitOK || !ok {
			t.Errorf("all tables: status %d, no %s, or not where it belongs, in\n%s", code, title, before)
		}
		rest = after
	}
	code, stdout, stderr := runOld(t, &backend{}, "-Tk")
	if code != exitOK || stderr != "rds-info: Unable get statistics: Protocol not available\n" || strings.Contains(stdout, "TCP") || !strings.Contains(stdout, "RDS Sockets:") {
		t.Errorf("without RDS/TCP: status %d, %q, %q", code, stdout, stderr)
	}
	if _, stdout, _ := runOld(t, &backend{}, "-Iv"); !strings.Contains(stdout, ":127.0.0.2  send_wr=0, recv_wr=0, send_sge=0, ") {
		t.Errorf("-Iv: %s", stdout)
	}
	unsorted := &ctl.Response{Queues: []ctl.MessageInfo{{Seq: 9, Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2")},
		{Seq: 7, Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.2")}, {Seq: 8, Local: netip.MustParseAddr("127.0.0.1"), Remote: netip.MustParseAddr("127.0.0.1")}}}
	var out bytes.Buffer
	(&oldInfo{w: &out}).messages("Retransmit", unsorted)
	if got := fmt.Sprint(unsorted.Queues[0].Seq, unsorted.Queues[1].Seq, unsorted.Queues[2].Seq); got != "8 7 9" {
		t.Errorf("-t is in the order %s", got)
	}
	if code, _, stderr := runOld(t, &mixed{}, "-x"); code != oldUsage || !strings.Contains(stderr, "usage: rds-info") {
		t.Errorf("-x: status %d, %q", code, stderr)
	}
	if code, _, stderr := runOld(t, &mixed{}, "all"); code != oldUsage || !strings.Contains(stderr, `"all" is not a flag`) {
		t.Errorf("all: status %d, %q", code, stderr)
	}
	if code, stdout, stderr := runOld(t, &mixed{backend{err: fmt.Errorf("boom")}}, "-kn"); code != exitFailed || !strings.Contains(stderr, "rds-info: Unable get statistics: boom\n") {
		t.Errorf("failing: status %d, %q, %q", code, stdout, stderr)
	}
}
