package ledger

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdsd/rdsd/test/ledger/worker"
)

var (
	seconds   = flag.Int("ledger.seconds", 6, "length of each campaign")
	firstSeed = flag.Uint64("ledger.seed", 0, "seed of the first campaign, 0: one drawn by the clock")
	campaigns = flag.Int("ledger.campaigns", 1, "campaigns, of one seed after the other")
	keep      = flag.String("ledger.keep", "", "folder in which the logs of failed campaigns stay; else one in the system's folder for temporary files")
	paths     = flag.Int("ledger.paths", 0, "connections of two hosts in each lane, 1 to 8; 0: as the seed draws")
	threads   = flag.String("ledger.threads", "", "io.threads of each daemon; empty: as the seed draws")
	overTLS   = flag.Bool("ledger.tls", false, "TLS, whatever the seed draws")
	upgraded  = flag.Duration("ledger.upgrades", 0, "campaigns in which nothing ends and all daemons are replaced each `duration`; 0: the usual ones")
)

// envWorker has the configuration of a process that is to be an application.
const envWorker = "LEDGER_WORKER"

var programs string // folder of rdsd and rdsctl

func TestMain(m *testing.M) {
	if os.Getenv(envKeeper) != "" {
		os.Exit(runKeeper(os.Args[1:])) // the arguments are a daemon's
	}
	flag.Parse()
	if c := os.Getenv(envWorker); c != "" {
		var cfg worker.Config
		if err := json.Unmarshal([]byte(c), &cfg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(worker.Main(cfg))
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	for _, p := range []string{"rdsd", "rdsctl"} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, p), "../../cmd/"+p)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", cmd, err, out)
			return 1
		}
	}
	if *firstSeed == 0 {
		*firstSeed = uint64(time.Now().UnixNano()) & 0xffffffff
	}
	return m.Run()
}
