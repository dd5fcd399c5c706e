package ctl

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/stats"
)

func timesOf(d time.Duration, n uint64) Times {
	var t stats.Times
	t.Add(stats.TimeBucket(int64(d)), int64(d), n)
	return TimesOf(&t)
}

func TestProcesses(t *testing.T) {
	a, b := Owner{PID: 7, UID: 1, Name: "store"}, Owner{PID: 5, UID: 2, Name: "cache"}
	c := Owner{PID: 9, UID: 3} // it has no socket
	got := Processes([]SocketInfo{
		{Owner: a, SendMessages: 1, SendBytes: 10, RecvBytes: 3, Ops: 2, OldestUnacked: 5, Sent: 4, SentBytes: 40, MessageTime: timesOf(time.Millisecond, 4)},
		{Owner: b, Congested: true, OldestUnacked: 1, Received: 3, ReceivedBytes: 30},
		{Owner: a, SendMessages: 2, SendBytes: 20, OldestUnacked: 9, Sent: 6, SentBytes: 60, MessageTime: timesOf(time.Millisecond, 6)},
	}, []Unreceived{{a, 5, false}, {c, 12, true}, {c, 7, true}, {a, 1, true}})
	want := []ProcessInfo{
		{Owner: b, Sockets: 1, Congested: 1, OldestUnacked: 1, Received: 3, ReceivedBytes: 30},
		{Owner: a, Sockets: 2, SendMessages: 3, SendBytes: 30, RecvBytes: 3, Ops: 2, OldestUnacked: 9, Sent: 10, SentBytes: 100, MessageTime: timesOf(time.Millisecond, 10), Unreceived: 6, Ended: 1},
		{Owner: c, Unreceived: 19, Ended: 2},
	}
	for i := range want {
		want[i].OperationTime.Buckets = []uint64{}
	}
	want[0].MessageTime.Buckets, want[2].MessageTime.Buckets = []uint64{}, []uint64{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// What a Times has for people is made of what it has for programs, and JSON keeps both.
func TestTimesJSON(t *testing.T) {
	in := timesOf(50*time.Microsecond, 3)
	b, err := json.Marshal(&in)
	var out Times
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil || !reflect.DeepEqual(in, out) || out.Count != 3 || out.Mean != 50*time.Microsecond || out.P50 == 0 {
		t.Errorf("%s: %v, %+v", b, err, out)
	}
	s := out.Stats()
	if !reflect.DeepEqual(TimesOf(&s), in) {
		t.Errorf("again: %+v", s)
	}
	out.Buckets = append(make([]uint64, 40), 9) // of a later version
	if s = out.Stats(); s.Counts[stats.TimeBuckets-1] != 9 {
		t.Errorf("longer: %+v", s)
	}
	if got := in.String(); !strings.HasSuffix(got, "µs, mean 50µs of 3") {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{0: "0s", 7: "7ns", 999: "999ns", 579_061: "579µs", 3_444_444: "3.44ms", 12_345_678_901: "12.3s"} {
		if got := Rounded(d); got.String() != want {
			t.Errorf("%d is %v, want %s", d, got, want)
		}
	}
	var none Times
	if none.String() != "none yet" {
		t.Error(none.String())
	}
}
