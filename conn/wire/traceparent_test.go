package wire

import (
	"strings"
	"testing"
)

const traceText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestTraceparentText: the text of a traceparent header becomes bytes and the same text again.
func TestTraceparentText(t *testing.T) {
	for _, text := range []string{traceText, strings.Replace(traceText, "00-", "cc-", 1), strings.TrimSuffix(traceText, "01") + "ff"} {
		p, err := ParseTraceparent(text)
		if err != nil || TraceparentText(&p) != text {
			t.Errorf("%s: %v, %v", text, TraceparentText(&p), err)
		}
	}
	for text, want := range map[string]string{
		"":                                      errTraceText.Error(),
		traceText[:54]:                          errTraceText.Error(),
		traceText + "-x":                        errTraceText.Error(),
		strings.ToUpper(traceText):              errTraceText.Error(),
		strings.Replace(traceText, "-", "_", 1): errTraceText.Error(),
		strings.Replace(traceText, "-01", "001", 1):      errTraceText.Error(),
		"ff" + traceText[2:]:                             errTraceVersion.Error(),
		"00-" + strings.Repeat("0", 32) + traceText[35:]: errTraceZero.Error(),
		traceText[:36] + strings.Repeat("0", 16) + "-01": errTraceZero.Error(),
	} {
		if _, err := ParseTraceparent(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestExtTraceparent: the extension header goes ahead of all that a message may have, and takes nothing from it. Nor does that
// of a message for anybody, which is behind all.
func TestExtTraceparent(t *testing.T) {
	for name, set := range map[string]func(h *Header){
		"nothing": func(*Header) {},
		"two operations": func(h *Header) {
			h.SetExtRDMA(7)
			h.AddExtRDMA(9)
		},
		"a cookie": func(h *Header) { h.SetExtDest(8<<32 | 7) },
	} {
		var h Header
		set(&h)
		want := h.Exts()
		if h.Traced() {
			t.Errorf("%s: traced", name)
		}
		if h.AddExtTraceparent(); !h.Traced() || h.Exts() != want || h.Anybody() {
			t.Errorf("%s: %x", name, h.Ext)
		}
		if h.SetExtAnybody(); !h.Traced() || h.Exts() != want || !h.Anybody() {
			t.Errorf("%s, for anybody: %x", name, h.Ext)
		}
	}
	var run Header
	run.SetExtRun(3)
	run.AddExtTraceparent()
	if _, ok := run.Run(); ok {
		t.Error("a run has a traceparent")
	}
	p, _ := ParseTraceparent(traceText)
	b := []byte(strings.Repeat("x", TraceparentRoom+1))
	if p.Put(b); Traceparent(b) != p || string(b[TraceparentLen:]) != "\x00\x00\x00\x00\x00\x00x" {
		t.Errorf("%x", b)
	}
}

func FuzzParseTraceparent(f *testing.F) {
	f.Add(traceText)
	f.Add("ff" + traceText[2:])
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParseTraceparent(text); err == nil && TraceparentText(&p) != text {
			t.Errorf("%q became %q", text, TraceparentText(&p))
		}
	})
}
