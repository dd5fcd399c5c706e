package e2e

import (
	"strings"
	"testing"
)

// TestOperatorsTour runs the commands of docs/tour.md as they are written. What they print
// begins as the page says, and names the process that is stuck.
func TestOperatorsTour(t *testing.T) {
	a, b := twoHosts(t)
	for h, addr := range map[*netHost]string{a: "10.0.0.1", b: "10.0.0.2"} {
		h.run("cp bin/* /usr/local/bin/; mkdir -p /run/rdsd\n" +
			"rdsd -listen " + addr + " -peers-allow 10.0.0.0/24 -tls-mode off >/run/rdsd.log 2>&1 &\n" + ready)
	}
	on := map[string]*netHost{"# host A": a, "# host B": b}
	until := func(h *netHost, command string) {
		t.Helper()
		h.run("for i in $(seq 600); do " + command + " && break; sleep 0.05; done; " + command)
	}

	setUp := blocks(t, "docs/tour.md", "A case to find")
	if len(setUp) != 3 {
		t.Fatalf("%d blocks make the case, want 3", len(setUp))
	}
	for i, block := range setUp {
		who, _, _ := strings.Cut(block, "\n")
		on[who].run(block)
		switch i {
		case 0:
			until(b, "rdsctl check socket 10.0.0.2:18635 >/dev/null")
		case 1:
			until(a, "rdsctl counters -no-header -filter 'name=send_queued,value>1000' | grep -q .")
		case 2:
			until(b, "rdsctl cong -no-header 2>/dev/null | grep -q here")
			until(a, "rdsctl cong -no-header 2>/dev/null | grep -q peer")
		}
	}
	pid := strings.TrimSpace(b.run("cat /run/serve.pid"))

	all := blocks(t, "docs/tour.md", "Four commands")
	if len(all) != 8 {
		t.Fatalf("%d blocks, want four commands with what each prints", len(all))
	}
	for i := 0; i < len(all); i += 2 {
		who, command, _ := strings.Cut(all[i], "\n")
		h := on[who]
		if h == nil || strings.Count(command, "\n") != 1 {
			t.Fatalf("not a command on a host: %q", all[i])
		}
		out := h.run(command)
		head, _, _ := strings.Cut(out, "\n")
		want, _, _ := strings.Cut(all[i+1], "\n")
		if strings.Join(strings.Fields(head), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s prints the columns %q, the page says %q", command, head, want)
		}
		if h == b && !strings.Contains(out, pid) {
			t.Errorf("%s does not name the process %s:\n%s", command, pid, out)
		}
	}

	cure := blocks(t, "docs/tour.md", "The cure")
	const read = "rdsctl counters -all -no-header -filter name=recv_bytes_freed_fromsock -columns value"
	before := strings.TrimSpace(b.run(read))
	b.run(strings.Join(cure, "\n"))
	until(b, "[ \"$("+read+")\" -gt "+before+" ]")

	both := blocks(t, "docs/tour.md", "Where the time goes")
	if len(both) != 3 {
		t.Fatalf("%d blocks follow messages, want 3", len(both))
	}
	b.run(both[0])
	a.run(both[1])
	until(b, "grep -q arrived /run/b.jsonl")
	if out := a.run("grep -c posted /run/a.jsonl"); strings.TrimSpace(out) == "0" {
		t.Error("no message was followed at its sender")
	}
	b.run("kill $(cat /run/serve.pid)")
}
