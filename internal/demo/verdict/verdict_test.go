package verdict

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	good := func() Direction {
		d := Direction{Name: "copy", Resets: 2}
		d.Serve.Operations, d.Serve.Success, d.Serve.Dropped, d.Copy.Retried = 10, 8, 2, 2
		d.Copy.Bytes = 8 << 20
		d.Serve.Destinations = append(d.Serve.Destinations, struct {
			Addr   string `json:"addr"`
			Issued uint64 `json:"issued"`
			HWM    uint64 `json:"hwm"`
		}{"127.0.0.2", 10, 10})
		return d
	}
	for _, c := range []struct {
		name  string
		spoil func(*Direction)
		says  string
	}{
		{"all well", func(*Direction) {}, ""},
		{"no reset", func(d *Direction) { d.Resets = 1 }, "reset"},
		{"a status missing", func(d *Direction) { d.Serve.Success-- }, "have a status"},
		{"mark behind", func(d *Direction) { d.Serve.Destinations[0].HWM = 9 }, "high-water mark"},
		{"dropped and not asked for again", func(d *Direction) { d.Copy.Retried = 1 }, "asked for again"},
	} {
		d := good()
		c.spoil(&d)
		err := Check([]Direction{d}, 5)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: err = %v, want one that says %q", c.name, err, c.says)
		}
	}
}
