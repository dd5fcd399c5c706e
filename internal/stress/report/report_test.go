package report

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestLine(t *testing.T) {
	l := Line{Tasks: 2, Time: 2 * time.Second, CPU: -1, Counts: Counts{
		RequestsSent: 3000, RequestsReceived: 2000, SentBytes: 1 << 20, ReceivedBytes: 1 << 20, RDMAInBytes: 4 << 20, RDMAOutBytes: 8 << 20,
		SendCalls: 1000, SendTime: 1500_000, RoundTrips: 10, RoundTripTime: 123_400,
	}}
	var b bytes.Buffer
	Header(&b)
	l.Print(&b, "  (average)")
	(&Line{CPU: -1}).Print(&b, "")
	want := `tsks   tx/s   rx/s  tx+rx K/s    mbi K/s    mbo K/s tx us/c   rtt us cpu %
   2   1500   1000    1024.00    2048.00    4096.00    1.50    12.34 -1.00  (average)
   0      0      0       0.00       0.00       0.00    0.00     0.00 -1.00
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}

func TestPerf(t *testing.T) {
	var b bytes.Buffer
	p := Perf{W: &b, ReqBytes: 1024, AckBytes: 63, RDMABytes: 4096}
	p.Header([]Counter{{"a", 10}, {"b_bytes", 20}}, CPUTimes{User: 100, Interrupts: 5})
	l := Line{Tasks: 1, Time: time.Second, CPU: -1}
	p.Line(&l, []Counter{{"a", 13}, {"b_bytes", 15}}, CPUTimes{User: 125, System: 25, Idle: 40, IRQ: 10, Interrupts: 9})
	p.Line(&l, nil, CPUTimes{User: 125, System: 25, Idle: 40, IRQ: 10, Interrupts: 9}) // the daemon did not answer
	lines := strings.Split(b.String(), "\n")
	for i, want := range []string{
		",a:count,b_bytes:bytes,user:percent,system:percent,idle:percent,irq:percent,intr:count",
		",3.000000,-5.000000,25.000000,25.000000,40.000000,10.000000,4",
		",0.000000,0.000000,0.000000,0.000000,0.000000,0.000000,0",
	} {
		if !strings.HasPrefix(lines[i], "::") || !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d: %s", i, lines[i])
		}
	}
}

func TestCPU(t *testing.T) {
	c := parseCPU([]byte("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 9 9 9 9\nintr 77 1 2\nctxt 5\n\n"))
	if c != (CPUTimes{User: 3, System: 11, Idle: 9, IRQ: 13, Interrupts: 77}) {
		t.Errorf("%+v", c)
	}
	if c := parseCPU([]byte("cpu 5\nintr\nnonsense")); c != (CPUTimes{User: 5}) {
		t.Errorf("%+v", c)
	}
	if p := c.Busy(CPUTimes{}); p != 75 {
		t.Errorf("%v %% busy", p)
	}
	if p := c.Busy(c); p != 0 {
		t.Errorf("no time: %v %%", p)
	}
	if now, err := ReadCPU(); err != nil || now.Idle+now.User == 0 {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestHistogram(t *testing.T) {
	var b bytes.Buffer
	buckets := [Buckets]uint64{3: 7}
	Histogram(&b, &buckets)
	if !strings.Contains(b.String(), "[     8 -     16] \t\t        7\n") {
		t.Errorf("%s", &b)
	}
}
