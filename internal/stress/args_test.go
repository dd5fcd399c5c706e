package stress

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stress/proto"
)

func TestParse(t *testing.T) {
	def := proto.Default()
	with := func(change func(o *proto.Options)) proto.Options {
		o := def
		change(&o)
		return o
	}
	for _, tc := range []struct {
		line string
		want proto.Options
	}{
		{"", def},
		{"-s 10.0.0.1 -q 8k -a 0x100 -t 2 -d 8 -T 60 -D 64K -v -z", with(func(o *proto.Options) {
			o.ReqSize, o.AckSize, o.Tasks, o.Depth, o.Seconds, o.RDMASize, o.Verify, o.SummaryOnly = 8192, 256, 2, 8, 60, 65536, true, true
		})},
		{"-vzs10.0.0.1 -t4 -oc", with(func(o *proto.Options) { o.Verify, o.SummaryOnly, o.Tasks, o.Simplex = true, true, 4, true })},
		{"-o -v", with(func(o *proto.Options) { o.Simplex, o.Verify = true, true })},
		{"-o json -v", with(func(o *proto.Options) { o.Verify = true })},
		{"--send-addr=10.0.0.1 --req-bytes 512 --rdma-use-fence=0 --use-cong-monitor 0 --connect-r 3", with(func(o *proto.Options) { o.ReqSize, o.Fence, o.CongMonitor, o.ConnectRetries = 512, false, false, 3 })},
		{"-s 10.0.0.1 -D 1m --rdma-cache-mrs 1", with(func(o *proto.Options) { o.RDMASize, o.CacheMRs, o.UseGetMR = 1<<20, true, true })},
		{"-s 10.0.0.1 -Q 3 --async -M 2 -I 16 -D 4096 --rdma-alignment 64 -p 5000 -R -V --show-perfdata --rdma-key-o-meter --rdma-use-notify 1", with(func(o *proto.Options) {
			o.TOS, o.Async, o.RWMode, o.Vector, o.RDMASize, o.Alignment, o.Port = 3, true, 2, 16, 4096, 64, 5000
			o.RealTime, o.Trace, o.ShowPerf, o.KeyMeter = true, true, true, true
		})},
	} {
		c, err := Parse(strings.Fields(tc.line))
		if err != nil || c.Options != tc.want {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", tc.line, err, c.Options, tc.want)
		}
	}
	c, err := Parse(strings.Fields("-r 127.0.0.1 -s ::ffff:10.0.0.2 -o json -c --show-histogram --show-outliers 500 --show-params --socket /x"))
	if err == nil {
		err = c.Resolve(t.Context())
	}
	if err != nil || c.Send != netip.MustParseAddr("10.0.0.2") || c.Recv != netip.MustParseAddr("127.0.0.1") || c.Form != "json" || !c.ReportCPU || !c.Histogram ||
		c.Outlier != 500*time.Microsecond || !c.ShowParams || c.Socket != "/x" {
		t.Errorf("%v, %+v", err, c)
	}
}

func TestParseErrors(t *testing.T) {
	for line, want := range map[string]string{
		"10.0.0.1":                               "-s 10.0.0.1",
		"-s":                                     "-s: want addr behind it",
		"-x":                                     "-x: no such flag",
		"--frobnicate":                           "--frobnicate: no such flag",
		"--rdma-use":                             "may be --rdma-use-once or --rdma-use-get-mr or --rdma-use-fence",
		"--verify=1":                             "--verify takes no value",
		"--tasks":                                "want n, 1 behind it",
		"-t 65536":                               `-t: "65536" is not a number from 0 to 65535`,
		"-q 5g":                                  "is not a number from 0 to 4294967295",
		"-q 17179869184g":                        "is not a number",
		"-q 1_000":                               "is not a number",
		"-q k":                                   "is not a number",
		"-q -1":                                  "is not a number",
		"-I 513":                                 "from 0 to 512",
		"-M 3":                                   "from 0 to 2",
		"-s 10.0.0.1 -q 62":                      "requests of 62 bytes, want 63 to 1048576",
		"-s 10.0.0.1 -t 0":                       "0 tasks",
		"-s 10.0.0.1 -D 1m -I 2":                 "at most 1048576 bytes",
		"-p 0":                                   "-p: want 1 to 65534",
		"--reset":                                "want the peer's address",
		"--rdma-cache-mrs 1 --rdma-use-get-mr 0": "conflicts",
		"-s 10.0.0.1 -D 8 --rdma-cache-mrs 1 --rdma-use-once 1": "rdma-use-once",
	} {
		_, err := Parse(strings.Fields(line))
		var u *UsageError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	c, err := Parse([]string{"-s", "::1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Resolve(t.Context()); err == nil || !strings.Contains(err.Error(), "IPv4 addresses only") {
		t.Errorf("IPv6: %v", err)
	}
}

// TestUsage checks that each flag is in the usage text once.
func TestUsage(t *testing.T) {
	var b bytes.Buffer
	Usage(&b, "rds-stress")
	shorts, longs := map[byte]bool{}, map[string]bool{}
	for _, o := range options() {
		if !strings.Contains(b.String(), "--"+o.long) || o.help == "" {
			t.Errorf("--%s is not explained", o.long)
		}
		if o.short != 0 && shorts[o.short] || longs[o.long] {
			t.Errorf("%c, --%s twice", o.short, o.long)
		}
		shorts[o.short], longs[o.long] = true, true
	}
}

func TestKeyMeter(t *testing.T) {
	var k keyMeter
	at := time.Unix(0, 0)
	for _, x := range []struct {
		key uint32
		s   int
	}{{1, 0}, {2, 1}, {1, 2}, {3, 3}, {1, 8}} {
		k.add(x.key, at.Add(time.Duration(x.s)*time.Second))
	}
	if n, least, mean := k.take(); n != 2 || least != 2*time.Second || mean != 4*time.Second {
		t.Errorf("%d, %v, %v", n, least, mean)
	}
	if n, _, _ := k.take(); n != 0 {
		t.Errorf("%d the second time", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "-s 1.2.3.4 -q 8k", "-vzt8 --tasks=3", "-o json", "--rdma-u 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		c, err := Parse(strings.Fields(line))
		if err != nil {
			var u *UsageError
			if !errors.As(err, &u) {
				t.Fatal(err)
			}
			return
		}
		if c.send != "" && !c.Help && c.Options.Check() != nil {
			t.Fatalf("accepted: %+v", c.Options)
		}
	})
}
