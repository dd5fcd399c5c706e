package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/loadgen"
	"github.com/rdsd/rdsd/verbs/soft/tls13/tlstest"
)

// TestCapture records the connections of a daemon that are up already, under load, and has
// tshark read the file: MPA, DDP and RDMAP without TLS and inside TLS, RDS/TCP as a TCP
// stream. Nothing is malformed.
func TestCapture(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: apt-get install -y --no-install-recommends tshark")
	}
	isolated(t, func(t *testing.T) {
		t.Run("plain", func(t *testing.T) {
			hosts := newHosts(t, 2)
			captured(t, hosts[0], hosts[1], true)
		})
		t.Run("TLS", func(t *testing.T) {
			ca := tlstest.NewCA(t)
			a, _ := newSecured(t, ca)
			b, _ := newSecured(t, ca)
			captured(t, a, b, true)
		})
		t.Run("RDS over TCP", func(t *testing.T) {
			hosts := newHosts(t, 2, onTCP())
			captured(t, hosts[0], hosts[1], false)
		})
	})
}

func captured(t *testing.T, a, b *host, rdma bool) {
	t.Helper()
	serve := startProcess(t, nil, program("rdsctl"), "bench", "-serve", "-socket", b.sock)
	serve.saw("serving")
	load := func(mode, size string) {
		for d := 10 * time.Millisecond; ; d *= 2 { // a busy machine may finish no operation in 10 ms
			var r struct{ Bench loadgen.Report }
			out := a.rdsctl("bench", "-mode", mode, "-size", size, "-depth", "2", "-warmup", "0s", "-d", d.String(), "-o", "json-v2", b.addr().String())
			if err := json.Unmarshal([]byte(out), &r); err != nil || d > time.Minute {
				t.Fatalf("rdsctl bench -d %v: %v, %s", d, err, out)
			}
			if r.Bench.Operations > 0 {
				return
			}
		}
	}
	load("rtt", "100") // it is up
	for _, c := range []struct {
		at   *host
		args []string
		snap bool
	}{{a, nil, false}, {b, []string{"-snap", "96", "-peer", a.addr().String()}, true}} {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		p := startProcess(t, nil, program("rdsctl"), append([]string{"capture", "-w", file, "-d", "1m", "-max", "30000000", "-buffer", "33554432", "-socket", c.at.sock}, c.args...)...)
		eventually(t, "the capture begins", func() error {
			_, err := os.Stat(file)
			return err
		})
		load("rtt", "100")
		if rdma {
			load("rdma-write", "100000")
			load("rdma-read", "100000")
		}
		load("rate", "64")
		p.Signal(os.Interrupt)
		if code := p.wait(); code != 0 || !strings.Contains(p.log(), " frames, ") {
			t.Fatalf("rdsctl capture: status %d, %s", code, p.log())
		}
		dissected(t, file, rdma, c.snap)
	}
}

// dissected has tshark read a file.
func dissected(t *testing.T, file string, rdma, snap bool) {
	t.Helper()
	fields := []string{"tcp.len", "iwarp_rdma.opcode", "_ws.malformed", "iwarp_mpa.bad_length", "iwarp_mpa.req", "_ws.short"}
	args := []string{"-r", file, "-n", "-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct",
		"-T", "fields", "-E", "separator=|", "-E", "occurrence=a"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var errs strings.Builder
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, &errs)
	}
	seen := map[string]int{}
	packets, fpdus := 0, 0
	for line := range strings.Lines(string(out)) {
		v := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(v) != len(fields) {
			continue
		}
		if v[0] != "0" {
			packets++
		}
		if v[1] != "" {
			fpdus++
		}
		for op := range strings.SplitSeq(v[1], ",") {
			seen[op]++
		}
		if v[2] != "" || v[3] != "" {
			t.Fatalf("malformed: %q", line)
		}
		if v[5] != "" && !snap {
			t.Fatalf("cut short: %q", line)
		}
	}
	if packets < 20 || !rdma && fpdus > 0 || rdma && !snap && fpdus < packets-20 {
		t.Errorf("%d packets, %d with FPDUs; %s", packets, fpdus, &errs)
	}
	ops := []string{"0x03"} // SEND
	if !snap {              // tshark passes over what is behind the cut, all FPDUs but the first mostly
		ops = append(ops, "0x00", "0x01", "0x02") // WRITE, READ request, READ response
	}
	for _, op := range ops {
		if rdma && seen[op] == 0 {
			t.Errorf("no message of opcode %s: %v", op, seen)
		}
	}
}
