package conn

import (
	"strings"
	"testing"

	"github.com/rdsd/rdsd/conn/cong"
	"github.com/rdsd/rdsd/conn/wire"
)

func TestCongestion(t *testing.T) {
	s := newScript(t).up()
	if len(s.raw) != 0 {
		t.Error("an empty map was sent")
	}
	s.cong(5, 9)
	if s.congs != 1 || !s.c.RemoteCong().Test(5) || !s.c.RemoteCong().Test(9) || s.c.RemoteCong().Count() != 2 {
		t.Error("map not taken")
	}
	local := new(cong.Map)
	local.Set(33)
	s.c.QueueCong(local)
	local.Set(34)
	s.c.QueueCong(local)
	s.msg("behind it")
	s.run()
	f := s.frames()
	if len(f) != 2 || f[0].Flags != wire.FlagCong || f[0].Seq != 0 || f[0].Len != 8192 ||
		f[0].body[4] != 1<<1|1<<2 || string(f[1].body) != "behind it" {
		t.Errorf("frames %d", len(f))
	}
	local.Reset()
	s.again()
	if f := s.frames(); len(f) != 2 || f[0].Flags != wire.FlagCong || strings.Trim(string(f[0].body), "\x00") != "" {
		t.Errorf("after a reconnect the map goes out whole and first: %d frames", len(f))
	}
}
