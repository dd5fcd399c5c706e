package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rdsd/rdsd/internal/ctl"
)

// TestNumbersAsStrings: what has 64 bits is a string, wherever it stands, and nothing else is.
func TestNumbersAsStrings(t *testing.T) {
	for doc, want := range map[string]string{
		`{"schema":"rdsd.v2","peers":[{"next_tx_seq":18446744073709551615,"lane":3,"rtt_ns":null}]}`: `{"schema":"rdsd.v3","peers":[{"next_tx_seq":"18446744073709551615","lane":3,"rtt_ns":null}]}`,
		`{"messages_times":{"buckets":[1,2]},"engine.turns":7,"port":4000}`:                          `{"messages_times":{"buckets":["1","2"]},"engine.turns":"7","port":4000}`,
		`{"config":[{"key":"schema","value":"rdsd.v2"}],"a":"\"seq\":1","later":1.5}`:                `{"config":[{"key":"schema","value":"rdsd.v2"}],"a":"\"seq\":1","later":1.5}`,
		`{"check":{"metrics":[{"value":0.5,"warn":null}]},"counters":[{"value":5}]}`:                 `{"check":{"metrics":[{"value":0.5,"warn":null}]},"counters":[{"value":"5"}]}`,
		`{}`: `{}`, `[]`: `[]`, `[true,null]`: `[true,null]`,
	} {
		if got, err := numbersToStrings([]byte(doc)); err != nil || string(got) != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", doc, err, got, want)
		}
	}
	for _, bad := range []string{``, `{`, `{"a":`, `[1,`, `{}{}`, `{"check":`} {
		if got, err := numbersToStrings([]byte(bad)); err == nil {
			t.Errorf("%q is a document: %s", bad, got)
		}
	}
}

// TestStringsToNumbers: what rdsctl printed, in this schema or the one before, is read as what it was.
func TestStringsToNumbers(t *testing.T) {
	want := ctl.TraceEvent{Seq: 1<<64 - 1, Bytes: 1 << 60, Time: time.Unix(7, 0).UTC()}
	old, err := json.Marshal(&ctl.Response{Schema: ctl.Schema, Kind: ctl.KindTrace, Trace: []ctl.TraceEvent{want}})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := numbersToStrings(old)
	if err != nil || string(doc) == string(old) {
		t.Fatalf("%v, %s", err, doc)
	}
	for _, doc := range [][]byte{old, doc} {
		back, err := stringsToNumbers(doc)
		if err != nil || string(back) != string(old) {
			t.Errorf("%v\ngot  %s\nwant %s", err, back, old)
		}
	}
	if got, err := stringsToNumbers([]byte(`{"seq":"many"}`)); err == nil {
		t.Errorf("%s", got)
	}
}
