package ibv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rdsd/rdsd/internal/demo/verdict"
	"github.com/rdsd/rdsd/test/vmlab/lab"
)

// demoResets is the least number of resets in each direction.
const demoResets = 3

// demo does what `make demo` does, with a daemon on each host. It copies a file out and back in
// while the connection is reset again and again, and checks the demo's verdict.
func demo(f *faults) {
	f.R.Run(f.T, time.Minute, "cp /xfer/rdsd /tmp/source")
	read := f.demoCopy("copy-out", 4000, "-read-only /tmp/source", "$PEER:4000 /tmp/out")
	write := f.demoCopy("copy-in", 4001, "-create /tmp/back", "/tmp/out $PEER:4001")
	sums := f.R.Run(f.T, time.Minute, "sha256sum /tmp/source /tmp/back") + f.K.Run(f.T, time.Minute, "sha256sum /tmp/out")
	w := strings.Fields(sums)
	if len(w) != 6 || w[0] != w[2] || w[0] != w[4] {
		f.Fatalf("not equal:\n%s", sums)
	}
	var table bytes.Buffer
	verdict.Print(&table, []verdict.Direction{read, write})
	f.Logf("\n%s", &table)
	if err := verdict.Check([]verdict.Direction{read, write}, demoResets); err != nil {
		f.Fatal(err)
	}
	f.Logf("demo over %s: verified %d bytes out and back in, sha256 %s equal, %d resets", f.driver, read.Copy.Bytes, w[0], read.Resets+write.Resets)
}

// demoCopy runs a server on R and a client on K. It resets the connection when one, two and
// three fifths of the blocks are done.
func (f *faults) demoCopy(verb string, port int, serve, args string) (d verdict.Direction) {
	f.Helper()
	d.Name = verb
	before := f.peers()
	server := f.R.Start(f.T, fmt.Sprintf("exec blockstore serve -json -socket %s -bind $ME:%d %s >/xfer/serve.%s", lab.Control, port, serve, verb))
	f.Until("a server", time.Minute, func() bool { return strings.Contains(server.Out(), "serving") })
	f.Ended(f.K.Start(f.T, fmt.Sprintf(`
		set -e
		rm -f status
		mkfifo status
		follow() {
			local hit=0 finished blocks
			while read -r finished blocks; do
				[ $hit -lt %[4]d ] && [ "$finished" -ge $((blocks * (hit + 1) / 5)) ] || continue
				rdsctl -socket %[1]s peer reset $PEER 2>&1 | grep -q ' 1 connection' && hit=$((hit + 1))
			done
			echo $hit >/xfer/hit.%[2]s
		}
		follow <status &
		blockstore %[2]s -json -status-fd 3 -give-up 90s -block 65536 -socket %[1]s -bind $ME %[3]s 3>status >/xfer/copy.%[2]s
		wait`, lab.Control, verb, args, demoResets)))
	f.R.Run(f.T, time.Minute, "pkill -TERM -x blockstore")
	f.Ended(server)
	after := f.peers()
	d.Peers = after.Minus(before)
	for name, v := range map[string]any{"copy." + verb: &d.Copy, "serve." + verb: &d.Serve, "hit." + verb: &d.Resets} {
		if b, err := os.ReadFile(f.file(name)); err != nil {
			f.Fatal(err)
		} else if err := json.Unmarshal(b, v); err != nil {
			f.Fatalf("%s: %v: %s", name, err, b)
		}
	}
	return d
}

// peers sums up what both daemons count.
func (f *faults) peers() (c verdict.Counts) {
	f.Helper()
	for _, h := range []*lab.Host{f.R, f.K} {
		c.Add(f.connections(h))
	}
	return c
}
