package soft

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/pcapng"
	"github.com/rdsd/rdsd/verbs"
	"github.com/rdsd/rdsd/verbs/soft/iwarp"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestCaptureTLS has tshark read a connection with TLS as somebody on the network
// sees it, with the key log of one end: the handshake of TLS 1.3 with certificates
// of both ends, records that it can decrypt, and inside them what TestCapture finds
// without TLS. tshark 4.0 does not look for iWARP in TLS by itself: what it decrypts
// is given to it once more, as a plain stream.
func TestCaptureTLS(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: apt-get install -y --no-install-recommends tshark")
	}
	dir := t.TempDir()
	sealed, keys := filepath.Join(dir, "tls.pcapng"), filepath.Join(dir, "keys")
	f, err := os.Create(sealed)
	if err != nil {
		t.Fatal(err)
	}
	tap, err := pcapng.NewTap(f, func() int64 { return time.Now().UnixNano() })
	if err != nil {
		t.Fatal(err)
	}
	ca := tlstest.NewCA(t)
	var log lockedBuffer
	rec := [2]*recorder{{}, {}}
	var hosts [2]*host
	for i := range hosts {
		opt := secured(t, ca)
		opt.Tap = rec[i]
		if i == 0 {
			cfg, _ := opt.TLS(netip.Addr{})
			cfg.KeyLogWriter = &log
		}
		hosts[i] = newHost(t, opt)
	}
	a, b := hosts[0], hosts[1]
	at := attrs()
	at.CRC = verbs.CRCOn
	at.Access |= verbs.AccessRemoteAtomic
	var w *wiretap
	linkVia(t, a, b, at, at, func(to netip.AddrPort) netip.AddrPort {
		w = newWiretap(t, to, tap)
		return w.addr()
	}).Close()
	want := []message{{fromActive: true, op: iwarp.OpWrite, stag: 1}} // the ready-to-receive message
	for _, dir := range [2][2]*host{{a, b}, {b, a}} {
		want = append(want, converse(dir[0], dir[1], dir[0] == a)...)
	}
	a.qp.Disconnect()
	run(t, "the end", func() bool { return b.qp.State() == verbs.QPErr && a.qp.State() == verbs.QPErr }, a, b)
	w.ended.Wait()
	if err := errors.Join(tap.Err(), f.Close(), os.WriteFile(keys, log.bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}

	checkTLS(t, sealed, keys, w.addr().Port())

	// What it decrypts is what the devices meant.
	plain := filepath.Join(dir, "plain.pcapng")
	out, in := decrypted(t, sealed, keys, plain, w.client, w.addr())
	if !bytes.Equal(out, rec[0].out) || !bytes.Equal(in, rec[0].in) {
		t.Errorf("tshark decrypts %d and %d bytes, there were %d and %d, or they differ", len(out), len(in), len(rec[0].out), len(rec[0].in))
	}
	fpdus := dissect(t, plain, int(w.client.Port()))
	checkCRC(t, fpdus, verbs.CRCOff) // both ends ask for it without TLS only
	checkMessages(t, join(t, fpdus), want)
}

func tsharkTLS(name, keys string, port uint16, args ...string) *exec.Cmd {
	return exec.Command("tshark", append([]string{"-r", name, "-n", "-o", "tls.keylog_file:" + keys,
		"-d", fmt.Sprintf("tcp.port==%d,tls", port)}, args...)...)
}

// checkTLS counts what of TLS tshark sees: handshake messages, and records that it
// did not understand.
func checkTLS(t *testing.T, name, keys string, port uint16) {
	t.Helper()
	fields := []string{"tls.handshake.type", "tls.record.content_type", "tls.record.opaque_type", "tls.handshake.extensions.supported_version", "tls.alert_message.desc", "_ws.malformed", "_ws.expert.message"}
	args := []string{"-T", "fields", "-E", "occurrence=a", "-E", "separator=|"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var stderr strings.Builder
	cmd := tsharkTLS(name, keys, port, args...)
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, &stderr)
	}
	seen := map[string]map[string]int{}
	for line := range strings.Lines(string(b)) {
		for i, v := range strings.Split(strings.TrimRight(line, "\n"), "|") {
			for x := range strings.SplitSeq(v, ",") {
				if x == "" || i >= len(fields) {
					continue
				}
				if seen[fields[i]] == nil {
					seen[fields[i]] = map[string]int{}
				}
				seen[fields[i]][x]++
			}
		}
	}
	// RFC 8446 section 4: ClientHello, ServerHello, EncryptedExtensions,
	// CertificateRequest, then of both ends Certificate, CertificateVerify, Finished.
	if want := map[string]int{"1": 1, "2": 1, "8": 1, "13": 1, "11": 2, "15": 2, "20": 2}; !maps.Equal(seen["tls.handshake.type"], want) {
		t.Errorf("handshake messages %v, want %v", seen["tls.handshake.type"], want)
	}
	if v := seen["tls.handshake.extensions.supported_version"]; len(v) != 1 || v["0x0304"] == 0 {
		t.Errorf("versions %v, want TLS 1.3 alone", v)
	}
	// Every sealed record was opened: it shows its inner type.
	if n, all := seen["tls.record.content_type"]["23"], seen["tls.record.opaque_type"]["23"]; n < 100 || all < n {
		t.Errorf("%d records of application data, %d sealed", n, all)
	}
	if v := seen["tls.alert_message.desc"]; len(v) != 1 || v["0"] == 0 {
		t.Errorf("alerts %v, want close_notify alone", v)
	}
	if m, x := seen["_ws.malformed"], seen["_ws.expert.message"]; len(m) > 0 {
		t.Errorf("malformed: %v, %v", m, x)
	}
}

// decrypted has tshark follow the stream inside TLS. It returns both directions and
// writes them, in their order, as a capture of a plain connection.
func decrypted(t *testing.T, name, keys, plain string, client, server netip.AddrPort) (out, in []byte) {
	t.Helper()
	b, err := tsharkTLS(name, keys, server.Port(), "-q", "-z", "follow,tls,raw,0").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(plain)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	tap, err := pcapng.NewTap(f, func() int64 { at++; return at })
	if err != nil {
		t.Fatal(err)
	}
	// Lines of the one that it calls node 1 begin with a tab.
	first := strings.Contains(string(b), "Node 0: "+client.String())
	for line := range strings.Lines(string(b)) {
		data, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil || len(data) == 0 {
			continue // the frame around it
		}
		ours := strings.HasPrefix(line, "\t") != first
		if ours {
			out = append(out, data...)
		} else {
			in = append(in, data...)
		}
		tap.Stream(client, server, ours, data)
	}
	if err := errors.Join(tap.Err(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return out, in
}

// lockedBuffer is for the goroutines of handshakes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.b.Bytes())
}

// wiretap leads one connection to a listener and records what passes.
type wiretap struct {
	l      net.Listener
	client netip.AddrPort // valid when there is a connection
	ended  sync.WaitGroup
}

func newWiretap(t *testing.T, to netip.AddrPort, tap *pcapng.Tap) *wiretap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wiretap{l: l}
	t.Cleanup(func() { l.Close() })
	w.ended.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", to.String())
		if err != nil {
			c.Close()
			return
		}
		w.client = c.RemoteAddr().(*net.TCPAddr).AddrPort()
		w.ended.Add(1)
		go w.copy(far, c, tap, true)
		w.copyHere(c, far, tap, false)
	})
	return w
}

func (w *wiretap) copy(to, from net.Conn, tap *pcapng.Tap, out bool) {
	defer w.ended.Done()
	w.copyHere(to, from, tap, out)
}

func (w *wiretap) copyHere(to, from net.Conn, tap *pcapng.Tap, out bool) {
	defer to.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			tap.Stream(w.client, w.addr(), out, b[:n])
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wiretap) addr() netip.AddrPort { return netip.MustParseAddrPort(w.l.Addr().String()) }
