package vmlab

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"

	"github.com/rdsd/rdsd/verbs"
)

// evidence logs what is needed to understand a failure: the state of both ends, what siw told
// its kernel, and the last frames.
func (l *lab) evidence(capture string) {
	l.Helper()
	l.dev.Progress()
	l.collect()
	l.Logf("host: state %v, %+v", l.qp.State(), l.dev.Stats())
	for _, ev := range l.told {
		l.Logf("host: event %d, error %v", ev.Type, ev.Err)
	}
	bad := 0
	for i, wc := range l.had {
		if wc.Status != verbs.WCSuccess && bad < 5 {
			l.Logf("host: completion %d of %d: %+v", i, len(l.had), wc)
			bad++
		}
	}
	for i := 0; l.m.well() && i < 8; i++ {
		a := l.m.ask("poll 0")
		l.Logf("guest: completion %v %v", a.text, a.err)
		if a.err != nil || a.text == "none" {
			l.Logf("guest: event %v", l.m.ask("event 0").text)
			break
		}
	}
	l.m.kernelLog(l.T)
	out, err := lastFrames(capture)
	l.Logf("conversation, its end and what is bad (%v):\n%s", err, out)
}

// lastFrames has tshark list the FPDUs of a capture. It returns the last ones, and the first
// ones with a wrong CRC.
func lastFrames(capture string) (string, error) {
	fields := []string{"frame.number", "tcp.srcport", "iwarp_rdma.opcode", "iwarp_mpa.ulpdulength", "iwarp_ddp.last_flag", "iwarp_ddp.stag",
		"iwarp_ddp.tagged_offset", "iwarp_ddp.msn", "iwarp_rdma.sinkstag", "iwarp_rdma.rdmardsz", "_ws.col.Info"}
	args := append([]string{"-r", capture, "-n", "-T", "fields", "-E", "header=y", "-Y", "iwarp_mpa"}, dissector...)
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	tail := bytes.Join(lines[max(0, len(lines)-25):], []byte("\n"))
	if err != nil {
		return string(tail), err
	}
	detail, err := exec.Command("tshark", append([]string{"-r", capture, "-n", "-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap", "-Y", "iwarp_mpa"}, dissector...)...).Output()
	var bad []string
	at := ""
	for line := range strings.Lines(string(detail)) {
		if strings.HasPrefix(line, "Frame ") {
			at, _, _ = strings.Cut(line, ":")
		} else if strings.Contains(line, "Bad CRC32") && len(bad) < 5 {
			bad = append(bad, at+": "+strings.TrimSpace(line))
		}
	}
	return fmt.Sprintf("%s\n%s\n%s", lines[0], tail, strings.Join(bad, "\n")), err
}
